package egress

import "testing"

// TestOutcomeRules walks every outcome: what follows from it is what the senders of webhooks were promised.
func TestOutcomeRules(t *testing.T) {
	t.Parallel()
	type promise struct{ success, counts, holds, disables, ends, now bool }
	var (
		retried = promise{counts: true}              // like the rest, an attempt is used up
		held    = promise{counts: true, holds: true} // 429, 502, 503, 504, and no connection at all
		notHers = promise{holds: true}               // before the customer's server: uses no attempt
	)
	want := map[Outcome]promise{
		OutcomeDelivered:        {success: true},
		OutcomeRedirect:         retried,
		OutcomeRejected:         retried,
		OutcomeGone:             {counts: true, disables: true},
		OutcomeThrottled:        held,
		OutcomeServerError:      retried,
		OutcomeUnavailable:      held,
		OutcomeDisableAsked:     {counts: true, disables: true},
		OutcomeAbortAsked:       {counts: true, ends: true},
		OutcomeBadAnswer:        retried,
		OutcomeHeaderTooLarge:   retried,
		OutcomeNoSuchHost:       held,
		OutcomeAddressRefused:   held,
		OutcomeConnectRefused:   held,
		OutcomeConnectTimeout:   held,
		OutcomeUnreachable:      held,
		OutcomeConnectionReset:  retried,
		OutcomeConnectionClosed: retried,
		OutcomeTLSVerify:        held,
		OutcomeTLSVersion:       held,
		OutcomeTLSHandshake:     held,
		OutcomeTimeoutHeaders:   retried,
		OutcomeTimeoutBody:      retried,
		OutcomeResolverFailed:   notHers,
		OutcomeProxyFailed:      notHers,
		OutcomeMeshReset:        notHers,
		OutcomeStaleConnection:  {now: true},
		OutcomeInterrupted:      {},
		OutcomeInternal:         {},
	}
	if len(want) != len(Outcomes()) {
		t.Errorf("%d outcomes are checked, there are %d", len(want), len(Outcomes()))
	}
	names := make(map[string]Outcome)
	for _, o := range Outcomes() {
		r := o.rule()
		if got := (promise{r.Success, r.Counts, r.Holds, r.Disables, r.EndsDelivery, r.RetryNow}); got != want[o] {
			t.Errorf("%s: %+v, want %+v", o, got, want[o])
		}
		name := o.String()
		if other, taken := names[name]; taken || name == "" || name == "invalid" {
			t.Errorf("%q is the name of %d and %d", name, other, o)
		}
		names[name] = o
		if back, ok := ParseOutcome(name); !ok || back != o {
			t.Errorf("ParseOutcome(%q) = %d, %v; want %d", name, back, ok, o)
		}
	}
	for _, o := range []Outcome{0, outcomes, 255} {
		if o.String() != "invalid" || o.rule() != OutcomeInternal.rule() {
			t.Errorf("outcome %d is %q and means %+v; want invalid, as a fault of ours", o, o, o.rule())
		}
	}
	for _, name := range []string{"", "invalid", "Delivered"} {
		if o, ok := ParseOutcome(name); ok {
			t.Errorf("ParseOutcome(%q) = %s, want none", name, o)
		}
	}
}
