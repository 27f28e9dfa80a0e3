package egress

import "log/slog"

// Outcome is how one attempt ended. It is the error class in the attempt log, in metrics and in notices. The zero value
// is invalid.
type Outcome uint8

const (
	_ Outcome = iota
	// OutcomeDelivered: 200 to 299.
	OutcomeDelivered
	// The receiver answered, and not with 2xx.
	OutcomeRedirect       // 3xx; never followed
	OutcomeRejected       // 4xx but for those below
	OutcomeGone           // 410
	OutcomeThrottled      // 429
	OutcomeServerError    // 5xx but for those below
	OutcomeUnavailable    // 502, 503, 504
	OutcomeDisableAsked   // webhook-delivery: disable, with any status
	OutcomeAbortAsked     // webhook-delivery: abort-message, with any status
	OutcomeBadAnswer      // no HTTP, or HTTP that breaks its rules
	OutcomeHeaderTooLarge // more header than is read
	// The receiver could not be spoken to.
	OutcomeNoSuchHost     // NXDOMAIN, or a name without addresses
	OutcomeAddressRefused // by the address filter: the name, or an address of it
	OutcomeConnectRefused
	OutcomeConnectTimeout // no connection within the time limit
	OutcomeUnreachable    // no route, host or network unreachable
	OutcomeConnectionReset
	OutcomeConnectionClosed // before the answer was whole
	OutcomeTLSVerify        // the certificate is not one for this host that we trust
	OutcomeTLSVersion       // no common protocol version
	OutcomeTLSHandshake     // any other failure of the handshake
	OutcomeTimeoutHeaders   // connected, and no header of an answer within the time limit
	OutcomeTimeoutBody      // the answer's body did not end within the time limit
	// The fault is before the receiver: these use no attempt.
	OutcomeResolverFailed  // the resolver gave no answer, or SERVFAIL
	OutcomeProxyFailed     // our own forward proxy: not reached, refused us, or its certificate is wrong
	OutcomeMeshReset       // the connection was made and reset before the receiver said a byte: the mesh's own proxy
	OutcomeStaleConnection // a kept connection ended under the request before a byte of an answer
	OutcomeInterrupted     // cut off by us: the process stopped or was killed
	OutcomeInternal        // a fault of ours: the event or the key could not be read
	outcomes               // their number
)

// rule is what an Outcome means to everybody who is told: the delivery, its endpoint, metric, log.
type rule struct {
	// name is the metric label, the API's reason and the log's outcome.
	name string
	// Success: the delivery is DELIVERED. Where the answer also asked for something, its status says whether it is.
	Success bool
	// Counts: it uses up one of the schedule's attempts, and the endpoint is failing.
	Counts bool
	// Holds: the next delivery would end the same way, so the endpoint is held as a whole and probed. This is 429, 502,
	// 503, 504 and every way in which no connection fit for a request came about. A connection that broke under a
	// request may be that request's doing, and holds nobody else up.
	Holds bool
	// Disables the endpoint (410 only where Policy.OnGone says so).
	Disables bool
	// EndsDelivery: it is a dead letter at once.
	EndsDelivery bool
	// RetryNow: tried again at once. That is done once; a second time in a row it is a failure like any other.
	RetryNow bool
	// Slow: it held its slot for the whole time limit, so the endpoint gets fewer of them.
	Slow bool
	// level of the attempt's log line. Successes are at debug: at info they would be the loudest thing in the pod.
	level slog.Level
}

// rules is the one table from Outcome to what follows.
var rules = [outcomes]rule{
	OutcomeDelivered: {name: "delivered", Success: true, level: slog.LevelDebug},

	OutcomeRedirect:       {name: "redirect", Counts: true},
	OutcomeRejected:       {name: "rejected", Counts: true},
	OutcomeGone:           {name: "gone", Counts: true, Disables: true},
	OutcomeThrottled:      {name: "throttled", Counts: true, Holds: true},
	OutcomeServerError:    {name: "server_error", Counts: true},
	OutcomeUnavailable:    {name: "unavailable", Counts: true, Holds: true},
	OutcomeDisableAsked:   {name: "disable_asked", Counts: true, Disables: true},
	OutcomeAbortAsked:     {name: "abort_asked", Counts: true, EndsDelivery: true},
	OutcomeBadAnswer:      {name: "bad_answer", Counts: true},
	OutcomeHeaderTooLarge: {name: "response_header_too_large", Counts: true},

	OutcomeNoSuchHost:       {name: "no_such_host", Counts: true, Holds: true},
	OutcomeAddressRefused:   {name: "address_refused", Counts: true, Holds: true},
	OutcomeConnectRefused:   {name: "connect_refused", Counts: true, Holds: true},
	OutcomeConnectTimeout:   {name: "connect_timeout", Counts: true, Holds: true, Slow: true},
	OutcomeUnreachable:      {name: "unreachable", Counts: true, Holds: true},
	OutcomeConnectionReset:  {name: "conn_reset", Counts: true},
	OutcomeConnectionClosed: {name: "conn_closed", Counts: true},
	OutcomeTLSVerify:        {name: "tls_verify", Counts: true, Holds: true},
	OutcomeTLSVersion:       {name: "tls_version", Counts: true, Holds: true},
	OutcomeTLSHandshake:     {name: "tls_handshake", Counts: true, Holds: true},
	OutcomeTimeoutHeaders:   {name: "timeout_headers", Counts: true, Slow: true},
	OutcomeTimeoutBody:      {name: "timeout_body", Counts: true, Slow: true},

	OutcomeResolverFailed:  {name: "resolver_failed", Holds: true, level: slog.LevelWarn},
	OutcomeProxyFailed:     {name: "proxy_failed", Holds: true, level: slog.LevelWarn},
	OutcomeMeshReset:       {name: "mesh_reset", Holds: true, level: slog.LevelWarn},
	OutcomeStaleConnection: {name: "stale_connection", RetryNow: true, level: slog.LevelDebug},
	OutcomeInterrupted:     {name: "interrupted"},
	OutcomeInternal:        {name: "internal", level: slog.LevelError},
}

// rule returns what o means; a value outside the enum is a fault of ours.
func (o Outcome) rule() *rule {
	if o == 0 || o >= outcomes {
		o = OutcomeInternal
	}
	return &rules[o]
}

// String returns the metric label, "invalid" for a value outside the enum.
func (o Outcome) String() string {
	if o == 0 || o >= outcomes {
		return "invalid"
	}
	return rules[o].name
}

// ParseOutcome is the other way round of String.
func ParseOutcome(name string) (Outcome, bool) {
	for o := Outcome(1); o < outcomes; o++ {
		if rules[o].name == name {
			return o, true
		}
	}
	return 0, false
}

// Outcomes returns all of them in their order.
func Outcomes() []Outcome {
	all := make([]Outcome, 0, outcomes-1)
	for o := Outcome(1); o < outcomes; o++ {
		all = append(all, o)
	}
	return all
}
