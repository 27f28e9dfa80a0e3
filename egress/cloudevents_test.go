package egress

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

// ceExample is the example of the CloudEvents specification 1.0, section 5, with an extension of each kind.
func ceExample(t *testing.T) cloudevents.Event {
	t.Helper()
	e := cloudevents.New()
	e.SetType("com.github.pull_request.opened")
	e.SetSource("https://github.com/cloudevents/spec/pull")
	e.SetSubject("123")
	e.SetID("A234-1234-1234")
	e.SetTime(time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC))
	e.SetExtension("comexampleextension1", "value with blanks, é and \"quotes\"")
	e.SetExtension("comexampleothervalue", 5)
	e.SetExtension("flag", true)
	if err := e.SetData("text/xml", []byte(`<much wow="xml"/>`)); err != nil {
		t.Fatal(err)
	}
	return e
}

// ceRequest has the official SDK write an event as its clients do.
func ceRequest(t *testing.T, e cloudevents.Event, structured bool) *http.Request {
	t.Helper()
	ctx := binding.WithForceBinary(t.Context())
	if structured {
		ctx = binding.WithForceStructured(t.Context())
	}
	r := intakePost(eventsPath, "")
	if err := cehttp.WriteRequest(ctx, (*binding.EventMessage)(&e), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// What the SDK posts is what the SDK reads from the attempt at the other end, in either mode.
func TestCloudEventsOfTheSDK(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		structured bool
	}{{"binary", false}, {"structured", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			in, _ := newTestIntake(o, nil)
			want := ceExample(t)
			r := ceRequest(t, want, tt.structured)
			posted, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(posted))
			contentType := r.Header.Get("Content-Type")
			if w := serveIntake(in, r); w.Code != http.StatusAccepted {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			got := o.accepted()[0]
			if string(got.Body) != string(posted) || got.ContentType != contentType || got.Type != want.Type() {
				t.Errorf("event is %s of content type %q and type %q, posted was %s of %q", got.Body, got.ContentType, got.Type, posted, contentType)
			}
			attempt := httptest.NewRequest(http.MethodPost, "https://acme.example/in", bytes.NewReader(got.Body))
			attempt.Header.Set("Content-Type", got.ContentType)
			for _, f := range got.Headers {
				attempt.Header.Set(f.Name, f.Value)
			}
			received, err := cehttp.NewEventFromHTTPRequest(attempt)
			if err != nil {
				t.Fatalf("the SDK cannot read the attempt: %v", err)
			}
			if diff := cmp.Diff(want.Context.String(), received.Context.String()); diff != "" {
				t.Errorf("received (-posted +received):\n%s", diff)
			}
			if string(received.Data()) != string(want.Data()) {
				t.Errorf("data %q, want %q", received.Data(), want.Data())
			}
		})
	}
}

