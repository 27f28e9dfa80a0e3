package extauthz

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// Waits that Retry-After asks for. Providers that read it come back that soon; the others follow their own schedule.
const (
	retryUnavailable = 5 * time.Second // a full disk or a slow one takes seconds to recover, not milliseconds
	retryBusy        = time.Second     // bodies in flight drain within one Check
	retryPaused      = time.Minute     // a person paused the source
	retryHeld        = time.Minute     // a person, or a late success, settles it
	retryKey         = time.Minute     // a person gives us the key
)

// Reason says how a Check ended: one value for each row of the gate's answers. The zero Reason is invalid.
type Reason uint8

// Reasons to let a request through.
const (
	_ Reason = iota
	// ReasonPassed is a verified, new event: its claim is on disk.
	ReasonPassed
	// ReasonUnclaimed is a verified request of a scheme without event ids: every one is new, nothing is claimed.
	ReasonUnclaimed
	// ReasonUnverified is a request on a source with verify: none.
	ReasonUnverified
	// ReasonReported is a request on a source that only reports; what it would have been is counted beside it.
	ReasonReported
	// ReasonOpen is a request on a route that needs no signature.
	ReasonOpen
)

// Reasons to answer for the app.
const (
	// ReasonStored is a verified, new event of a source in STORE: it is on disk.
	ReasonStored Reason = iota + ReasonOpen + 1
	ReasonDuplicate
	// ReasonIgnored is a verified event that the source's types leave out, or of the sender's test mode where the source is live
	// only. Its id, if it has one, is kept.
	ReasonIgnored
	// ReasonStale is a verified event that is older than what the app has of its object; its id is kept.
	ReasonStale
	// ReasonDuplicateChange is a verified event of a change that the app has by another event; its id is kept.
	ReasonDuplicateChange
	ReasonInFlight
	ReasonHeld
	ReasonHandshake
	ReasonMissingSignature
	ReasonBadSignature
	ReasonMalformedSignature
	ReasonTooOld
	ReasonTooNew
	ReasonBadTimestamp
	ReasonWrongScheme
	ReasonMissingID
	// ReasonUnknownTenant: nobody has given us a secret of the tenant that the path names, or the message names another one.
	ReasonUnknownTenant
	ReasonUnmatched
	ReasonUnknownSource
	ReasonAmbiguousPath
	// ReasonLoop is a delivery of a stored event, ours or another sidehook's, that came to a gate instead of the app.
	ReasonLoop
	ReasonBodyNotForwarded
	ReasonUpgradeRefused
	ReasonTooLarge
	ReasonPaused
	ReasonBusy
	ReasonUnavailable
	// ReasonKeyUnavailable: the sender's key is one that we do not have. It may be a new one; the sender shall retry.
	ReasonKeyUnavailable
	ReasonFull
	// ReasonCancelled: Envoy hung up before we could answer. Nobody reads the answer; it never allows.
	ReasonCancelled
	// ReasonInternal is a fault of ours, a panic included. The sender shall retry.
	ReasonInternal

	reasonCount
)

// outcome is what a Reason means to everybody who is told: sender, metric, log.
type outcome struct {
	// label is the metric's and the log's reason.
	label string
	// code is the status word in the body; empty where the request passes or the answer is the provider's own.
	code string
	// http is the status of the answer; zero where the request passes or the source says it.
	http int
	// level of the Check's log line. Passes are at debug: at info they would be the loudest thing in the pod.
	level slog.Level
	// retry is the Retry-After of the answer; zero: none, or what the inbox said.
	retry time.Duration
	// pass lets the request through to the app.
	pass bool
}

