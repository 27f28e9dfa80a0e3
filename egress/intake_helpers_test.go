package egress

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// intakeOutbox is an Accepter in memory: it keeps what it was given, and knows a repeat by tenant and id.
type intakeOutbox struct {
	// before is called before an event is taken; its error is the answer.
	before func(*Event) error
	// full are endpoints that have as many deliveries as they may.
	full map[string]bool

	mu     sync.Mutex // covers what follows
	events []*Event
	kept   map[[2]string]intakeKept
}

type intakeKept struct {
	content [32]byte
	receipt Receipt
}

func (o *intakeOutbox) Accept(ctx context.Context, e *Event, targets []Target) (Receipt, error) {
	if o.before != nil {
		if err := o.before(e); err != nil {
			return Receipt{}, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Receipt{}, err
	}
	seq := uint64(len(o.events) + 1)
	if e.ID == "" {
		e.ID = fmt.Sprintf("evt_%d", seq)
	}
	key := [2]string{e.Tenant, e.ID}
	if had, ok := o.kept[key]; ok {
		if had.content != e.Content {
			return Receipt{}, fmt.Errorf("accept: %w", ErrConflict)
		}
		had.receipt.Repeat = true
		return had.receipt, nil
	}
	r := Receipt{EventID: e.ID}
	for i, t := range targets {
		d := ReceiptDelivery{Endpoint: t.Endpoint, Parked: t.Parked, Full: o.full[t.Endpoint]}
		if !d.Full {
			d.ID = DeliveryID{Event: seq, Endpoint: uint32(i + 1)}
		}
		r.Deliveries = append(r.Deliveries, d)
	}
	o.events = append(o.events, e)
	if o.kept == nil {
		o.kept = make(map[[2]string]intakeKept)
	}
	o.kept[key] = intakeKept{e.Content, r}
	return r, nil
}

// accepted returns the events in the order in which they were taken.
func (o *intakeOutbox) accepted() []*Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events)
}

// intakeCounts counts what an intake tells.
type intakeCounts struct {
	mu    sync.Mutex // covers codes
	codes map[string]int
}

func (c *intakeCounts) count(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.codes == nil {
		c.codes = make(map[string]int)
	}
	c.codes[code]++
}

func (c *intakeCounts) get() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.codes == nil {
		return map[string]int{}
	}
	return maps.Clone(c.codes)
}

// intakeEndpoints are what most tests post to.
func intakeEndpoints() *Endpoints {
	return NewEndpoints([]*Endpoint{
		{ID: "acme", EventTypes: []string{"invoice.*"}},
		{ID: "all"},
		{ID: "parked", EventTypes: []string{"park"}},
		{ID: "broken", EventTypes: []string{"park"}, Unusable: "its secret cannot be read"},
		{ID: "theirs", Tenant: "t1"},
		{ID: "crowded", EventTypes: []string{"crowd", "crowd.alone"}},
	})
}

// newTestIntake makes an intake over o; change may adapt its configuration.
func newTestIntake(o *intakeOutbox, change func(*IntakeConfig)) (*Intake, *intakeCounts) {
	counts := new(intakeCounts)
	endpoints := intakeEndpoints()
	cfg := IntakeConfig{
		Outbox:    o,
		Endpoints: func() *Endpoints { return endpoints },
		Parked:    func(id string) bool { return id == "parked" },
		Count:     counts.count,
	}
	if change != nil {
		change(&cfg)
	}
	return NewIntake(cfg), counts
}

// intakePost makes a request as an app sends it; pairs are header names and values.
func intakePost(path, body string, pairs ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Host = "localhost:9292"
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Add(pairs[i], pairs[i+1])
	}
	return r
}

// intakeJSON is intakePost of an event as JSON.
func intakeJSON(body string, pairs ...string) *http.Request {
	return intakePost(eventsPath, body, append(pairs, "Content-Type", "application/json")...)
}

func serveIntake(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
