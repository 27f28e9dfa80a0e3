package extauthz

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sidehook/sidehook/internal/signature"
)

// TestOutcomes walks every reason: what the sender sees is what the users of the gate were promised.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	const pass = 0
	want := map[Reason]struct {
		code   string
		status int
	}{
		ReasonPassed:             {"", pass},
		ReasonUnclaimed:          {"", pass},
		ReasonUnverified:         {"", pass},
		ReasonReported:           {"", pass},
		ReasonOpen:               {"", pass},
		ReasonDuplicate:          {"duplicate", 200},
		ReasonIgnored:            {"ignored", 200},
		ReasonStale:              {"stale", 200},
		ReasonDuplicateChange:    {"duplicate_change", 200},
		ReasonStored:             {"stored", 200},
		ReasonInFlight:           {"in_flight", 503},
		ReasonHeld:               {"held", 503},
		ReasonHandshake:          {"", 200},
		ReasonMissingSignature:   {"missing_signature", 401},
		ReasonBadSignature:       {"bad_signature", 401},
		ReasonMalformedSignature: {"malformed_signature", 401},
		ReasonTooOld:             {"too_old", 401},
		ReasonTooNew:             {"too_new", 401},
		ReasonBadTimestamp:       {"bad_timestamp", 401},
		ReasonWrongScheme:        {"wrong_scheme", 401},
		ReasonMissingID:          {"missing_id", 400},
		ReasonUnknownTenant:      {"unknown_tenant", 401},
		ReasonUnmatched:          {"unmatched", 403},
		ReasonUnknownSource:      {"unknown_source", 500},
		ReasonAmbiguousPath:      {"ambiguous_path", 400},
		ReasonLoop:               {"loop", 508},
		ReasonBodyNotForwarded:   {"body_not_forwarded", 500},
		ReasonUpgradeRefused:     {"upgrade_refused", 400},
		ReasonTooLarge:           {"too_large", 413},
		ReasonPaused:             {"unavailable", 503},
		ReasonBusy:               {"busy", 503},
		ReasonUnavailable:        {"unavailable", 503},
		ReasonKeyUnavailable:     {"key_unavailable", 503},
		ReasonFull:               {"unavailable", 503},
		ReasonCancelled:          {"unavailable", 503},
		ReasonInternal:           {"unavailable", 503},
	}
	if len(want) != int(reasonCount)-1 {
		t.Errorf("%d reasons are checked, there are %d", len(want), reasonCount-1)
	}
	labels := make(map[string]Reason)
	for r := Reason(1); r < reasonCount; r++ {
		w := want[r]
		label := r.String()
		if label == "" || label == "invalid" {
			t.Errorf("reason %d has no label", r)
		}
		if other, taken := labels[label]; taken {
			t.Errorf("%q is the label of %d and %d", label, other, r)
		}
		labels[label] = r

		d := decision{reason: r}
		d.answer()
		if d.pass() != (w.status == pass) || d.status != w.status {
			t.Errorf("%s: pass %v, status %d; want status %d", label, d.pass(), d.status, w.status)
		}
		if w.code == "" {
			if d.body != "" {
				t.Errorf("%s: body %q, want none", label, d.body)
			}
		} else {
			var body map[string]string
			if err := json.Unmarshal([]byte(d.body), &body); err != nil || len(body) != 1 || body["status"] != w.code {
				t.Errorf("%s: body %q, want status %q", label, d.body, w.code)
			}
			if d.contentType != "application/json" || len(d.body) >= 200 {
				t.Errorf("%s: %s of %d bytes", label, d.contentType, len(d.body))
			}
		}
		// 503 asks the sender to come again; what it did wrong, or the mesh does, is the same in a second.
		// In flight and held: the inbox says when.
		if inbox := r == ReasonInFlight; !inbox && (d.retry > 0) != (d.status == 503) {
			t.Errorf("%s: Retry-After %v with status %d", label, d.retry, d.status)
		}
		if o := outcomes[r]; o.pass && o.level > slog.LevelInfo {
			t.Errorf("%s: a pass is logged at %v", label, o.level)
		}
		code := codes.Code(d.response().GetStatus().GetCode())
		if wantCode := map[bool]codes.Code{true: codes.OK, false: codes.PermissionDenied}[d.pass()]; code != wantCode {
			t.Errorf("%s: code %v, want %v", label, code, wantCode)
		}
	}
	for _, r := range []Reason{0, reasonCount, 255} {
		if r.String() != "invalid" {
			t.Errorf("Reason(%d) = %q", r, r)
		}
		d := decision{reason: r, set: headerValues{{headerSource, "x"}}}
		d.answer()
		if d.pass() || d.reason != ReasonInternal || d.status != http.StatusServiceUnavailable {
			t.Errorf("Reason(%d): pass %v, reason %v, status %d", r, d.pass(), d.reason, d.status)
		}
	}
}

// A verdict keeps its name on the way to the sender, and one that nobody knows is no pass and no refusal.
func TestRefusalOf(t *testing.T) {
	t.Parallel()
	want := map[signature.Reason]Reason{
		signature.ReasonMissingSignature:   ReasonMissingSignature,
		signature.ReasonBadSignature:       ReasonBadSignature,
		signature.ReasonMalformedSignature: ReasonMalformedSignature,
		signature.ReasonTooOld:             ReasonTooOld,
		signature.ReasonTooNew:             ReasonTooNew,
		signature.ReasonBadTimestamp:       ReasonBadTimestamp,
		signature.ReasonWrongScheme:        ReasonWrongScheme,
		signature.ReasonMissingID:          ReasonMissingID,
		signature.ReasonTooLarge:           ReasonTooLarge,
		signature.ReasonKeyUnavailable:     ReasonKeyUnavailable,
	}
	for r := range 256 {
		w, ok := want[signature.Reason(r)]
		if !ok {
			w = ReasonInternal
		}
		if got := refusalOf(signature.Reason(r)); got != w {
			t.Errorf("refusalOf(%d) = %v, want %v", r, got, w)
		}
	}
}

func TestAnswerWithoutBody(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		d := decision{reason: ReasonDuplicate, status: status}
		d.answer()
		if d.body != "" || d.status != status {
			t.Errorf("status %d with body %q", d.status, d.body)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Millisecond:                  "1",
		time.Second:                       "1",
		time.Second + 1:                   "2",
		59*time.Second + time.Millisecond: "60",
		time.Hour:                         "3600",
	} {
		if got := retryAfter(d); got != want {
			t.Errorf("retryAfter(%v) = %s, want %s", d, got, want)
		}
	}
}

// The status that a provider wants for a bad signature is not that of a body too large, or of a fault of ours.
func TestRefusalStatusIsForSignatures(t *testing.T) {
	t.Parallel()
	b := bound{source: &Source{RefusalStatus: 404}}
	for r := range reasonCount {
		want := 0
		switch r {
		case ReasonMissingSignature, ReasonBadSignature, ReasonMalformedSignature, ReasonTooOld, ReasonTooNew, ReasonBadTimestamp, ReasonWrongScheme:
			want = 404
		}
		if d := b.refuse(r); d.status != want {
			t.Errorf("%v is answered with %d, want %d", r, d.status, want)
		}
	}
}