// outcomes is the one table from Reason to answer, label and level.
var outcomes = [reasonCount]outcome{
	ReasonPassed:     {label: "passed", level: slog.LevelDebug, pass: true},
	ReasonUnclaimed:  {label: "unclaimed", level: slog.LevelDebug, pass: true},
	ReasonUnverified: {label: "unverified", level: slog.LevelDebug, pass: true},
	ReasonReported:   {label: "reported", level: slog.LevelInfo, pass: true},
	ReasonOpen:       {label: "open", level: slog.LevelDebug, pass: true},

	ReasonStored:    {label: "stored", code: "stored", http: http.StatusOK, level: slog.LevelDebug},
	ReasonDuplicate: {label: "duplicate", code: "duplicate", http: http.StatusOK, level: slog.LevelInfo},
	ReasonIgnored:   {label: "ignored", code: "ignored", http: http.StatusOK, level: slog.LevelInfo},
	ReasonStale:     {label: "stale", code: "stale", http: http.StatusOK, level: slog.LevelInfo},

	ReasonDuplicateChange: {label: "duplicate_change", code: "duplicate_change", http: http.StatusOK, level: slog.LevelInfo},

	ReasonInFlight:  {label: "in_flight", code: "in_flight", http: http.StatusServiceUnavailable, level: slog.LevelInfo},
	ReasonHeld:      {label: "held", code: "held", http: http.StatusServiceUnavailable, level: slog.LevelInfo, retry: retryHeld},
	ReasonHandshake: {label: "handshake", http: http.StatusOK, level: slog.LevelInfo},

	ReasonMissingSignature:   {label: "missing_signature", code: "missing_signature", http: http.StatusUnauthorized, level: slog.LevelInfo},
	ReasonBadSignature:       {label: "bad_signature", code: "bad_signature", http: http.StatusUnauthorized, level: slog.LevelInfo},
	ReasonMalformedSignature: {label: "malformed_signature", code: "malformed_signature", http: http.StatusUnauthorized, level: slog.LevelInfo},
	ReasonTooOld:             {label: "too_old", code: "too_old", http: http.StatusUnauthorized, level: slog.LevelInfo},
	ReasonTooNew:             {label: "too_new", code: "too_new", http: http.StatusUnauthorized, level: slog.LevelInfo},
	ReasonBadTimestamp:       {label: "bad_timestamp", code: "bad_timestamp", http: http.StatusUnauthorized, level: slog.LevelInfo},
	ReasonWrongScheme:        {label: "wrong_scheme", code: "wrong_scheme", http: http.StatusUnauthorized, level: slog.LevelInfo},
	ReasonMissingID:          {label: "missing_id", code: "missing_id", http: http.StatusBadRequest, level: slog.LevelInfo},

	ReasonUnknownTenant:    {label: "unknown_tenant", code: "unknown_tenant", http: http.StatusUnauthorized, level: slog.LevelInfo},
	ReasonUnmatched:        {label: "unmatched", code: "unmatched", http: http.StatusForbidden, level: slog.LevelInfo},
	ReasonUnknownSource:    {label: "unknown_source", code: "unknown_source", http: http.StatusInternalServerError, level: slog.LevelError},
	ReasonAmbiguousPath:    {label: "ambiguous_path", code: "ambiguous_path", http: http.StatusBadRequest, level: slog.LevelInfo},
	ReasonLoop:             {label: "loop", code: "loop", http: http.StatusLoopDetected, level: slog.LevelError},
	ReasonBodyNotForwarded: {label: "body_not_forwarded", code: "body_not_forwarded", http: http.StatusInternalServerError, level: slog.LevelInfo},
	ReasonUpgradeRefused:   {label: "upgrade_refused", code: "upgrade_refused", http: http.StatusBadRequest, level: slog.LevelInfo},
	ReasonTooLarge:         {label: "too_large", code: "too_large", http: http.StatusRequestEntityTooLarge, level: slog.LevelInfo},

	ReasonPaused:         {label: "paused", code: "unavailable", http: http.StatusServiceUnavailable, level: slog.LevelInfo, retry: retryPaused},
	ReasonBusy:           {label: "busy", code: "busy", http: http.StatusServiceUnavailable, level: slog.LevelWarn, retry: retryBusy},
	ReasonUnavailable:    {label: "unavailable", code: "unavailable", http: http.StatusServiceUnavailable, level: slog.LevelError, retry: retryUnavailable},
	ReasonKeyUnavailable: {label: "key_unavailable", code: "key_unavailable", http: http.StatusServiceUnavailable, level: slog.LevelWarn, retry: retryKey},
	ReasonFull:           {label: "full", code: "unavailable", http: http.StatusServiceUnavailable, level: slog.LevelError, retry: retryUnavailable},
	ReasonCancelled:      {label: "cancelled", code: "unavailable", http: http.StatusServiceUnavailable, level: slog.LevelInfo, retry: retryUnavailable},
	ReasonInternal:       {label: "internal", code: "unavailable", http: http.StatusServiceUnavailable, level: slog.LevelError, retry: retryUnavailable},
}

