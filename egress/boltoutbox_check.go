package egress

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sidehook/sidehook/internal/store"
)

// RowCheck is the outbox's part of store.Check: every row can be read; what waits is due, and nothing else; a body is
// there for as long as it is needed; deliveries have their events and endpoints; the counters say what there is. The zero
// value is ready for one check.
//
// Buckets come in the order of their names and rows in that of their keys, so most is compared in passing: what is kept
// is a few bytes for each event, and for each delivery that waits.
type RowCheck struct {
	bodies   []checkedBody              // outbox_bodies, before outbox_deliveries
	chains   map[DeliveryID]checkedLink // outbox_chains, before outbox_deliveries takes them out
	chain    checkedChain               // the chain whose deliveries are coming
	dead     []DeliveryID               // outbox_dead, before outbox_deliveries
	logBytes int64                      // of outbox_attempts, before outbox_log
	counters map[countKey]Count         // outbox_counts
	rows     map[countKey]Count         // as the deliveries are
	group    checkedGroup               // the event whose deliveries are coming
	groups   []uint64                   // events that have deliveries, before outbox_events
	waiting  map[dueKey]struct{}        // before outbox_due takes them out
	events   []uint64                   // before outbox_ids
	shared   []checkedOpen              // before outbox_open
	live     map[uint32]string          // outbox_endpoints, before outbox_numbers
	numbers  map[uint32]struct{}        // outbox_numbers
	used     map[uint32]struct{}        // numbers in deliveries
	problems []error                    // found where no row is to blame
}

type (
	checkedBody struct{ seq, size uint64 }
	checkedOpen struct {
		seq uint64
		n   int
	}
	checkedLink struct {
		order orderKey
		place place
	}
	checkedChain struct {
		first  chainKey
		place  place // of the first
		active int
	}
	checkedGroup struct {
		seq    uint64
		any    bool
		shared bool
		needs  int
		bytes  int
	}
)

var _ store.Rows = (*RowCheck)(nil)

// maxCheckProblems bounds what Finish says.
const maxCheckProblems = 100

func (c *RowCheck) problem(format string, args ...any) {
	if len(c.problems) < maxCheckProblems {
		c.problems = append(c.problems, fmt.Errorf(format, args...))
	}
}

// Row implements store.Rows.
func (c *RowCheck) Row(bucket string, key, value []byte) error {
	switch bucket {
	case string(attemptBucket):
		c.logBytes += int64(len(key) + len(value))
		id, n, err := parseAttemptKey(key)
		if err == nil {
			_, err = parseAttempt(value, id, n)
		}
		return err
	case string(bodyBucket):
		seq, err := parseSeq(key)
		c.bodies = append(c.bodies, checkedBody{seq, uint64(len(value))})
		return err
	case string(chainBucket):
		return c.link(key, value)
	case string(countBucket):
		return c.counter(key, value)
	case string(deadBucket):
		id, err := parseDeliveryKey(key)
		if err == nil && (len(key) != deliveryKeySize || len(value) != 0) {
			err = fmt.Errorf("%w: dead row with %d bytes", errRow, len(value))
		}
		c.dead = append(c.dead, id)
		return err
	case string(definitionBucket):
		_, _, err := decodeDefinition(key, value)
		return err
	case string(deliveryBucket):
		return c.delivery(key, value)
	case string(dueBucket):
		return c.due(key, value)
	case string(endpointBucket):
		r, err := parseEndpointRow(value)
		put(&c.live, r.Number, string(key))
		return err
	case string(eventBucket):
		return c.event(key, value)
	case string(idBucket):
		return c.id(key, value)
	case string(jobBucket):
		_, err := parseJob(key, value)
		return err
	case string(logBucket):
		n, err := parseLogBytes(value)
		c.logBytes -= n
		return err
	case string(markBucket):
		if _, err := parseDeliveryKey(key); err != nil {
			return err
		}
		_, err := parseMark(value)
		return err
	case string(numberBucket):
		return c.number(key, value)
	case string(openBucket):
		return c.open(key, value)
	}
	return nil
}

// put is m[k] = v for a map that may not be there yet.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}

func (c *RowCheck) counter(key, value []byte) error {
	k, err := parseCountKey(key)
	if err != nil {
		return err
	}
	n, err := parseCount(value)
	put(&c.counters, k, Count{n.rows, n.bytes})
	return err
}

