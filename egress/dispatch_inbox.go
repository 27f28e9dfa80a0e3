package egress

import "sync"

// inbox is where the dispatcher's loop hears what has happened. Whoever tells it never waits.
type inbox struct {
	mu   sync.Mutex // covers news
	news news
	wake chan struct{} // of size 1
}

// news is what has happened since the loop last looked.
type news struct {
	accepted []Delivery
	missed   bool // more was accepted than is in accepted
	changed  []string
	looks    []look
	settled  []*flight
	err      error // after which nothing can be sent
}

// look asks for a queue to be looked at; afresh: it begins slowly.
type look struct {
	queue  *queue
	afresh bool
}

// take returns the news, and puts spare, whose slices are empty, in their place.
func (b *inbox) take(spare news) news {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.news
	spare.err = n.err
	b.news = spare
	return n
}

// reset returns n without its content, for take.
func (n *news) reset() news {
	clear(n.accepted)
	clear(n.changed)
	clear(n.looks)
	clear(n.settled)
	return news{accepted: n.accepted[:0], changed: n.changed[:0], looks: n.looks[:0], settled: n.settled[:0]}
}

func (b *inbox) tell(f func(n *news)) {
	b.mu.Lock()
	f(&b.news)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) look(q *queue, afresh bool) {
	b.tell(func(n *news) { n.looks = append(n.looks, look{q, afresh}) })
}

// settled tells that f's settlement is on disk, or why not.
func (b *inbox) settled(f *flight) { b.tell(func(n *news) { n.settled = append(n.settled, f) }) }

// fail tells that nothing can be sent any more.
func (b *inbox) fail(err error) {
	b.tell(func(n *news) {
		if n.err == nil {
			n.err = err
		}
	})
}

// Accepted implements Changes.
func (d *Dispatcher) Accepted(ds []Delivery) {
	d.inbox.tell(func(n *news) {
		if len(n.accepted)+len(ds) > maxNews {
			n.missed = true
			return
		}
		n.accepted = append(n.accepted, ds...)
	})
}

// Changed implements Changes.
func (d *Dispatcher) Changed(endpoint string) {
	d.inbox.tell(func(n *news) { n.changed = append(n.changed, endpoint) })
}

// Refresh has the dispatcher look at the endpoints in force: to one that is gone nothing more is sent, and a new policy
// is in force for the next attempt. What is in flight goes on.
func (d *Dispatcher) Refresh() error {
	if err := d.match(); err != nil {
		return err
	}
	d.inbox.tell(func(*news) {})
	return nil
}
