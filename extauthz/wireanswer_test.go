package extauthz

import (
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// Every decision is the same message on the wire as by the generated code.
func TestWireAnswerAgrees(t *testing.T) {
	t.Parallel()
	pass := decision{
		reason: ReasonPassed, ref: testRef("evt_1"),
		set:    headerValues{{headerSource, "payments"}, {headerEventID, "evt_1"}, {headerEventType, ""}},
		remove: []string{"x-sidehook-report", "x_sidehook_source", ""},
	}
	rows := map[string]decision{
		"pass":           pass,
		"report":         {reason: ReasonReported, set: headerValues{1: {headerReport, "bad_signature"}}},
		"open":           {reason: ReasonOpen},
		"own reply":      {reason: ReasonDuplicate, status: 202, contentType: "text/xml", body: "<ok/>"},
		"bodyless reply": {reason: ReasonDuplicate, status: 204},
		"handshake":      {reason: ReasonHandshake, contentType: contentTypeText, body: strings.Repeat("c", 300), nosniff: true},
		"in flight":      {reason: ReasonInFlight, retry: 41500 * time.Millisecond},
		"invalid":        {},
	}
	for r := Reason(1); r < reasonCount; r++ {
		rows["reason "+r.String()] = decision{reason: r}
	}
	for name, d := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.answer()
			compareAnswers(t, &d)
		})
	}
}

func compareAnswers(t *testing.T, d *decision) {
	t.Helper()
	want, wantErr := proto.Marshal(d.response())
	got, err := d.encode()
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("encode: %v; the generated code: %v", err, wantErr)
	}
	if err != nil {
		return
	}
	if len(got) != len(want) || len(got) != cap(got) {
		t.Errorf("%d bytes in %d, want %d", len(got), cap(got), len(want))
	}
	var decoded authv3.CheckResponse
	if err := proto.Unmarshal(got, &decoded); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&decoded, d.response(), protocmp.Transform()); diff != "" {
		t.Errorf("answer (-lean +generated):\n%s", diff)
	}
}

func FuzzWireAnswer(f *testing.F) {
	f.Add(uint8(ReasonPassed), 0, "", "", int64(0), "payments", "evt_1", "x_sidehook_source", testRef("evt_1"))
	f.Add(uint8(ReasonDuplicate), 202, "text/plain", "thanks", int64(time.Minute), "", "", "", "")
	f.Add(uint8(ReasonHandshake), 200, "text/plain", "\xff", int64(1), "a", "\xff", "", "")
	f.Fuzz(func(t *testing.T, reason uint8, status int, contentType, body string, retry int64, source, event, remove, ref string) {
		d := decision{
			reason: Reason(reason), status: status, contentType: contentType, body: body, retry: time.Duration(retry), nosniff: retry%2 == 0, ref: ref,
			set: headerValues{{headerSource, source}, {headerEventID, event}},
		}
		if remove != "" {
			d.remove = []string{remove, "x-sidehook-b"}
		}
		d.answer()
		if d.status != int(int32(d.status)) || d.retry < 0 {
			return // no decision has such
		}
		compareAnswers(t, &d)
	})
}

// A string that Envoy could not read would make it take the answer for none: it must fail here.
func TestWireAnswerRefusesBadText(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]decision{
		"body":      {reason: ReasonHandshake, body: "\xff"},
		"header":    {reason: ReasonPassed, set: headerValues{{headerEventID, "\xff"}}},
		"removed":   {reason: ReasonPassed, remove: []string{"x-sidehook-\xff"}},
		"reference": {reason: ReasonPassed, ref: "\xff"},
	} {
		d.answer()
		if _, err := d.encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}
