package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
)

func jsonPath(t *testing.T, text string) signature.Path {
	t.Helper()
	p, err := signature.ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const stripeFields = "name: a, provider: stripe, secrets: [{env: CONFIG_TEST_STRONG}], "

// withEvents is a source with a scheme whose requests carry several events.
const withEvents = "name: a, secrets: [{env: CONFIG_TEST_STRONG}], scheme: {algorithm: HMAC_SHA256, signature: {header: X-Signature}, " +
	"events: {json: events, id: id, type: kind}, live: {json: mode, value: live}, type: {json: events.0.kind}}, "

// kept puts a source in STORE.
const kept = "mode: STORE, delivery: {url: 'http://127.0.0.1:8080'}, "

// storing is a whole configuration with a source in STORE.
func storing(fields string) string {
	return strings.Replace(gateWith("- {"+fields+"}\n"), "path: /var/lib/sidehook}", "path: /var/lib/sidehook, volume: DURABLE}", 1)
}

func TestReading(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", "whsec_"+strongSecret)
	events := &extauthz.EventsRule{Array: jsonPath(t, "events"), ID: jsonPath(t, "id"), Type: jsonPath(t, "kind")}
	for _, tt := range []struct {
		name, fields string
		want         extauthz.Source
	}{
		{name: "off", fields: stripeFields},
		{
			name: "the provider's paths", fields: stripeFields + "version: {}, live_only: true",
			want: extauthz.Source{
				Version: extauthz.VersionRule{Object: jsonPath(t, "data.object.id"), At: jsonPath(t, "created"), Time: true},
				Live:    extauthz.LiveRule{JSON: jsonPath(t, "livemode"), Value: "true"},
			},
		},
		{
			name: "another object, the provider's time", fields: stripeFields + "version: {object: data.object.customer}",
			want: extauthz.Source{Version: extauthz.VersionRule{Object: jsonPath(t, "data.object.customer"), At: jsonPath(t, "created"), Time: true}},
		},
		{
			name: "a number", fields: stripeFields + "version: {number: data.object.revision}",
			want: extauthz.Source{Version: extauthz.VersionRule{Object: jsonPath(t, "data.object.id"), At: jsonPath(t, "data.object.revision")}},
		},
		{
			name:   "one change",
			fields: stripeFields + "dedupe: {also: {object: data.object.id, types: [invoice.paid, invoice.payment_succeeded], window: 1h}}",
			want: extauthz.Source{Change: extauthz.ChangeRule{Object: jsonPath(t, "data.object.id"),
				Types: []string{"invoice.paid", "invoice.payment_succeeded"}, Window: time.Hour}},
		},
		{
			name: "a scheme of one's own", fields: withEvents + "live_only: true",
			want: extauthz.Source{Events: events, Live: extauthz.LiveRule{JSON: jsonPath(t, "mode"), Value: "live"}},
		},
		{
			name: "each event by itself", fields: withEvents + kept + "split: true, version: {object: events.0.object, time: events.0.at}",
			want: extauthz.Source{Events: events, Split: true,
				Version: extauthz.VersionRule{Object: jsonPath(t, "events.0.object"), At: jsonPath(t, "events.0.at"), Time: true}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := mustParse(t, storing(tt.fields)).Gate.Sources[0]
			got := extauthz.Source{Version: s.Version, Change: s.Change, Live: s.Live, Events: s.Events, Split: s.Split}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadingErrors(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", "whsec_"+strongSecret)
	const source = "extauthz.sources[0]"
	custom := "name: a, secrets: [{env: CONFIG_TEST_STRONG}], " + scheme + ", "
	change := func(types, window string) string {
		return "dedupe: {also: {object: id, types: [" + types + "], window: " + window + "}}"
	}
	for _, tt := range []struct {
		name, fields string
		want         []string
	}{
		{"a version of nothing", custom + "version: {}",
			[]string{source + ".version: custom does not say where an event tells its object and version; write object, and number or time, or leave this out"}},
		{"no object", custom + "version: {time: at}",
			[]string{source + ".version.object: is required: custom does not say where an event tells its object; write a path, such as data.object.id"}},
		{"no version", custom + "version: {object: id}",
			[]string{source + ".version: custom does not say where an event tells how new it is; write number or time, such as time: updated_at"}},
		{"two versions", custom + "version: {object: id, time: at, number: n}",
			[]string{source + ".version: number and time exclude each other; remove one"}},
		{"no path", custom + "version: {object: a..b, time: at}",
			[]string{source + `.version.object: json: an empty name in "a..b"`}},
		{"of what nobody verifies", "name: a, verify: none, live_only: true, version: {object: id, time: at}",
			[]string{
				source + ".version: nobody vouches for what a request says that is not verified; leave this out",
				source + ".live_only: nobody vouches for the mode of a request that is not verified; leave this out",
			}},
		{"without ids", strings.Replace(custom, "X-Signature}", "X-Signature}, id: {none: true}", 1) + "version: {object: id, time: at}",
			[]string{source + ".version: the events have no id under which one could be kept; leave this out, or write a scheme with an id"}},
		{"one of several events", withEvents + "version: {object: id, time: at}, " + change("a", "1m"),
			[]string{
				source + ".version: a request of custom may carry several events, and this reads one; leave this out, or keep each by itself: mode: STORE with split: true",
				source + ".dedupe.also: a request of custom may carry several events, and this reads one; leave this out, or keep each by itself: mode: STORE with split: true",
			}},
		{"a sender without modes", custom + "live_only: true",
			[]string{source + ".live_only: custom says nothing of an event's mode; leave this out, or write a scheme with live"}},
		{"no types", custom + "dedupe: {also: {object: id, window: 1m}}",
			[]string{source + ".dedupe.also.types: must contain at least 1 item(s)"}},
		{"nothing", custom + "dedupe: {also: {}}",
			[]string{source + ".dedupe.also.object: is required", source + ".dedupe.also.types: must contain at least 1 item(s)", source + ".dedupe.also.window: is required"}},
		{"too long", custom + change("a", "2h"), []string{source + ".dedupe.also.window: write at least 1s and at most 1h"}},
		{"no type", strings.Replace(custom, "X-Signature}", "X-Signature}, type: {json: type}", 1) + change("'a, b'", "1m"),
			[]string{source + `.dedupe.also.types[0]: "a, b": a type has no comma`}},
		{"a sender without types", custom + change("a", "1m"),
			[]string{source + ".dedupe.also: custom says nothing of an event's type; leave this out, or write a scheme with a type"}},
		{"longer than ids are kept", stripeFields + "retention: 10m, tolerance: 5m, " + change("a", "1h"),
			[]string{source + ".dedupe.also.window: 1h is above the retention, 10m; write at most that"}},
		{"nothing is kept", withEvents + "split: true",
			[]string{source + ".split: is for mode: STORE: in PASS the request itself goes to the app"}},
		{"one event in a request", stripeFields + kept + "split: true",
			[]string{source + ".split: stripe sends one event in a request; leave this out, or write a scheme with events"}},
		{"not in the body", strings.Replace(withEvents, "events: {", "body: DECODED, events: {", 1) + kept + "split: true",
			[]string{source + ".split: the events of custom do not stand in the body as it is received; leave this out"}},
		{"an id of one event", strings.Replace(withEvents, "events: {", "id: {json: events.0.id}, events: {", 1) + "live_only: true",
			[]string{source + ".scheme.id: stands in one event of the request; write what is the whole request's, or hash: true"}},
		{"several arrays", strings.Replace(withEvents, "json: events,", "json: a+b,", 1) + "live_only: true",
			[]string{source + ".scheme.events.json: one path, without +"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("sidehook.yaml", []byte(storing(tt.fields)))
			checkTexts(t, "errors", texts(Findings(err)), tt.want)
		})
	}
}

// The paths of a provider are shown where they hold.
func TestEffectiveReading(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", "whsec_"+strongSecret)
	c := mustParse(t, gateWith("- {"+stripeFields+"version: {}}\n"))
	printed, err := Effective(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"object: data.object.id", "time: created"} {
		if !strings.Contains(string(printed), line) {
			t.Errorf("%q is missing in\n%s", line, printed)
		}
	}
}

// What a change does to the events of a sender is said before it is made.
func TestDiffReading(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", "whsec_"+strongSecret)
	const a = "extauthz.sources[a]."
	for _, tt := range []struct{ name, old, new, want string }{
		{"versions", stripeFields, stripeFields + "version: {}",
			a + "version.object: added: data.object.id; events older than what the app has of their object no longer reach it"},
		{"other versions", stripeFields + "version: {}", stripeFields + "version: {time: data.object.updated}",
			a + "version.time: created -> data.object.updated; what the app has of an object is learned anew: until then older events pass"},
		{"no test mode", stripeFields, stripeFields + "live_only: true",
			a + "live_only: added: true; events of the sender's test mode no longer reach the app"},
		{"one change", stripeFields, stripeFields + "dedupe: {also: {object: id, types: [a], window: 1m}}",
			a + "dedupe.also.object: added: id; a second event for one change no longer reaches the app"},
		{"each event", withEvents + kept, withEvents + kept + "split: true",
			a + "split: added: true; each event of a request reaches the app by itself, with the sender's signature over the whole request"},
		{"the request again", withEvents + kept + "split: true", withEvents + kept,
			a + "split: removed: true; the app gets requests with several events"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range Diff(mustParse(t, storing(tt.old)), mustParse(t, storing(tt.new))) {
				got = append(got, c.String())
			}
			if !slices.Contains(got, tt.want) {
				t.Errorf("%q is missing in %q", tt.want, got)
			}
		})
	}
}
