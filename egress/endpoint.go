package egress

import (
	"slices"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/eventtype"
	"github.com/sidehook/sidehook/internal/signature"
)

// Origin says who wrote an endpoint. The zero value is invalid.
type Origin uint8

const (
	_ Origin = iota
	// OriginConfig: the configuration file, and only it can change the endpoint.
	OriginConfig
	// OriginAPI: the admin API; the endpoint is kept in the store, its secrets sealed.
	OriginAPI
)

// Endpoint is a destination of outbound webhooks as it is in force. It is a snapshot: nobody changes it once it is in an
// Endpoints. What happens to it (held, disabled) is its Health, which lives in the outbox.
type Endpoint struct {
	// ID is the endpoint's name everywhere: 1 to 63 of a-z, 0-9 and -.
	ID     string
	Origin Origin
	// Tenant: an event goes only to endpoints of exactly its tenant; "" is a tenant too.
	Tenant string
	// Socket is the path of a Unix socket that is dialled in place of Target's address; "": none. Target is empty then and
	// Filter nil. Requests to it are plain HTTP.
	Socket string
	// Target is the URL, checked by Filter when the endpoint was made.
	Target netguard.Target
	// Filter is the address filter for this endpoint: the global one, or a wider one that the configuration file gives it.
	Filter *netguard.Filter
	// EventTypes are the types that it wants: exact ones, PREFIX.* for one or more further segments, "*" for all.
	// Empty: all.
	EventTypes []string
	// Keys sign each attempt, all of those whose Until has not passed: HMAC keys as v1, Ed25519 keys as v1a. Not empty.
	Keys []signature.Key
	// Headers are sent with each attempt; none is of the forbidden ones (see ForbiddenHeader).
	Headers []signature.Field
	// Policy says how it is tried, how often and how fast.
	Policy Policy
	// Owner is the mail address that is told when the endpoint fails or is disabled; "": nobody.
	Owner string
	// Unusable says, for a person, why nothing can be sent to it: the secrets that the store keeps of it cannot be read,
	// or its URL is not allowed any more. "": it can. Of an unusable endpoint Target and Keys may be empty; its events
	// are taken and wait, as while it is disabled.
	Unusable string
}

// Policy is how an endpoint is tried.
type Policy struct {
	// Timeout of one attempt, from dialling to the last byte of the answer that is read.
	Timeout time.Duration
	// Schedule gives the waits between attempts.
	Schedule Schedule
	// RespectRetryAfter: a Retry-After in a failing answer makes the wait at least that long, up to 24 hours.
	RespectRetryAfter bool
	// OnGone says what 410 does.
	OnGone OnGone
	// StopOn are the status codes after which a delivery is dead at once.
	StopOn []int
	// MaxInFlight bounds the attempts to this endpoint at one time; at least 1.
	MaxInFlight int
	// Rate bounds the attempts to this endpoint per second; 0: no bound.
	Rate float64
	// FirstHold and LongestHold are the waits before the first probe of an endpoint that is held as a whole, and at most
	// between two probes. Default: DefaultFirstHold, DefaultLongestHold.
	FirstHold, LongestHold time.Duration
	// HoldOnlyUnreached: an endpoint is held only where nothing answers there. An answer of any status is about its event alone,
	// and ends a hold. While nothing answers, what is probed stays due: it uses up attempts only as fast as its schedule has them.
	HoldOnlyUnreached bool
	// DisableAfter is how long an endpoint fails on end before it is disabled; 0: it is never.
	DisableAfter time.Duration
}

// OnGone says what an answer of 410 does. The zero value is invalid.
type OnGone uint8

const (
	_ OnGone = iota
	// GoneDisables disables the endpoint: it has said that it is gone.
	GoneDisables
	// GoneRetries treats 410 like any other 4xx.
	GoneRetries
)

// Wants reports whether events of that type and tenant go to e.
func (e *Endpoint) Wants(eventType, tenant string) bool {
	if e.Tenant != tenant {
		return false
	}
	return len(e.EventTypes) == 0 || slices.ContainsFunc(e.EventTypes, func(p string) bool { return eventtype.Matches(p, eventType) })
}

// Endpoints is an immutable set of endpoints, safe for concurrent use.
type Endpoints struct {
	list []*Endpoint
	byID map[string]*Endpoint
	// byTenant spares an event the endpoints of thousands of other tenants.
	byTenant map[string][]*Endpoint
	// pending are those that shall be in the set, and of which the outbox could not be told yet; nil: none. An event for one
	// of them cannot be taken, and must not be taken without it.
	pending *Endpoints
}

// NewEndpoints makes a set of list, whose IDs differ; it keeps list.
func NewEndpoints(list []*Endpoint) *Endpoints {
	s := &Endpoints{list: list, byID: make(map[string]*Endpoint, len(list)), byTenant: make(map[string][]*Endpoint)}
	for _, e := range list {
		s.byID[e.ID] = e
		s.byTenant[e.Tenant] = append(s.byTenant[e.Tenant], e)
	}
	return s
}

// All returns the endpoints in their order. The caller changes nothing.
func (s *Endpoints) All() []*Endpoint { return s.list }

// ByID returns the endpoint of that ID, nil if there is none.
func (s *Endpoints) ByID(id string) *Endpoint { return s.byID[id] }

// awaits reports whether an event of that type and tenant would go to an endpoint that is pending; or, with an id, to
// that one.
func (s *Endpoints) awaits(id, eventType, tenant string) bool {
	switch {
	case s.pending == nil:
		return false
	case id != "":
		return s.pending.byID[id] != nil
	}
	return slices.ContainsFunc(s.pending.byTenant[tenant], func(e *Endpoint) bool { return e.Wants(eventType, tenant) })
}

// Wanting appends to dst the endpoints to which an event of that type and tenant goes.
func (s *Endpoints) Wanting(dst []*Endpoint, eventType, tenant string) []*Endpoint {
	for _, e := range s.byTenant[tenant] {
		if e.Wants(eventType, tenant) {
			dst = append(dst, e)
		}
	}
	return dst
}
