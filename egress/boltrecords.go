package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/sidehook/sidehook/internal/store"
)

// BoltRecordsConfig says on what a BoltRecords works.
type BoltRecordsConfig struct {
	Outbox *BoltOutbox
	// Parked reports whether an endpoint is disabled or paused, Sending whether an attempt of a delivery is under way.
	// Both may be called from any goroutine, while the store is read, and must be quick. Nil: never.
	Parked  func(endpoint string) bool
	Sending func(DeliveryID) bool
	Logger  *slog.Logger
}

// BoltRecords is the Records of a BoltOutbox.
type BoltRecords struct {
	outbox  *BoltOutbox
	store   *store.Space
	parked  func(string) bool
	sending func(DeliveryID) bool
	log     *slog.Logger
	// starting is held while a job is started: their number is bounded.
	starting sync.Mutex
	wake     chan struct{} // of Run, of size 1
}

var _ Records = (*BoltRecords)(nil)

// NewBoltRecords makes the Records of cfg.Outbox. It starts no goroutine: jobs go on while Run runs.
func NewBoltRecords(cfg BoltRecordsConfig) (*BoltRecords, error) {
	if cfg.Outbox == nil {
		return nil, errors.New("bolt records without an outbox")
	}
	b := &BoltRecords{
		outbox:  cfg.Outbox,
		store:   cfg.Outbox.store,
		parked:  cfg.Parked,
		sending: cfg.Sending,
		log:     cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		wake:    make(chan struct{}, 1),
	}
	if b.parked == nil {
		b.parked = func(string) bool { return false }
	}
	if b.sending == nil {
		b.sending = func(DeliveryID) bool { return false }
	}
	return b, nil
}

// view reads the store; step says what for.
func (b *BoltRecords) view(ctx context.Context, step string, fn func(*store.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return b.failure(step, b.store.View(fn))
}

// change commits op, whose answer comes through answered; step says what for. If ctx ends first it is done all the same.
func (b *BoltRecords) change(ctx context.Context, step string, op store.Op, answered <-chan error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if err := b.store.Submit(op, store.Urgent); err != nil {
		return b.failure(step, err)
	}
	select {
	case err := <-answered:
		return b.failure(step, err)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", step, ctx.Err())
	}
}

// failure says in which step err came, and that the store is to blame where it is.
func (b *BoltRecords) failure(step string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrJobs), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", step, err)
	}
	return fmt.Errorf("%s: %w", step, unavailable(err))
}

// shown is the state that people see.
func (b *BoltRecords) shown(id DeliveryID, endpoint string, s State) State {
	switch {
	case s != StateWaiting:
		return s
	case b.sending(id):
		return StateSending
	case b.parked(endpoint):
		return StateParked
	}
	return s
}
