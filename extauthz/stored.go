package extauthz

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
)

// StoredEvent is an event of a source in STORE, as it is kept for the app. Strings and slices belong to whoever made it and
// are not changed afterwards.
type StoredEvent struct {
	// Key is that of its claim; its Source is the endpoint that it is delivered to.
	Key Key
	// Type is the event type as the message has it, Shown the id as the app gets it in x-sidehook-event-id.
	Type, Shown string
	// Method, Target (path and query) and Authority (host) are the request's, as received.
	Method, Target, Authority string
	// Headers are those that are kept, in the order of the request; Body its raw bytes.
	Headers []signature.Field
	Body    []byte
	// Order is the value of delivery.order_by; events of a source with the same one are delivered one after the other, as
	// they came. Empty: in no order.
	Order    string
	Received time.Time
}

// Names of the fields that stand before the headers of a stored event, for what of its request is no header; as in HTTP/2
// (RFC 9113, section 8.3.1).
const (
	PseudoMethod    = ":method"
	PseudoPath      = ":path"
	PseudoAuthority = ":authority"
)

// Fields are the headers with the pseudo fields before them: what Source.DeliveryRequest makes the request of.
func (e *StoredEvent) Fields() []signature.Field {
	fields := make([]signature.Field, 0, len(e.Headers)+3)
	fields = append(fields,
		signature.Field{Name: PseudoMethod, Value: e.Method},
		signature.Field{Name: PseudoPath, Value: e.Target},
		signature.Field{Name: PseudoAuthority, Value: e.Authority})
	return append(fields, e.Headers...)
}

// StoredRef names a stored event to its Keeper; the zero value names none.
type StoredRef [12]byte

// Keeper keeps the events of STORE until the app has taken them, in the store of the inbox.
type Keeper interface {
	// Prepare makes ready what is to be written of e. Nothing is written before Put. It is safe for concurrent use.
	Prepare(e *StoredEvent) (Keeping, error)
	// Open reports whether the event may still be delivered: its claim is then not forgotten. False for one that is gone.
	Open(tx *store.Tx, ref StoredRef) (bool, error)
}

// Keeping is one event on its way to the disk. The committer calls its methods, in the batch that also writes the claim.
type Keeping interface {
	// Put writes the event in tx. ErrFull (wrapped) where there is no room for it: then nothing of it was written. It may be
	// called again in another transaction, after one that failed.
	Put(tx *store.Tx) (StoredRef, error)
	// Done is told, once, how the transaction of the last Put ended; from then on the event is delivered.
	Done(err error)
}

// stored is the event of a verified request, as it is kept. It is a view into req, which is good until the Check returns.
func (b *bound) stored(req *request, key Key, v verified) *StoredEvent {
	eventType := v.eventType
	if strings.HasPrefix(v.kind, shownHashPrefix) {
		eventType = v.kind // it was cut, or would be in the app's header
	}
	return &StoredEvent{
		Key: key, Type: eventType, Shown: v.event,
		Method: req.method, Target: req.target, Authority: req.host,
		Headers: b.source.KeptHeaders(req.header, v.keys), Body: req.body,
		Order:    b.source.order(req),
		Received: time.Now(),
	}
}

// newRequestID names a request of a scheme that has no event ids: every one is new, and in STORE it has to be called something.
func newRequestID() string { return "req_" + rand.Text() }
