package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

const (
	// cancelStep bounds the deliveries that are cancelled in one commit, which others wait for too.
	cancelStep = 128
	// cancelPause after each step leaves the processor and the disk to them.
	cancelPause = 5 * time.Millisecond
	// cancelRetry is the pause after the store could not be read or written.
	cancelRetry = 10 * time.Second
)

// SetEndpoints says which endpoints there are, and returns once that is on disk; it is tried until it is written. One that
// is not in ids is removed: nothing is accepted for it any more, what waits at it is due no more, and becomes CANCELLED
// (see Run). An endpoint that was removed and comes again is a new one to the outbox; with BoltOutboxConfig.KeepRemoved it is
// the one that it was, and what waits at it waits. The last call counts, also where one before it was not written yet, which
// then ends with ErrUnavailable (wrapped).
func (b *BoltOutbox) SetEndpoints(ctx context.Context, ids []string) error {
	op := &endpointsOp{b: b, turn: b.endpointTurn.Add(1), ids: ids, at: time.Now(), answered: make(chan error, 1)}
	if err := b.store.Submit(op, store.UrgentPersistent); err != nil {
		return fmt.Errorf("set endpoints: %w", unavailable(err))
	}
	if err := wait(ctx, op.answered); err != nil {
		return fmt.Errorf("set endpoints: %w", err)
	}
	return nil
}

// errSuperseded: a later SetEndpoints has said something else.
var errSuperseded = errors.New("a later set of endpoints takes its place")

type endpointsOp struct {
	b        *BoltOutbox
	turn     uint64 // of the calls of SetEndpoints
	ids      []string
	at       time.Time
	answered chan error
	after    *roster
}

// Apply implements store.Op.
func (op *endpointsOp) Apply(tx *store.Tx) error {
	if op.turn != op.b.endpointTurn.Load() { // one that the disk did not take at first comes after those that followed it
		return errSuperseded
	}
	before := newRoster()
	if err := eachEndpoint(tx, func(id string, r *endpointRow) { before.put(id, r.Number) }); err != nil {
		return err
	}
	op.after = newRoster()
	for _, id := range op.ids {
		if _, twice := op.after.numbers[id]; twice {
			continue
		}
		number, ok := before.numbers[id]
		if !ok {
			var err error
			if number, err = addEndpoint(tx, id); err != nil {
				return err
			}
		}
		before.drop(id)
		op.after.put(id, number)
	}
	for id, number := range before.numbers {
		if op.b.keepRemoved {
			op.after.names[number] = id
			continue
		}
		row := numberRow{Endpoint: id, Removed: op.at.UnixMilli()}
		if err := tx.Put(numberBucket, appendNumber(nil, number), row.encode()); err != nil {
			return err
		}
		if err := tx.Delete(endpointBucket, []byte(id)); err != nil {
			return err
		}
	}
	return nil
}

// addEndpoint gives id the next number. Numbers are never used again: those of removed endpoints stay in DeliveryIDs.
func addEndpoint(tx *store.Tx, id string) (uint32, error) {
	number := uint32(1)
	if last, _ := tx.Cursor(numberBucket).Last(); last != nil {
		n, err := parseNumber(last)
		if err != nil {
			return 0, corruptRow(err)
		}
		number = n + 1
	}
	if err := tx.Put(numberBucket, appendNumber(nil, number), numberRow{Endpoint: id}.encode()); err != nil {
		return 0, err
	}
	return number, tx.Put(endpointBucket, []byte(id), (&endpointRow{Number: number}).encode())
}

// Done implements store.Op.
func (op *endpointsOp) Done(err error) {
	if err == nil {
		op.b.endpoints.Store(op.after)
		select {
		case op.b.removed <- struct{}{}:
		default:
		}
	}
	op.answered <- err
}

// Known are the endpoints of the last SetEndpoints that is on disk, in order.
func (b *BoltOutbox) Known() []string {
	return slices.Sorted(maps.Keys(b.endpoints.Load().numbers))
}

// SetHealth implements Outbox. ErrNotFound (wrapped) for an endpoint that the outbox does not know.
func (b *BoltOutbox) SetHealth(ctx context.Context, endpoint string, h Health) error {
	op := &healthOp{endpoint: endpoint, health: h, answered: make(chan error, 1)}
	if err := b.store.Submit(op, store.Urgent); err != nil {
		return fmt.Errorf("set health of endpoint %s: %w", endpoint, unavailable(err))
	}
	if err := wait(ctx, op.answered); err != nil {
		return fmt.Errorf("set health of endpoint %s: %w", endpoint, err)
	}
	return nil
}