// link is a row of a chain.
func (c *RowCheck) link(key, value []byte) error {
	k, err := parseChainKey(key)
	if err != nil {
		return err
	}
	p, err := parsePlace(value)
	if first := &c.chain.first; c.chain.place == unchained || first.endpoint != k.endpoint || first.order != k.order {
		c.endChain()
		c.chain = checkedChain{first: k, place: p}
	}
	if p == chainActive {
		c.chain.active++
	}
	put(&c.chains, k.delivery(), checkedLink{k.order, p})
	return err
}

// endChain judges a chain: one of its deliveries is active, unless the first stops it.
func (c *RowCheck) endChain() {
	want := 1
	if c.chain.place == chainStopped {
		want = 0
	}
	if c.chain.place != unchained && c.chain.active != want {
		c.problem("chain of endpoint %d from %s on: %d deliveries are active, not %d", c.chain.first.endpoint, c.chain.first.delivery(), c.chain.active, want)
	}
	c.chain = checkedChain{}
}

// unlink takes a delivery out of its chain, and returns its place in it.
func (c *RowCheck) unlink(id DeliveryID, r *deliveryRow) place {
	l := c.chains[id]
	delete(c.chains, id)
	open := r.State == StateWaiting && r.Order != orderKey{} || r.State == StateDead && l.place == chainStopped
	switch {
	case open != (l.place != unchained), l.place == chainStopped && r.State != StateDead:
		c.problem("%s: state %d, place %d in a chain", id, r.State, l.place)
	case l.place != unchained && l.order != r.Order:
		c.problem("%s is in a chain that is not its own", id)
	}
	return l.place
}

func (c *RowCheck) delivery(key, value []byte) error {
	id, err := parseDeliveryKey(key)
	if err == nil && len(key) != deliveryKeySize {
		err = fmt.Errorf("%w: delivery key of %d bytes", errRow, len(key))
	}
	if err != nil {
		return err
	}
	r, err := parseDelivery(value, id.Event)
	if err != nil {
		return err
	}
	k := r.countKey(id.Endpoint)
	n := c.rows[k]
	put(&c.rows, k, Count{n.Rows + 1, n.Bytes + int64(r.Bytes)})
	put(&c.used, id.Endpoint, struct{}{})
	p := c.unlink(id, &r)
	if r.State == StateWaiting && p != chainBehind {
		put(&c.waiting, r.dueKey(id), struct{}{})
	}
	c.undead(id)
	listed := len(c.dead) > 0 && c.dead[0] == id
	if listed {
		c.dead = c.dead[1:]
	}
	if listed != (r.State == StateDead) {
		c.problem("%s: state %d, listed as dead: %v", id, r.State, listed)
	}
	if !c.group.any || c.group.seq != id.Event {
		c.endGroup()
		c.group = checkedGroup{seq: id.Event, any: true}
	}
	c.group.shared = c.group.shared || r.Shared
	c.group.bytes = r.Bytes
	if r.State.needsBody() {
		c.group.needs++
	}
	return nil
}

// undead finds what is listed as dead before id, and is not there.
func (c *RowCheck) undead(id DeliveryID) {
	for len(c.dead) > 0 && compareIDs(c.dead[0], id) < 0 {
		c.problem("%s is listed as dead, and is gone", c.dead[0])
		c.dead = c.dead[1:]
	}
}

func compareIDs(a, b DeliveryID) int {
	return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Endpoint, b.Endpoint))
}

// endGroup compares the deliveries of one event with its body.
func (c *RowCheck) endGroup() {
	g := c.group
	c.group = checkedGroup{}
	if !g.any {
		return
	}
	c.groups = append(c.groups, g.seq)
	if g.shared && g.needs > 0 {
		c.shared = append(c.shared, checkedOpen{g.seq, g.needs})
	}
	c.unneeded(g.seq)
	var size uint64
	has := len(c.bodies) > 0 && c.bodies[0].seq == g.seq
	if has {
		size, c.bodies = c.bodies[0].size, c.bodies[1:]
	}
	switch {
	case g.needs > 0 && !has:
		c.problem("event %d: the body is gone, and %d deliveries need it", g.seq, g.needs)
	case g.needs == 0 && has:
		c.problem("event %d: there is a body, and no delivery needs it", g.seq)
	case has && size != uint64(g.bytes):
		c.problem("event %d: body of %d bytes, its deliveries say %d", g.seq, size, g.bytes)
	}
}

// unneeded finds the bodies before the event seq that no delivery has asked for.
func (c *RowCheck) unneeded(seq uint64) {
	for len(c.bodies) > 0 && c.bodies[0].seq < seq {
		c.problem("event %d: there is a body, and no delivery", c.bodies[0].seq)
		c.bodies = c.bodies[1:]
	}
}