// The id stands for source and id of the event: together they are unique, and each alone is not.
func TestCloudEventIDs(t *testing.T) {
	t.Parallel()
	o := new(intakeOutbox)
	in, counts := newTestIntake(o, nil)
	post := func(source, id string) string {
		e := ceExample(t)
		e.SetSource(source)
		e.SetID(id)
		if w := serveIntake(in, ceRequest(t, e, false)); w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		events := o.accepted()
		return events[len(events)-1].ID
	}
	seen := make(map[string]bool)
	for _, row := range [][2]string{{"/a", "1"}, {"/a", "2"}, {"/b", "1"}, {"/a1", "2"}, {"/a", "12"}} {
		id := post(row[0], row[1])
		if !validEventID(id) || seen[id] {
			t.Errorf("%q has the id %q", row, id)
		}
		seen[id] = true
	}
	post("/a", "1")
	if diff := cmp.Diff(map[string]int{IntakeAccepted: 5, IntakeRepeated: 1}, counts.get()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	e := ceExample(t)
	e.SetSource("/a")
	e.SetID("1")
	e.SetSubject("another")
	checkProblem(t, serveIntake(in, ceRequest(t, e, false)), 409, "id_conflict")
}

func TestCloudEventBinary(t *testing.T) {
	t.Parallel()
	base := []string{"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Type", "a.b"}
	with := func(pairs ...string) []string { return append(append([]string(nil), base...), pairs...) }
	for _, tt := range []struct {
		name  string
		path  string
		pairs []string
		// status and code of a refusal; 202 and the endpoints of the deliveries else
		status  int
		want    string
		headers []signature.Field
	}{
		{
			name: "headers go on as they came, in order", path: eventsPath,
			pairs: with("Ce-Time", "2018-04-05T17:31:00Z", "ce-zext", "%C3%A9%20x", "Content-Type", "application/json"), status: 202, want: "all",
			headers: []signature.Field{{Name: "ce-id", Value: "1"}, {Name: "ce-source", Value: "/s"}, {Name: "ce-specversion", Value: "1.0"},
				{Name: "ce-time", Value: "2018-04-05T17:31:00Z"}, {Name: "ce-type", Value: "a.b"}, {Name: "ce-zext", Value: "%C3%A9%20x"}},
		},
		{
			name: "on the raw path, for an endpoint of a tenant", path: "/v1/endpoints/theirs/events", pairs: base, status: 202, want: "theirs",
			headers: []signature.Field{{Name: "ce-id", Value: "1"}, {Name: "ce-source", Value: "/s"}, {Name: "ce-specversion", Value: "1.0"}, {Name: "ce-type", Value: "a.b"}},
		},
		{name: "another version", path: eventsPath, pairs: []string{"Ce-Specversion", "0.3", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Type", "a"}, status: 400, want: "invalid_event"},
		{name: "no id", path: eventsPath, pairs: []string{"Ce-Specversion", "1.0", "Ce-Source", "/s", "Ce-Type", "a"}, status: 400, want: "invalid_event"},
		{name: "an empty id", path: eventsPath, pairs: []string{"Ce-Specversion", "1.0", "Ce-Id", " ", "Ce-Source", "/s", "Ce-Type", "a"}, status: 400, want: "invalid_event"},
		{name: "no source", path: eventsPath, pairs: []string{"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Type", "a"}, status: 400, want: "invalid_event"},
		{name: "no type", path: eventsPath, pairs: []string{"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/s"}, status: 400, want: "invalid_event"},
		{name: "a source that is no URI", path: eventsPath, pairs: []string{"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "http://[", "Ce-Type", "a"}, status: 400, want: "invalid_event"},
		{name: "a type with a blank", path: eventsPath, pairs: []string{"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Type", "a%20b"}, status: 400, want: "invalid_event"},
		{name: "a time that is none", path: eventsPath, pairs: with("Ce-Time", "yesterday"), status: 400, want: "invalid_event"},
		{name: "a schema that is no absolute URI", path: eventsPath, pairs: with("Ce-Dataschema", "/x"), status: 400, want: "invalid_event"},
		{name: "a header twice", path: eventsPath, pairs: with("Ce-X", "1", "Ce-X", "2"), status: 400, want: "invalid_event"},
		{name: "a name that is none", path: eventsPath, pairs: with("Ce-My-Ext", "1"), status: 400, want: "invalid_event"},
		{name: "data in a header", path: eventsPath, pairs: with("Ce-Data", "1"), status: 400, want: "invalid_event"},
		{name: "the content type in a header of its own", path: eventsPath, pairs: with("Ce-Datacontenttype", "a/b"), status: 400, want: "invalid_event"},
		{name: "a content type that is none", path: eventsPath, pairs: with("Content-Type", "a b/c"), status: 400, want: "invalid_event"},
		{name: "Idempotency-Key", path: eventsPath, pairs: with("Idempotency-Key", "1"), status: 400, want: "invalid_event"},
		{name: "more headers than are kept", path: eventsPath, pairs: with("Ce-X", strings.Repeat("x", maxCEHeaderBytes)), status: 413, want: "too_large"},
		{name: "an unknown endpoint", path: "/v1/endpoints/nobody/events", pairs: base, status: 404, want: "unknown_endpoint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			in, _ := newTestIntake(o, nil)
			w := serveIntake(in, intakePost(tt.path, "data", tt.pairs...))
			if tt.status != http.StatusAccepted {
				checkProblem(t, w, tt.status, tt.want)
				return
			}
			if w.Code != http.StatusAccepted || !strings.Contains(w.Body.String(), `"endpoint":"`+tt.want+`"`) {
				t.Fatalf("%d %s, want %s", w.Code, w.Body, tt.want)
			}
			got := o.accepted()[0]
			if string(got.Body) != "data" || got.Type != "a.b" {
				t.Errorf("body %q, type %q", got.Body, got.Type)
			}
			if tt.headers == nil {
				return
			}
			if diff := cmp.Diff(tt.headers, got.Headers); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCloudEventStructured(t *testing.T) {
	t.Parallel()
	const base = `"specversion":"1.0","id":"1","source":"/s","type":"a.b"`
	for _, tt := range []struct {
		name, contentType, body string
		status                  int
		code                    string
	}{
		{"the least", "application/cloudevents+json", `{` + base + `}`, 202, ""},
		{"untouched, with its charset", "application/cloudevents+json; charset=UTF-8", " {" + base + `, "data" : {"b":1,"a":1.0} }` + "\n", 202, ""},
		{"every kind of attribute", "application/cloudevents+json", `{` + base + `,"ext1":"x","ext2":5,"ext3":true,"ext4":null,"time":"2018-04-05T17:31:00Z"}`, 202, ""},
		{"binary data", "application/cloudevents+json", `{` + base + `,"data_base64":"AAA="}`, 202, ""},
		{"no JSON", "application/cloudevents+json", `{` + base + `,}`, 400, "invalid_json"},
		{"an array: a batch under the wrong name", "application/cloudevents+json", `[{` + base + `}]`, 400, "invalid_json"},
		{"an attribute twice", "application/cloudevents+json", `{` + base + `,"id":"1"}`, 400, "duplicate_key"},
		{"data twice", "application/cloudevents+json", `{` + base + `,"data":1,"data":2}`, 400, "duplicate_key"},
		{"both kinds of data", "application/cloudevents+json", `{` + base + `,"data":1,"data_base64":"AA=="}`, 400, "invalid_event"},
		{"data_base64 that is a number, at which the SDK's reader panics", "application/cloudevents+json", `{"data_base64":1,` + base + `}`, 400, "invalid_event"},
		{"an attribute that is an object", "application/cloudevents+json", `{` + base + `,"ext":{}}`, 400, "invalid_event"},
		{"a number that is none of theirs", "application/cloudevents+json", `{` + base + `,"ext":1.5}`, 400, "invalid_event"},
		{"a number of more than 32 bits", "application/cloudevents+json", `{` + base + `,"ext":2147483648}`, 400, "invalid_event"},
		{"a name in upper case", "application/cloudevents+json", `{` + base + `,"Ext":"x"}`, 400, "invalid_event"},
		{"an empty name, at which the SDK's reader stops", "application/cloudevents+json", `{` + base + `,"":"x"}`, 400, "invalid_event"},
		{"an id that is a number", "application/cloudevents+json", `{"specversion":"1.0","id":1,"source":"/s","type":"a"}`, 400, "invalid_event"},
		{"no version", "application/cloudevents+json", `{"id":"1","source":"/s","type":"a"}`, 400, "invalid_event"},
		{"an old version", "application/cloudevents+json", `{"specversion":"0.3","id":"1","source":"/s","type":"a"}`, 400, "invalid_event"},
		{"a null id", "application/cloudevents+json", `{"specversion":"1.0","id":null,"source":"/s","type":"a"}`, 400, "invalid_event"},
		{"a batch", "application/cloudevents-batch+json", `[]`, 415, "unsupported_media_type"},
		{"another format", "application/cloudevents+avro", `x`, 415, "unsupported_media_type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			in, _ := newTestIntake(o, nil)
			w := serveIntake(in, intakePost(eventsPath, tt.body, "Content-Type", tt.contentType))
			if tt.status != http.StatusAccepted {
				checkProblem(t, w, tt.status, tt.code)
				return
			}
			if w.Code != http.StatusAccepted {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			got := o.accepted()[0]
			if string(got.Body) != tt.body || got.ContentType != tt.contentType || got.Type != "a.b" || got.Headers != nil {
				t.Errorf("event %+v", got)
			}
		})
	}
}

func FuzzCloudEvent(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"a.b","data":{"a":1}}`))
	f.Add([]byte(`{"data_base64":"AA==","specversion":"1.0","id":"1","source":"/s","type":"a.b","time":"2018-04-05T17:31:00Z","dataschema":"http://a/b"}`))
	f.Add([]byte(`{"specversion":"1.0","id":" ","source":"%zz","type":"a.b","datacontenttype":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, refusal := structuredPost(b, typeCloudEvent)
		if refusal != nil {
			return
		}
		// What we take the SDK takes, and says the same of it: a receiver will read it so.
		e := cloudevents.New()
		if err := e.UnmarshalJSON(b); err != nil {
			if strings.Contains(string(b), "data") {
				return // the SDK decodes data by its content type, which is the receiver's business
			}
			t.Fatalf("%q is taken, the SDK says %v", b, err)
		}
		if e.Type() != p.eventType || !ValidEventType(p.eventType) || !validEventID(p.id) {
			t.Fatalf("%q: type %q, id %q, the SDK says %q", b, p.eventType, p.id, e.Type())
		}
	})
}
