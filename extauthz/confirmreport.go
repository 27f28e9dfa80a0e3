package extauthz

import "strings"

// Response code details that decide (Envoy, source/common/stream_info/utility.h).
const (
	// detailsUpstream: the answer is the app's own, whole. Every other text names an answer or an end that Envoy made.
	detailsUpstream = "via_upstream"
	// detailsDenied: an ext_authz filter answered. With ours it was no pass, so there is nothing to confirm.
	detailsDenied = "ext_authz_denied"
)

// channel is the way on which Envoy told us how a request ended. The zero value is invalid.
type channel uint8

const (
	_ channel = iota
	channelAccessLog
	channelExtProc
	channelCount
)

// String is the metric label and log value.
func (c channel) String() string {
	switch c {
	case channelAccessLog:
		return "access_log"
	case channelExtProc:
		return "ext_proc"
	default:
		return "invalid"
	}
}

// report is what Envoy tells of a request that the gate let through.
type report struct {
	code     uint32 // HTTP status; 0: the sender saw none
	details  string // response_code_details; empty: not told
	attempts uint32 // requests that Envoy made to the app, retries and hedges included
}

// end judges r. It is false where r says nothing about a claim. A status alone proves nothing: an answer that breaks
// off after its headers, and answers that Envoy makes, carry 200 too. After retries the last answer decides.
func (r report) end() (End, bool) {
	upstream := r.details == detailsUpstream
	switch {
	case r.details == detailsDenied:
		return 0, false
	case upstream && r.attempts > 0 && r.code >= 200 && r.code < 300:
		return EndDone, true
	case upstream && r.attempts > 0 && r.code >= 300 && r.code < 600:
		return EndReleased, true
	case !upstream && r.details != "" && r.attempts == 0, r.attempts == 1 && unsent(r.details):
		return EndReleased, true
	default:
		return EndUnknown, true
	}
}

// unsent reports whether details says that the one attempt which Envoy counts never got as far as a connection to the
// app: no endpoint, the circuit breaker open, or nobody listening. After a retry it says so of the last attempt only.
func unsent(details string) bool {
	if details == "no_healthy_upstream" {
		return true
	}
	reason, ok := strings.CutPrefix(details, "upstream_reset_before_response_started{")
	return ok && (strings.HasPrefix(reason, "remote_connection_failure") || strings.HasPrefix(reason, "local_connection_failure") ||
		strings.HasPrefix(reason, "overflow"))
}