func (c *RowCheck) due(key, value []byte) error {
	k, err := parseDueKey(key)
	if err != nil {
		return err
	}
	if len(value) != 0 {
		return fmt.Errorf("%w: due row with %d bytes", errRow, len(value))
	}
	if _, ok := c.waiting[k]; !ok {
		return fmt.Errorf("%w: %s is due, and does not wait so", errRow, k.delivery())
	}
	delete(c.waiting, k)
	return nil
}

func (c *RowCheck) event(key, value []byte) error {
	seq, err := parseSeq(key)
	if err != nil {
		return err
	}
	c.endGroup()
	for len(c.groups) > 0 && c.groups[0] < seq {
		c.problem("event %d is gone, and has deliveries", c.groups[0])
		c.groups = c.groups[1:]
	}
	if len(c.groups) > 0 && c.groups[0] == seq {
		c.groups = c.groups[1:]
	}
	c.events = append(c.events, seq)
	_, err = parseEvent(value, seq)
	return err
}

func (c *RowCheck) id(key, value []byte) error {
	if len(key) != idKeySize {
		return fmt.Errorf("%w: id key of %d bytes", errRow, len(key))
	}
	seq, err := parseSeq(value)
	if err != nil {
		return err
	}
	if _, found := slices.BinarySearch(c.events, seq); !found {
		return fmt.Errorf("%w: id of event %d, which is gone", errRow, seq)
	}
	return nil
}

func (c *RowCheck) number(key, value []byte) error {
	number, err := parseNumber(key)
	if err != nil {
		return err
	}
	r, err := parseNumberRow(value)
	if err != nil {
		return err
	}
	put(&c.numbers, number, struct{}{})
	id, live := c.live[number]
	delete(c.live, number)
	if live != (r.Removed == 0) || live && id != r.Endpoint {
		return fmt.Errorf("%w: number of endpoint %q, removed at %d; it is that of endpoint %q", errRow, r.Endpoint, r.Removed, id)
	}
	return nil
}

func (c *RowCheck) open(key, value []byte) error {
	seq, err := parseSeq(key)
	if err != nil {
		return err
	}
	n, err := parseOpen(value)
	if err != nil {
		return err
	}
	c.endGroup()
	c.uncounted(seq)
	if len(c.shared) == 0 || c.shared[0].seq != seq {
		return fmt.Errorf("%w: %d deliveries need the body: there is none that shares it", errRow, n)
	}
	needs := c.shared[0].n
	c.shared = c.shared[1:]
	if needs != n {
		return fmt.Errorf("%w: %d deliveries need the body: there are %d", errRow, n, needs)
	}
	return nil
}

// uncounted finds the events before seq whose deliveries share a body and are not counted.
func (c *RowCheck) uncounted(seq uint64) {
	for len(c.shared) > 0 && c.shared[0].seq < seq {
		c.problem("event %d: %d deliveries need the body, and nothing counts them", c.shared[0].seq, c.shared[0].n)
		c.shared = c.shared[1:]
	}
}

// Finish implements store.Rows.
func (c *RowCheck) Finish() []error {
	const end = ^uint64(0)
	c.endGroup()
	c.endChain()
	for id := range c.chains {
		c.problem("%s is in a chain, and is gone", id)
	}
	c.undead(DeliveryID{Event: end})
	if c.logBytes != 0 {
		c.problem("attempts take %d bytes more than is counted", c.logBytes)
	}
	c.unneeded(end)
	c.uncounted(end)
	for _, seq := range c.groups {
		c.problem("event %d is gone, and has deliveries", seq)
	}
	for k := range c.waiting {
		c.problem("%s waits, and is not due", k.delivery())
	}
	for number, id := range c.live {
		c.problem("endpoint %q has the number %d, which is nobody's", id, number)
	}
	for number := range c.used {
		if _, ok := c.numbers[number]; !ok {
			c.problem("deliveries to endpoint %d, which there never was", number)
		}
	}
	for k, n := range c.rows {
		if c.counters[k] != n {
			c.problem("counter of endpoint %d, state %d, hour %d says %+v: there are %+v", k.endpoint, k.state, k.hour, c.counters[k], n)
		}
	}
	for k, n := range c.counters {
		if _, ok := c.rows[k]; !ok {
			c.problem("counter of endpoint %d, state %d, hour %d says %+v: there are none", k.endpoint, k.state, k.hour, n)
		}
	}
	return c.problems
}
