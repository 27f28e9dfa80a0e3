package egress

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIntakeAccepts(t *testing.T) {
	t.Parallel()
	// The deliveries' ids: event 1, endpoints 1 and 2.
	const d1, d2 = "dlv_0000000000002000000g", "dlv_00000000000020000010"
	for _, tt := range []struct {
		name string
		r    func() *http.Request
		want string // the answer
		sent Event  // Body, ContentType, ID, Tenant and Type are compared
		code string
	}{
		{
			name: "an event goes to all that want its type",
			r:    func() *http.Request { return intakeJSON(`{"type":"invoice.paid","data":{"id":"in_1"}}`) },
			want: `{"id":"evt_1","deliveries":[{"id":"` + d1 + `","endpoint":"acme","state":"WAITING"},{"id":"` + d2 + `","endpoint":"all","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "evt_1", Type: "invoice.paid", ContentType: "application/json",
				Body: []byte(`{"type":"invoice.paid","timestamp":"2000-01-01T00:00:00.000Z","data":{"id":"in_1"}}`)},
			code: IntakeAccepted,
		},
		{
			name: "every field, in any order, with white space",
			r: func() *http.Request {
				return intakeJSON(` { "data" : [ 1 ] , "endpoint" : "theirs", "tenant":"t1", "type":"a", "id":"order-7" } `)
			},
			want: `{"id":"order-7","deliveries":[{"id":"` + d1 + `","endpoint":"theirs","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "order-7", Type: "a", Tenant: "t1", ContentType: "application/json",
				Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":[ 1 ]}`)},
			code: IntakeAccepted,
		},
		{
			name: "null stands for what is absent, but for data it is a value",
			r: func() *http.Request {
				return intakeJSON(`{"id":null,"tenant":null,"endpoint":null,"type":"a","data":null}`)
			},
			want: `{"id":"evt_1","deliveries":[{"id":"` + d1 + `","endpoint":"all","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "evt_1", Type: "a", ContentType: "application/json", Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":null}`)},
			code: IntakeAccepted,
		},
		{
			name: "names and values written with escapes",
			r:    func() *http.Request { return intakeJSON(`{"\u0074ype":"\u0061","data":"\u0061"}`) },
			want: `{"id":"evt_1","deliveries":[{"id":"` + d1 + `","endpoint":"all","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "evt_1", Type: "a", ContentType: "application/json", Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":"\u0061"}`)},
			code: IntakeAccepted,
		},
		{
			name: "an id that has to be quoted in JSON",
			r:    func() *http.Request { return intakeJSON(`{"id":"a\"\\b","type":"a","data":1}`) },
			want: `{"id":"a\"\\b","deliveries":[{"id":"` + d1 + `","endpoint":"all","state":"WAITING"}]}` + "\n",
			sent: Event{ID: `a"\b`, Type: "a", ContentType: "application/json", Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":1}`)},
			code: IntakeAccepted,
		},
		{
			name: "nobody wants it: no tenant of that name has an endpoint",
			r:    func() *http.Request { return intakeJSON(`{"type":"a","tenant":"t2","data":1}`) },
			want: `{"id":"evt_1","deliveries":[]}` + "\n",
			sent: Event{ID: "evt_1", Type: "a", Tenant: "t2", ContentType: "application/json", Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":1}`)},
			code: IntakeNoEndpoint,
		},
		{
			name: "an endpoint that is named gets what it does not want by itself",
			r:    func() *http.Request { return intakeJSON(`{"type":"a","endpoint":"acme","data":1}`) },
			want: `{"id":"evt_1","deliveries":[{"id":"` + d1 + `","endpoint":"acme","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "evt_1", Type: "a", ContentType: "application/json", Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":1}`)},
			code: IntakeAccepted,
		},
		{
			name: "parked ones are said, and those that cannot be sent to",
			r:    func() *http.Request { return intakeJSON(`{"type":"park","endpoint":"parked","data":1}`) },
			want: `{"id":"evt_1","deliveries":[{"id":"` + d1 + `","endpoint":"parked","state":"PARKED"}]}` + "\n",
			sent: Event{ID: "evt_1", Type: "park", ContentType: "application/json", Body: []byte(`{"type":"park","timestamp":"2000-01-01T00:00:00.000Z","data":1}`)},
			code: IntakeAccepted,
		},
		{
			name: "an endpoint that cannot be sent to is parked",
			r:    func() *http.Request { return intakePost("/v1/endpoints/broken/events", "x") },
			want: `{"id":"evt_1","deliveries":[{"id":"` + d1 + `","endpoint":"broken","state":"PARKED"}]}` + "\n",
			sent: Event{ID: "evt_1", ContentType: "application/octet-stream", Body: []byte("x")},
			code: IntakeAccepted,
		},
		{
			name: "a full endpoint beside one that has room",
			r:    func() *http.Request { return intakeJSON(`{"type":"crowd","data":1}`) },
			want: `{"id":"evt_1","deliveries":[{"id":"` + d1 + `","endpoint":"all","state":"WAITING"},{"endpoint":"crowded","error":"endpoint_full"}]}` + "\n",
			sent: Event{ID: "evt_1", Type: "crowd", ContentType: "application/json", Body: []byte(`{"type":"crowd","timestamp":"2000-01-01T00:00:00.000Z","data":1}`)},
			code: IntakeAccepted,
		},
		{
			name: "a full endpoint alone",
			r:    func() *http.Request { return intakePost("/v1/endpoints/crowded/events", "x") },
			want: `{"id":"evt_1","deliveries":[{"endpoint":"crowded","error":"endpoint_full"}]}` + "\n",
			sent: Event{ID: "evt_1", ContentType: "application/octet-stream", Body: []byte("x")},
			code: IntakeNoEndpoint,
		},
		{
			name: "raw, of the endpoint's tenant",
			r: func() *http.Request {
				return intakePost("/v1/endpoints/theirs/events", "<a/>", "Content-Type", "Text/XML; Charset=x", "Webhook-Id", "r1", "Webhook-Type", "doc.made")
			},
			want: `{"id":"r1","deliveries":[{"id":"` + d1 + `","endpoint":"theirs","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "r1", Type: "doc.made", Tenant: "t1", ContentType: "Text/XML; Charset=x", Body: []byte("<a/>")},
			code: IntakeAccepted,
		},
		{
			name: "Idempotency-Key stands for id",
			r:    func() *http.Request { return intakeJSON(`{"type":"a","data":1}`, "Idempotency-Key", "k-1") },
			want: `{"id":"k-1","deliveries":[{"id":"` + d1 + `","endpoint":"all","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "k-1", Type: "a", ContentType: "application/json", Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":1}`)},
			code: IntakeAccepted,
		},
		{
			name: "Idempotency-Key as the draft quotes it, beside the same id",
			r: func() *http.Request {
				return intakeJSON(`{"id":"k-1","type":"a","data":1}`, "Idempotency-Key", `"k-1"`)
			},
			want: `{"id":"k-1","deliveries":[{"id":"` + d1 + `","endpoint":"all","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "k-1", Type: "a", ContentType: "application/json", Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":1}`)},
			code: IntakeAccepted,
		},
		{
			name: "Idempotency-Key of a raw post",
			r: func() *http.Request {
				return intakePost("/v1/endpoints/all/events", "x", "Idempotency-Key", "k-1")
			},
			want: `{"id":"k-1","deliveries":[{"id":"` + d1 + `","endpoint":"all","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "k-1", ContentType: "application/octet-stream", Body: []byte("x")},
			code: IntakeAccepted,
		},
		{
			name: "a content type with a charset",
			r: func() *http.Request {
				return intakePost(eventsPath, `{"type":"a","data":"é"}`, "Content-Type", `application/JSON; charset="UTF-8"`)
			},
			want: `{"id":"evt_1","deliveries":[{"id":"` + d1 + `","endpoint":"all","state":"WAITING"}]}` + "\n",
			sent: Event{ID: "evt_1", Type: "a", ContentType: "application/json", Body: []byte(`{"type":"a","timestamp":"2000-01-01T00:00:00.000Z","data":"é"}`)},
			code: IntakeAccepted,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := &intakeOutbox{full: map[string]bool{"crowded": true}}
				var full []string
				in, counts := newTestIntake(o, func(c *IntakeConfig) { c.EndpointFull = func(id string) { full = append(full, id) } })
				w := serveIntake(in, tt.r())
				if w.Code != http.StatusAccepted || w.Body.String() != tt.want {
					t.Errorf("answer %d %s want %s", w.Code, w.Body, tt.want)
				}
				if got := w.Header().Get("Content-Type"); got != "application/json" {
					t.Errorf("content type %q", got)
				}
				events := o.accepted()
				if len(events) != 1 {
					t.Fatalf("%d events", len(events))
				}
				got := *events[0]
				if !got.Accepted.Equal(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) || got.Content == ([32]byte{}) {
					t.Errorf("accepted %v, content %x", got.Accepted, got.Content)
				}
				got = Event{ID: got.ID, Type: got.Type, Tenant: got.Tenant, ContentType: got.ContentType, Body: got.Body}
				if diff := cmp.Diff(tt.sent, got); diff != "" {
					t.Errorf("event (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(map[string]int{tt.code: 1}, counts.get()); diff != "" {
					t.Errorf("counted (-want +got):\n%s", diff)
				}
				if got, want := len(full), strings.Count(tt.want, "endpoint_full"); got != want {
					t.Errorf("%d full endpoints counted, want %d", got, want)
				}
			})
		})
	}
}

func TestIntakeRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	raw := func(pairs ...string) *http.Request { return intakePost("/v1/endpoints/all/events", "x", pairs...) }
	for _, tt := range []struct {
		name   string
		r      *http.Request
		status int
		code   string
	}{
		{"no JSON", intakeJSON(`{"type":"a","data":}`), 400, "invalid_json"},
		{"nothing", intakeJSON(``), 400, "invalid_json"},
		{"an array", intakeJSON(`[{"type":"a","data":1}]`), 400, "invalid_json"},
		{"a second event", intakeJSON(`{"type":"a","data":1}{"type":"a","data":1}`), 400, "invalid_json"},
		{"a byte order mark", intakeJSON("\ufeff" + `{"type":"a","data":1}`), 400, "invalid_json"},
		{"no UTF-8 in data", intakeJSON("{\"type\":\"a\",\"data\":\"\xff\"}"), 400, "invalid_json"},
		{"too deep", intakeJSON(`{"type":"a","data":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`), 400, "invalid_json"},
		{"a field twice", intakeJSON(`{"type":"a","type":"a","data":1}`), 400, "duplicate_key"},
		{"data twice", intakeJSON(`{"type":"a","data":1,"data":2}`), 400, "duplicate_key"},
		{"a field twice, once with an escape", intakeJSON(`{"type":"a","\u0064ata":1,"data":2}`), 400, "duplicate_key"},
		{"a field twice, once null", intakeJSON(`{"id":null,"type":"a","id":"x","data":2}`), 400, "duplicate_key"},
		{"an unknown field", intakeJSON(`{"type":"a","data":1,"datas":2}`), 400, "unknown_field"},
		{"a field in another case", intakeJSON(`{"Type":"a","data":1}`), 400, "unknown_field"},
		{"no type", intakeJSON(`{"data":1}`), 400, "invalid_event"},
		{"a null type", intakeJSON(`{"type":null,"data":1}`), 400, "invalid_event"},
		{"no data", intakeJSON(`{"type":"a"}`), 400, "invalid_event"},
		{"a number as id", intakeJSON(`{"id":7,"type":"a","data":1}`), 400, "invalid_event"},
		{"an object as tenant", intakeJSON(`{"tenant":{},"type":"a","data":1}`), 400, "invalid_event"},
		{"an empty id", intakeJSON(`{"id":"","type":"a","data":1}`), 400, "invalid_event"},
		{"an id with a full stop", intakeJSON(`{"id":"a.b","type":"a","data":1}`), 400, "invalid_event"},
		{"an id that is too long", intakeJSON(`{"id":"` + long + `","type":"a","data":1}`), 400, "invalid_event"},
		{"a type with an empty segment", intakeJSON(`{"type":"a..b","data":1}`), 400, "invalid_event"},
		{"a tenant with a slash", intakeJSON(`{"tenant":"a/b","type":"a","data":1}`), 400, "invalid_event"},
		{"id and Idempotency-Key differ", intakeJSON(`{"id":"a","type":"a","data":1}`, "Idempotency-Key", "b"), 400, "invalid_event"},
		{"Idempotency-Key twice", intakeJSON(`{"type":"a","data":1}`, "Idempotency-Key", "b", "Idempotency-Key", "b"), 400, "invalid_event"},
		{"an Idempotency-Key that can be no id", intakeJSON(`{"type":"a","data":1}`, "Idempotency-Key", "a b"), 400, "invalid_event"},
		{"an unknown endpoint", intakeJSON(`{"type":"a","endpoint":"nobody","data":1}`), 422, "unknown_endpoint"},
		{"an endpoint of another tenant", intakeJSON(`{"type":"a","endpoint":"theirs","tenant":"t2","data":1}`), 422, "tenant_mismatch"},
		{"an endpoint of a tenant, for an event without one", intakeJSON(`{"type":"a","endpoint":"theirs","data":1}`), 422, "tenant_mismatch"},
		{"an endpoint without a tenant, for an event with one", intakeJSON(`{"type":"a","endpoint":"all","tenant":"t1","data":1}`), 422, "tenant_mismatch"},
		{"no content type", intakePost(eventsPath, `{"type":"a","data":1}`), 415, "unsupported_media_type"},
		{"the content type of a form", intakePost(eventsPath, `{"type":"a","data":1}`, "Content-Type", "application/x-www-form-urlencoded"), 415, "unsupported_media_type"},
		{"JSON in another charset", intakePost(eventsPath, `{"type":"a","data":1}`, "Content-Type", "application/json; charset=latin1"), 415, "unsupported_media_type"},
		{"a content type that is none", intakePost(eventsPath, `{"type":"a","data":1}`, "Content-Type", "application/json; ;"), 415, "unsupported_media_type"},
		{"two content types", intakeJSON(`{"type":"a","data":1}`, "Content-Type", "text/plain"), 400, "invalid_event"},
		{"a compressed body", intakeJSON(`{"type":"a","data":1}`, "Content-Encoding", "gzip"), 415, "unsupported_media_type"},
		{"a compressed raw body: nobody would say so at the other end", raw("Content-Encoding", "br"), 415, "unsupported_media_type"},
		{"raw to an unknown endpoint", intakePost("/v1/endpoints/nobody/events", "x"), 404, "unknown_endpoint"},
		{"raw: a type with a blank", raw("Webhook-Type", "a b"), 400, "invalid_event"},
		{"raw: an id with a comma", raw("Webhook-Id", "a,b"), 400, "invalid_event"},
		{"raw: Webhook-Id twice", raw("Webhook-Id", "a", "Webhook-Id", "a"), 400, "invalid_event"},
		{"raw: Webhook-Id and Idempotency-Key differ", raw("Webhook-Id", "a", "Idempotency-Key", "b"), 400, "invalid_event"},
		{"raw: two content types", raw("Content-Type", "a/b", "Content-Type", "a/b"), 400, "invalid_event"},
		{"raw: a long content type", raw("Content-Type", long), 400, "invalid_event"},
		{"another path", intakePost("/v1/event", "{}"), 404, "not_found"},
		{"a path with a slash at its end", intakePost("/v1/events/", "{}"), 404, "not_found"},
		{"an endpoint without a name", intakePost("/v1/endpoints//events", "{}"), 404, "not_found"},
		{"an endpoint of two segments", intakePost("/v1/endpoints/a/b/events", "{}"), 404, "not_found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			in, counts := newTestIntake(o, nil)
			checkProblem(t, serveIntake(in, tt.r), tt.status, tt.code)
			if n := len(o.accepted()); n != 0 {
				t.Errorf("%d events accepted", n)
			}
			if diff := cmp.Diff(map[string]int{tt.code: 1}, counts.get()); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIntakeMethods(t *testing.T) {
	t.Parallel()
	for _, path := range []string{eventsPath, "/v1/endpoints/all/events"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			t.Run(method+" "+path, func(t *testing.T) {
				t.Parallel()
				in, _ := newTestIntake(new(intakeOutbox), nil)
				r := intakeJSON(`{"type":"a","data":1}`)
				r.Method, r.URL.Path = method, path
				w := serveIntake(in, r)
				if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
					t.Errorf("%d, Allow %q, want 405 and POST", w.Code, w.Header().Get("Allow"))
				}
			})
		}
	}
}

// Case 58: what is signed and sent is what was posted, byte for byte.
func TestIntakeKeepsBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, data string }{
		{"the order of keys", `{"b":1,"a":2}`},
		{"numbers as they are written", `[1.0,1e2,1E+2,-0,12345678901234567890123]`},
		{"an escape and the character itself", `"\u00e9é"`},
		{"duplicate keys", `{"a":1,"a":2}`},
		{"white space inside", "{ \"a\" :\t[ ] }"},
		{"half a surrogate pair", `"\ud83d"`},
		{"an escaped slash", `"\/"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			in, _ := newTestIntake(o, nil)
			if w := serveIntake(in, intakeJSON(`{"type":"a","data": `+tt.data+"\n}")); w.Code != http.StatusAccepted {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			_, data, ok := strings.Cut(string(o.accepted()[0].Body), `,"data":`)
			if !ok || data != tt.data+"}" {
				t.Errorf("data %q, want %q", data, tt.data)
			}
		})
	}
	for _, tt := range []struct{ name, body string }{
		{"a line end at the end", "{}\n"},
		{"a byte order mark", "\ufeff{}"},
		{"nothing", ""},
		{"every byte", allBytes()},
	} {
		t.Run("raw: "+tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			in, _ := newTestIntake(o, nil)
			if w := serveIntake(in, intakePost("/v1/endpoints/all/events", tt.body)); w.Code != http.StatusAccepted {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if got := string(o.accepted()[0].Body); got != tt.body {
				t.Errorf("body %q, want %q", got, tt.body)
			}
		})
	}
}

// allBytes is a text of every byte there is.
func allBytes() string {
	var b bytes.Buffer
	for c := range 256 {
		b.WriteByte(byte(c))
	}
	return b.String()
}

// Case 46 and the contract: the same again gets the same answer, something else under the same id a conflict.
func TestIntakeRepeats(t *testing.T) {
	t.Parallel()
	o := new(intakeOutbox)
	in, counts := newTestIntake(o, nil)
	const body = `{"id":"i","type":"invoice.paid","data":{"a":1}}`
	first := serveIntake(in, intakeJSON(body))
	if again := serveIntake(in, intakeJSON(body)); again.Code != http.StatusAccepted || again.Body.String() != first.Body.String() {
		t.Errorf("again: %d %s, want %s", again.Code, again.Body, first.Body)
	}
	if again := serveIntake(in, intakeJSON(`{"type":"invoice.paid","data":{"a":1}}`, "Idempotency-Key", "i")); again.Body.String() != first.Body.String() {
		t.Errorf("the key in place of the id: %d %s, want %s", again.Code, again.Body, first.Body)
	}
	for name, body := range map[string]string{
		"other data":          `{"id":"i","type":"invoice.paid","data":{"a":2}}`,
		"data in other bytes": `{"id":"i","type":"invoice.paid","data":{"a": 1}}`,
		"another type":        `{"id":"i","type":"invoice.sent","data":{"a":1}}`,
		"another endpoint":    `{"id":"i","type":"invoice.paid","endpoint":"acme","data":{"a":1}}`,
	} {
		checkProblemNamed(t, name, serveIntake(in, intakeJSON(body)), 409, "id_conflict")
	}
	if w := serveIntake(in, intakeJSON(`{"id":"i","tenant":"t1","type":"invoice.paid","data":{"a":2}}`)); w.Code != http.StatusAccepted {
		t.Errorf("the same id of another tenant: %d %s", w.Code, w.Body)
	}
	if diff := cmp.Diff(map[string]int{IntakeAccepted: 2, IntakeRepeated: 2, "id_conflict": 4}, counts.get()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// An event for an endpoint that the outbox could not be told of is refused for now: taken without it, it would be lost to
// that endpoint. Others are taken.
func TestIntakePendingEndpoint(t *testing.T) {
	t.Parallel()
	endpoints := NewEndpoints([]*Endpoint{{ID: "acme", EventTypes: []string{"invoice.*"}}, {ID: "theirs", Tenant: "t1"}})
	endpoints.pending = NewEndpoints([]*Endpoint{{ID: "new", EventTypes: []string{"invoice.paid", "user.*"}}})
	for _, tt := range []struct {
		name    string
		request *http.Request
		status  int
		code    string // of a problem
	}{
		{"it wants the type, and so does another", intakeJSON(`{"type":"invoice.paid","data":1}`), 503, "unavailable"},
		{"it alone wants the type", intakeJSON(`{"type":"user.new","data":1}`), 503, "unavailable"},
		{"it is named", intakeJSON(`{"type":"x","endpoint":"new","data":1}`), 503, "unavailable"},
		{"it is named in the path", intakePost("/v1/endpoints/new/events", "x", "Content-Type", "text/plain"), 503, "unavailable"},
		{"another type", intakeJSON(`{"type":"invoice.sent","data":1}`), 202, ""},
		{"another tenant", intakeJSON(`{"type":"invoice.paid","tenant":"t1","data":1}`), 202, ""},
		{"another endpoint is named", intakeJSON(`{"type":"invoice.paid","endpoint":"acme","data":1}`), 202, ""},
		{"one that is none is named", intakeJSON(`{"type":"x","endpoint":"nobody","data":1}`), 422, "unknown_endpoint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			in, _ := newTestIntake(o, func(c *IntakeConfig) { c.Endpoints = func() *Endpoints { return endpoints } })
			w := serveIntake(in, tt.request)
			if tt.code != "" {
				checkProblem(t, w, tt.status, tt.code)
			} else if w.Code != tt.status {
				t.Errorf("%d %s, want %d", w.Code, w.Body, tt.status)
			}
			if retry := w.Header().Get("Retry-After"); (retry != "") != (tt.status == 503) {
				t.Errorf("%d with Retry-After %q", w.Code, retry)
			}
		})
	}
}