// String returns the reason's metric label, "invalid" for a value outside the enum.
func (r Reason) String() string {
	if r == 0 || r >= reasonCount {
		return "invalid"
	}
	return outcomes[r].label
}

// refusalOf maps a verdict that is no success to the gate's reason. A verdict outside the enum is a fault of ours.
func refusalOf(r signature.Reason) Reason {
	switch r {
	case signature.ReasonMissingSignature:
		return ReasonMissingSignature
	case signature.ReasonBadSignature:
		return ReasonBadSignature
	case signature.ReasonMalformedSignature:
		return ReasonMalformedSignature
	case signature.ReasonTooOld:
		return ReasonTooOld
	case signature.ReasonTooNew:
		return ReasonTooNew
	case signature.ReasonBadTimestamp:
		return ReasonBadTimestamp
	case signature.ReasonWrongScheme:
		return ReasonWrongScheme
	case signature.ReasonMissingID:
		return ReasonMissingID
	case signature.ReasonTooLarge:
		return ReasonTooLarge
	case signature.ReasonKeyUnavailable:
		return ReasonKeyUnavailable
	default:
		return ReasonInternal
	}
}

// refusesSignature reports whether r is a refusal for which a provider may want a status of its own.
func (r Reason) refusesSignature() bool { return r >= ReasonMissingSignature && r <= ReasonWrongScheme }

// decision is the end of one Check in plain terms: what Envoy is told, what is counted and what is logged.
// It is a value: the zero decision is invalid and answers as ReasonInternal.
type decision struct {
	reason Reason
	// in is the source that decided; nil: none did.
	in *bound
	// would is what a source that only reports would have said; zero elsewhere and where it would have passed.
	would Reason

	// The answer, where the request does not pass. A zero status means the table's, an empty contentType JSON.
	status      int
	contentType string
	body        string
	nosniff     bool
	retry       time.Duration

	// What a request that passes gets: our headers, the names that it loses, and the reference for the confirm. The
	// answer to a handshake has its headers in set too.
	set    headerValues
	remove []string
	ref    string

	// What the log line says beside.
	tenant    string
	event     string
	eventType string
	// unversioned: the source compares versions, and the event tells none that can be read.
	unversioned bool
	setting     setting
	err         error
}

// headerValue is a header that a passing request gets in place of any that the client sent; no name: none.
type headerValue struct{ name, value string }

// headerValues are those of one decision.
type headerValues [5]headerValue

// pass reports whether the request goes to the app.
func (d *decision) pass() bool { return d.reason < reasonCount && outcomes[d.reason].pass }

// answer completes d from the table: status, content type, body and Retry-After of what does not pass.
func (d *decision) answer() {
	if d.reason == 0 || d.reason >= reasonCount {
		*d = decision{reason: ReasonInternal, err: d.err}
	}
	o := &outcomes[d.reason]
	if o.pass {
		return
	}
	if d.status == 0 {
		d.status = o.http
	}
	if d.retry == 0 {
		d.retry = o.retry
	}
	if d.contentType == "" {
		d.contentType = contentTypeJSON
		if d.body == "" && o.code != "" {
			d.body = answerBodies[d.reason]
		}
	}
	if bodyless(d.status) {
		d.body = ""
	}
}

const (
	contentTypeJSON = "application/json"
	contentTypeText = "text/plain"
)

// answerBodies holds {"status":"<code>"} for each reason: far below what any max_denied_response_body_bytes cuts.
var answerBodies = func() (b [reasonCount]string) {
	for i, o := range outcomes {
		if o.code != "" {
			b[i] = `{"status":"` + o.code + `"}`
		}
	}
	return b
}()

// bodyless reports whether HTTP forbids a body with status: Envoy would send one all the same.
func bodyless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}
