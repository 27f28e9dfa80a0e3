package egress

import (
	"cmp"
	"slices"
	"time"
)

// laneWindow is how many deliveries of one endpoint and lane are kept in memory, those that are due first. The rest is on
// disk alone, and read when these are gone.
const laneWindow = 128

// item is a delivery in a lane.
type item struct {
	Delivery
	at time.Duration // when it is due, by the monotonic clock
}

func (i *item) before(j *item) int {
	return cmp.Or(cmp.Compare(i.at, j.at), cmp.Compare(i.ID.Event, j.ID.Event))
}

// laneQueue is the window on one lane of one endpoint, in the order in which deliveries are due. The zero laneQueue is one of
// which nothing is known.
type laneQueue struct {
	items []item
	head  int // of items, those before it are gone
	// complete: all that waits in the lane is in items or in flight. So what comes new can be added without a look at the
	// disk.
	complete bool
}

func (l *laneQueue) len() int { return len(l.items) - l.head }

// first is the item that is due first, nil if there is none.
func (l *laneQueue) first() *item {
	if l.len() == 0 {
		return nil
	}
	return &l.items[l.head]
}

func (l *laneQueue) pop() item {
	it := l.items[l.head]
	l.head++
	if l.head == len(l.items) {
		l.items, l.head = l.items[:0], 0
	}
	return it
}

// at is the item i, counted from the first.
func (l *laneQueue) at(i int) *item { return &l.items[l.head+i] }

// take takes the item i out, counted from the first.
func (l *laneQueue) take(i int) item {
	if i == 0 {
		return l.pop()
	}
	it := l.items[l.head+i]
	l.items = slices.Delete(l.items, l.head+i, l.head+i+1)
	return it
}

// other is the first item that is not of that delivery; nil where there is no other.
func (l *laneQueue) other(id DeliveryID) (i int, it *item) {
	for i := range min(l.len(), 2) {
		if it := &l.items[l.head+i]; it.ID != id {
			return i, it
		}
	}
	return 0, nil
}

// add puts it into the window, if it belongs there, and returns the item that left the window for that, nil if none did. ok is
// false where it does not belong there: it will be read from the disk in its turn.
func (l *laneQueue) add(it item) (out *item, ok bool) {
	if l.head > 0 && len(l.items) == cap(l.items) {
		l.items = l.items[:copy(l.items, l.items[l.head:])]
		l.head = 0
	}
	n := l.len()
	if !l.complete && (n == 0 || it.before(&l.items[len(l.items)-1]) > 0) {
		return nil, false
	}
	if n >= laneWindow {
		l.complete = false
		last := l.items[len(l.items)-1]
		if it.before(&last) > 0 {
			return nil, false
		}
		l.items = l.items[:len(l.items)-1]
		out = &last
	}
	if n == 0 || it.before(&l.items[len(l.items)-1]) >= 0 {
		l.items = append(l.items, it)
		return out, true
	}
	at, _ := slices.BinarySearchFunc(l.items[l.head:], &it, func(i item, j *item) int { return i.before(j) })
	l.items = slices.Insert(l.items, l.head+at, it)
	return out, true
}

// forget empties the window, of which nothing is known from then on.
func (l *laneQueue) forget() { *l = laneQueue{items: l.items[:0]} }