type healthOp struct {
	endpoint string
	health   Health
	answered chan error
}

// Apply implements store.Op.
func (op *healthOp) Apply(tx *store.Tx) error {
	value := tx.Get(endpointBucket, []byte(op.endpoint))
	if value == nil {
		return ErrNotFound
	}
	row, err := parseEndpointRow(value)
	if err != nil {
		return corruptRow(err)
	}
	row.Health = op.health
	return tx.Put(endpointBucket, []byte(op.endpoint), row.encode())
}

// Done implements store.Op.
func (op *healthOp) Done(err error) { op.answered <- err }

// Healths implements Outbox.
func (b *BoltOutbox) Healths() (map[string]Health, error) {
	all := make(map[string]Health)
	err := b.store.View(func(tx *store.Tx) error {
		return eachEndpoint(tx, func(id string, r *endpointRow) { all[id] = r.Health })
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

// Run cancels what waits at removed endpoints until ctx ends, and then returns nil. It returns an error only when the
// store has ended.
func (b *BoltOutbox) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.removed:
		case <-retry.C:
		}
		err := b.CancelRemoved(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, store.ErrClosed):
			return nil
		case store.Fatal(err):
			return fmt.Errorf("cancel deliveries: %w", err)
		case err != nil:
			b.log.LogAttrs(ctx, slog.LevelWarn, "cancel deliveries of removed endpoints", slog.Any("err", err))
			retry.Reset(cancelRetry)
		}
	}
}

// CancelRemoved makes all that waits at removed endpoints CANCELLED, in small steps. It returns once there is nothing left.
func (b *BoltOutbox) CancelRemoved(ctx context.Context) error {
	for _, number := range b.removedWithWaiting() {
		for {
			ids, err := b.waiting(number, cancelStep)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				break
			}
			op := &cancelOp{b: b, ids: ids, at: time.Now(), answered: make(chan error, 1)}
			if err := b.store.Submit(op, store.Lazy); err != nil {
				return err
			}
			select {
			case err = <-op.answered:
			case <-ctx.Done():
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			if !pause(ctx, cancelPause) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// removedWithWaiting are the numbers of removed endpoints at which something waits, in order.
func (b *BoltOutbox) removedWithWaiting() []uint32 {
	names := b.endpoints.Load().names
	var numbers []uint32
	b.totals.each(func(number uint32, s State, _ Count) {
		if _, ok := names[number]; !ok && s == StateWaiting {
			numbers = append(numbers, number)
		}
	})
	slices.Sort(numbers)
	return numbers
}

// waiting returns n deliveries that wait at the endpoint of that number, those of chains first: else the end of each would
// make another due. Among these may be dead ones that stop their chains.
func (b *BoltOutbox) waiting(number uint32, n int) ([]DeliveryID, error) {
	var ids []DeliveryID
	prefix := appendNumber(nil, number)
	err := b.store.View(func(tx *store.Tx) error {
		ids = ids[:0]
		c := tx.Cursor(chainBucket)
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(ids) < n; k, _ = c.Next() {
			chain, err := parseChainKey(k)
			if err != nil {
				return corruptRow(err)
			}
			ids = append(ids, chain.delivery())
		}
		c = tx.Cursor(dueBucket)
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(ids) < n; k, _ = c.Next() {
			due, err := parseDueKey(k)
			if err != nil {
				return corruptRow(err)
			}
			ids = append(ids, due.delivery())
		}
		return nil
	})
	return ids, err
}

type cancelOp struct {
	b        *BoltOutbox
	ids      []DeliveryID
	at       time.Time
	answered chan error
}

// Apply implements store.Op.
func (op *cancelOp) Apply(tx *store.Tx) error {
	for _, id := range op.ids {
		from, err := deliveryOf(tx, id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if from.State != StateWaiting {
			if err := op.b.unchain(tx, from.chainKey(id)); err != nil {
				return err
			}
			continue
		}
		to := from
		to.State, to.Ended = StateCancelled, op.at.UnixMilli()
		if err := op.b.move(tx, id, &from, &to); err != nil {
			return err
		}
	}
	return nil
}

// Done implements store.Op.
func (op *cancelOp) Done(err error) { op.answered <- err }

// pause waits for d, and reports whether it did: false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
