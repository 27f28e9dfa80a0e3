package extauthz

import (
	"slices"
	"time"

	"github.com/sidehook/sidehook/internal/eventtype"
	"github.com/sidehook/sidehook/internal/signature"
)

// Enforce says what a refusal does. The zero value is invalid.
type Enforce uint8

const (
	_ Enforce = iota
	// EnforceOn refuses what does not verify.
	EnforceOn
	// EnforceReport verifies and counts, lets everything pass and claims nothing.
	EnforceReport
)

// ConfirmMode is the channel by which Envoy tells the app's answer. The zero value is invalid.
type ConfirmMode uint8

const (
	_ ConfirmMode = iota
	// ConfirmAccessLog settles claims from Envoy's gRPC access log.
	ConfirmAccessLog
	// ConfirmExtProc settles claims from Envoy's ext_proc response headers, before the sender sees them.
	ConfirmExtProc
)

// OnUnknown says what becomes of a claim whose end nobody learned. The zero value is invalid.
type OnUnknown uint8

const (
	_ OnUnknown = iota
	// OnUnknownRetry lets the next request of that id through once the lease has ended.
	OnUnknownRetry
	// OnUnknownHold answers 503 until a person or a late success settles the claim.
	OnUnknownHold
)

// Handshake names a provider's way of proving that a URL is ours. The zero value means none.
type Handshake uint8

const (
	HandshakeNone Handshake = iota
	HandshakeSlack
	HandshakeMeta
	HandshakeTwitch
	HandshakeZoom
	HandshakeDiscord
	HandshakeGraph
	HandshakeDropbox
	HandshakeAsana
	HandshakeXero
	HandshakeOkta
	HandshakeTwitter
	HandshakeCloudEvents
	// HandshakeHead is that of providers that send a HEAD request and want 200: Trello, Mandrill, Intercom.
	HandshakeHead
	HandshakeMonday
	// HandshakeNotion brings the secret, and wants 200.
	HandshakeNotion
	HandshakeWorldline
	HandshakeEBay
)

// Mode says what becomes of a verified event. The zero value is invalid.
type Mode uint8

const (
	_ Mode = iota
	// ModePass lets the request through to the app.
	ModePass
	// ModeStore keeps the event, answers its sender and delivers it to the app afterwards.
	ModeStore
)

// OrderBy is where the key of an event's order stands: at most one of the two. The zero value: events are in no order.
type OrderBy struct {
	// Header is a header's name in lower case.
	Header string
	// JSON is a path into the message's document; see signature.Verifier.Document.
	JSON signature.Path
}

// Match selects requests. Exactly one of Path and PathPrefix is set; both compare whole segments of the raw path.
// An empty Host or Method matches every one. A segment of a source's Path may be TenantSegment, which stands for any name of a
// tenant: see ValidTenant.
type Match struct {
	Host       string
	Path       string
	PathPrefix string
	Method     string
}

// Reply is what a sender gets for a duplicate, or an event that is ignored, instead of 200 and the code; zero: that.
type Reply struct {
	Status      int
	ContentType string
	Body        string
}

// Source is the compiled policy of one sender. It is immutable once it is part of a Sources.
type Source struct {
	Name string
	// Was lists earlier names, under which older claims are still found.
	Was []string
	// Provider is the preset's name, or "custom" for a scheme of the user's own, or "none" for verify: none.
	Provider string
	Matches  []Match
	// Verifier is nil only where the configuration says verify: none.
	Verifier *signature.Verifier
	Keys     []signature.Key
	// Tenants holds the secrets of a source whose path names the tenant, in place of Keys; nil: the source has none.
	Tenants *TenantSecrets
	// Tenant is where a verified message names its tenant. Where the path names one too, both have to be the same.
	Tenant TenantValue
	// Tolerance bounds |now - signed time|, both ways, unless the scheme says otherwise.
	Tolerance time.Duration
	Enforce   Enforce

	Lease         time.Duration
	InFlightWait  time.Duration
	Retention     time.Duration
	ContentWindow time.Duration // zero: no second key
	Confirm       ConfirmMode
	OnUnknown     OnUnknown

	// PublicURL is the origin (scheme, host, optional port) and optional base path that the sender signs; empty: none.
	PublicURL     string
	MaxBodyBytes  int64
	RefusalStatus int
	Reply         Reply
	Handshake     Handshake
	// HandshakeToken is the verify token of Meta, or of eBay.
	HandshakeToken []byte
	// UnsignedHandshake permits to answer Slack's challenge without a signature.
	UnsignedHandshake bool
	// ConfirmSubscription confirms subscriptions of Amazon SNS in the app's place.
	ConfirmSubscription bool
	// Types are the event types that reach the app, as patterns of eventtype.Matches; none: all do. An event without a type
	// does in any case.
	Types []string
	// RequireID refuses with 400 missing_id a verified message without an event id.
	RequireID bool

	// Version, where it is on, keeps from the app what is older than what it has of an object; Change, a second event for one
	// change; Live, events of the sender's test mode.
	Version VersionRule
	Change  ChangeRule
	Live    LiveRule
	// Events is where the events of a request stand that may carry several; nil: a request is one event.
	Events *EventsRule
	// Split keeps each event of such a request in STORE by itself. Verifier reads the body as it is received then.
	Split bool

	Mode Mode
	// StoreHeaders are headers, in lower case, that are kept of an event in STORE though they would not be.
	StoreHeaders []string
	// DeliveryPath replaces the path of the request in deliveries of STORE; its query stays. Empty: the path as it came.
	DeliveryPath string
	// Resign has each delivery of STORE signed anew with the first of Keys, at the time of its attempt. Verifier can sign then.
	Resign bool
	// OrderBy is the key of events that are delivered one after the other.
	OrderBy OrderBy
}

// order returns the key of a verified request's order, its hash where it is long; empty where it has none.
func (s *Source) order(req *request) string {
	if s.OrderBy.Header != "" {
		return keyID(req.get(s.OrderBy.Header))
	}
	if s.OrderBy.JSON.IsZero() {
		return ""
	}
	msg := req.message("")
	msg.MaxBody = s.MaxBodyBytes
	key, _ := s.OrderBy.JSON.Find(s.Verifier.Document(&msg))
	return keyID(key)
}

// wants reports whether events of the type reach the app. One whose type could not be read does: nobody asked to leave it out.
func (s *Source) wants(eventType string) bool {
	return len(s.Types) == 0 || eventType == "" || slices.ContainsFunc(s.Types, func(p string) bool { return eventtype.Matches(p, eventType) })
}
