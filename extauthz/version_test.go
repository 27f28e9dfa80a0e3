package extauthz

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sidehook/sidehook/internal/signature"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		isTime     bool
		want       string
	}{
		{"an integer", "66", false, "n66"},
		{"longer than 64 bits", "123456789012345678901234567890", false, "n123456789012345678901234567890"},
		{"zeros in front", "0066", false, "n66"},
		{"zero", "-0.0", false, "n0"},
		{"negative", "-7.50", false, "n-7.5"},
		{"a fraction", "0.125", false, "n0.125"},
		{"JSON's exponent", "1.25e3", false, "n1250"},
		{"a negative one", "125E-4", false, "n0.0125"},
		{"too large an exponent", "1e999999999", false, ""},
		{"no number", "v7", false, ""},
		{"a sign alone", "-", false, ""},
		{"a plus", "+1", false, ""},
		{"no digit behind the point", "1.", false, ""},
		{"no digit before it", ".5", false, ""},
		{"empty", "", false, ""},
		{"a time is no number", "2026-01-02T03:04:05Z", false, ""},
		{"too long", strings.Repeat("9", maxVersionBytes+1), false, ""},
		{"a time", "1970-01-02T00:00:01Z", true, "t86401"},
		{"with a zone", "1970-01-02T02:00:01+02:00", true, "t86401"},
		{"with a zone without colon", "1970-01-02T02:00:01.000+0200", true, "t86401"},
		{"without a zone", "1970-01-02T00:00:01", true, "t86401"},
		{"with a blank", "1970-01-02 00:00:01", true, "t86401"},
		{"with a fraction, longer than nanoseconds", "1970-01-02T00:00:01.1234567890123Z", true, "t86401.1234567890123"},
		{"seconds", "1614265330", true, "n1614265330"},
		{"before 1970", "1969-12-31T23:59:59Z", true, ""},
		{"a month too many", "2026-13-02T03:04:05Z", true, ""},
		{"a comma", "2026-01-02T03:04:05,5Z", true, ""},
		{"no fraction behind the point", "2026-01-02T03:04:05.Z", true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := parseVersion(tt.text, tt.isTime); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestVersionsAreInTheOrderOfNumbers compares with math/big, which has no bound.
func TestVersionsAreInTheOrderOfNumbers(t *testing.T) {
	t.Parallel()
	number := rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "near") { // so that equal ones come
			return rapid.SampledFrom([]string{"1", "1.0", "10e-1", "0.1e1", "-1", "0", "1.10", "1.1", "1.09", "2", "10", "9"}).Draw(t, "number")
		}
		return rapid.StringMatching(`-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, okX := new(big.Rat).SetString(a)
		y, okY := new(big.Rat).SetString(b)
		if !okX || !okY {
			t.Fatalf("%q, %q", a, b)
		}
		if got, want := olderVersion(parseVersion(a, false), parseVersion(b, false)), x.Cmp(y) < 0; got != want {
			t.Fatalf("%q older than %q: %v, want %v", a, b, got, want)
		}
		if got, want := parseVersion(a, false) == parseVersion(b, false), x.Cmp(y) == 0; got != want {
			t.Fatalf("%q the same as %q: %v, want %v", a, b, got, want)
		}
	})
}

// TestVersionsAreInTheOrderOfTimes compares with package time.
func TestVersionsAreInTheOrderOfTimes(t *testing.T) {
	t.Parallel()
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		zone := time.FixedZone("", rapid.IntRange(-14*60, 14*60).Draw(t, "zone")*60)
		nanos := rapid.SampledFrom([]int64{0, 1, 10, 100_000_000, 120_000_000, 999_999_999}).Draw(t, "nanoseconds")
		return time.Unix(rapid.Int64Range(0, 5).Draw(t, "near")+rapid.SampledFrom([]int64{100_000, 1_614_265_330, 250_000_000_000}).Draw(t, "seconds"), nanos).In(zone)
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := instant.Draw(t, "a"), instant.Draw(t, "b")
		got := olderVersion(parseVersion(a.Format(time.RFC3339Nano), true), parseVersion(b.Format(time.RFC3339Nano), true))
		if want := a.Before(b); got != want {
			t.Fatalf("%v older than %v: %v, want %v", a, b, got, want)
		}
	})
}

func TestWhatCannotBeComparedIsNotOlder(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"", "n1"}, {"n1", ""}, {"n1", "t2"}, {"t1", "n2"}} {
		if olderVersion(pair[0], pair[1]) {
			t.Errorf("%q is older than %q", pair[0], pair[1])
		}
	}
}

func TestVersionRule(t *testing.T) {
	t.Parallel()
	rule := func(object, at string, isTime bool) VersionRule {
		r := VersionRule{Time: isTime}
		var err error
		if r.Object, err = signature.ParsePath(object); err != nil {
			t.Fatal(err)
		}
		if r.At, err = signature.ParsePath(at); err != nil {
			t.Fatal(err)
		}
		return r
	}
	stripe := rule("data.object.id", "created", true)
	doc := func(object, created string) []byte {
		return fmt.Appendf(nil, `{"created":%s,"data":{"object":{"id":%s}}}`, created, object)
	}
	a, b := stripe.read(doc(`"sub_1"`, "1614265365")), stripe.read(doc(`"sub_1"`, "1614265366"))
	if a.Object != b.Object || !olderVersion(a.At, b.At) {
		t.Errorf("got %+v and %+v", a, b)
	}
	if other := stripe.read(doc(`"sub_2"`, "1614265366")); other.Object == b.Object {
		t.Error("two objects are one")
	}
	byNumber := rule("data.object.id", "created", false)
	updated := rule("data.object.id", "data.object.updated", true)
	for name, r := range map[string]VersionRule{"number": byNumber, "another path": updated} {
		doc := []byte(`{"created":1,"data":{"object":{"id":"sub_1","updated":1}}}`)
		if got := r.read(doc).Object == stripe.read(doc).Object; got != (name == "number") {
			t.Errorf("%s: the same mark as by the first rule: %v", name, got)
		}
	}
	var off VersionRule
	for name, got := range map[string]Version{
		"off":           off.read(doc(`"sub_1"`, "1")),
		"no object":     stripe.read([]byte(`{"created":1}`)),
		"no version":    stripe.read(doc(`"sub_1"`, "null")),
		"unreadable":    stripe.read(doc(`"sub_1"`, `"soon"`)),
		"object is one": stripe.read(doc(`{}`, "1")),
		"no JSON":       stripe.read([]byte("created=1")),
	} {
		if got != (Version{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
