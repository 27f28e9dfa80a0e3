package extauthz

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// DefaultRetention is how long ids of a source without a retention of its own are kept.
const DefaultRetention = 30 * 24 * time.Hour

// The inbox's buckets. An id has one row, in one of the first two: open rows are few, rewritten often and stay on few
// pages; done rows are many and written once.
var (
	openBucket    = []byte("inbox_claims") // before inbox_done: RowCheck relies on it
	doneBucket    = []byte("inbox_done")
	contentBucket = []byte("inbox_content")
	countBucket   = []byte("inbox_count")
	clockBucket   = []byte("inbox_clock")

	epochKey  = []byte("epoch")
	newestKey = []byte("newest")
)

// BoltInboxConfig says on what a BoltInbox works.
type BoltInboxConfig struct {
	// Store is open and not running yet; its owner runs and closes it.
	Store *store.Store
	// Retention returns how long ids of a source are kept after they were last seen, and false for a source that is
	// not configured. It decides how exactly "last seen" is kept. Default: DefaultRetention for all.
	Retention func(source string) (time.Duration, bool)
	// SourcePercent is the part of the store's limit that one source may take; past it, its new claims get ErrFull.
	// 0: all of it.
	SourcePercent int
	// Keeper keeps the events of sources in STORE; nil: no claim has one.
	Keeper Keeper
	Logger *slog.Logger
}

// BoltInbox is the Inbox on a store.
type BoltInbox struct {
	store     *store.Store
	retention func(string) (time.Duration, bool)
	keeper    Keeper
	log       *slog.Logger
	waits     waits
	shares    shares
	touching  atomic.Int64

	opened time.Time // with its monotonic reading: leases are measured from here
	epoch  uint64    // number of this opening of the store
	newest int64     // the newest time, unix milliseconds, that the store held when it was opened; 0: none
}

var _ Inbox = (*BoltInbox)(nil)

// NewBoltInbox makes the inbox's buckets in cfg.Store and notes the opening. It starts no goroutine; claims are
// answered while the store runs.
func NewBoltInbox(cfg BoltInboxConfig) (*BoltInbox, error) {
	if cfg.Store == nil {
		return nil, errors.New("bolt inbox without a store")
	}
	b := &BoltInbox{
		store:     cfg.Store,
		retention: cfg.Retention,
		keeper:    cfg.Keeper,
		log:       cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		shares:    shares{percent: cmp.Or(cfg.SourcePercent, 100)},
		opened:    time.Now(),
	}
	if b.retention == nil {
		b.retention = func(string) (time.Duration, bool) { return DefaultRetention, true }
	}
	err := b.store.Setup(func(tx *store.Tx) error {
		for _, name := range [][]byte{openBucket, doneBucket, contentBucket, countBucket, clockBucket, versionBucket} {
			if err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		b.newest = int64(getUint64(tx, clockBucket, newestKey))
		b.epoch = getUint64(tx, clockBucket, epochKey) + 1
		return tx.Put(clockBucket, epochKey, binary.BigEndian.AppendUint64(nil, b.epoch))
	})
	switch {
	case errors.Is(err, store.ErrWrite):
		// A full disk keeps nobody from starting. Claims of this opening may be written once there is room, and must not be
		// taken for those of the next one, which has the number that could not be noted: this is one that no count reaches.
		var random [8]byte
		rand.Read(random[:]) // never fails: crypto/rand
		b.epoch = 1<<63 | binary.BigEndian.Uint64(random[:])
		b.log.LogAttrs(context.Background(), slog.LevelWarn, "the store did not take a note of this start", slog.Any("err", err))
	case err != nil:
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	return b, nil
}

func getUint64(tx *store.Tx, bucket, key []byte) uint64 {
	v := tx.Get(bucket, key)
	if len(v) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(v)
}

// Claim implements Inbox. A duplicate of a DONE id, and of one that was set aside, costs no commit.
func (b *BoltInbox) Claim(ctx context.Context, req ClaimRequest) (Claim, error) {
	if err := ctx.Err(); err != nil {
		return Claim{}, ctx.Err()
	}
	if req.Lease < time.Millisecond || req.OnUnknown == 0 {
		return Claim{}, fmt.Errorf("claim %s of %s: no lease or no way out of it", req.Key.ID, req.Key.Source)
	}
	if len(req.Split) > 0 {
		return b.split(req.Split)
	}
	op := newClaimOp(b, req)
	seen, err := b.seen(op)
	if err != nil {
		return Claim{}, unavailable(err)
	}
	if seen != 0 {
		return Claim{Outcome: seen}, nil
	}
	if req.Store != nil {
		if op.keeping, err = b.keeper.Prepare(req.Store); err != nil {
			return Claim{}, unavailable(err)
		}
	}
	if err := b.store.Submit(op, store.Urgent); err != nil {
		return Claim{}, unavailable(err)
	}
	select {
	case <-op.answered:
	case <-ctx.Done():
		if gone := op.abandon(); gone && op.keeping == nil {
			return Claim{}, ctx.Err()
		}
		// The committer was first; or it may be reading the event, which is the caller's again with our return.
		<-op.answered
		if op.phase.Load() == claimAbandoned {
			return Claim{}, ctx.Err()
		}
	}
	switch {
	case op.err != nil:
		return Claim{}, unavailable(op.err)
	case op.full:
		return Claim{}, ErrFull
	case ctx.Err() != nil && op.claim.Outcome == Claimed:
		b.release(op.key, op.claim.Token)
		return Claim{}, ctx.Err()
	}
	return op.claim, nil
}

// seen answers op if one of its keys is DONE or was set aside, or if all its parts are DONE, by reading alone, and notes that they
// were seen again. Zero: it is for the committer to say.
func (b *BoltInbox) seen(op *claimOp) (outcome Outcome, err error) {
	var touch [][]byte
	now := time.Now().UnixMilli()
	again := func(key []byte, r *row) {
		if b.stale(op.req.Key.Source, now-r.Last) {
			touch = append(touch, bytes.Clone(key))
		}
	}
	err = b.store.View(func(tx *store.Tx) error {
		for key := range op.keys() {
			value := tx.Get(doneBucket, key)
			if value == nil {
				continue
			}
			r, err := decodeRow(value)
			if err != nil {
				return err
			}
			if outcome = op.again(&r); outcome != 0 {
				again(key, &r)
			}
			return nil
		}
		all, err := op.seenParts(tx, again)
		if all {
			outcome = Duplicate
		} else {
			touch = nil
		}
		return err
	})
	for _, key := range touch {
		b.touch(key, now)
	}
	return outcome, err
}

// split claims the events of a request together. It returns once all that it will write is written, for it reads them until then.
func (b *BoltInbox) split(requests []ClaimRequest) (Claim, error) {
	op := &splitOp{answered: make(chan struct{})}
	unseen := false
	for _, req := range requests {
		c := newClaimOp(b, req)
		if req.Store == nil {
			return Claim{}, fmt.Errorf("claim %s of %s: a part of a request without its event", req.Key.ID, req.Key.Source)
		}
		op.claims = append(op.claims, c)
		seen, err := b.seen(c)
		if err != nil {
			return Claim{}, unavailable(err)
		}
		if c.claim.Outcome = seen; seen == 0 {
			unseen = true
		}
	}
	if !unseen {
		return op.answer()
	}
	for _, c := range op.claims {
		if c.claim.Outcome != 0 {
			continue
		}
		var err error
		if c.keeping, err = b.keeper.Prepare(c.req.Store); err != nil {
			return Claim{}, unavailable(err)
		}
	}
	op.claims = slices.DeleteFunc(op.claims, func(c *claimOp) bool { return c.claim.Outcome != 0 })
	if err := b.store.Submit(op, store.Urgent); err != nil {
		return Claim{}, unavailable(err)
	}
	<-op.answered
	return op.answer()
}

// Settle implements Inbox.
func (b *BoltInbox) Settle(ctx context.Context, key Key, token Token, end End, wait bool) error {
	switch end {
	case EndDone, EndReleased:
	case EndUnknown:
		return nil // nothing is learned: the lease goes on, and its end decides
	default:
		return fmt.Errorf("settle %s of %s: end %d", key.ID, key.Source, end)
	}
	op := &settleOp{b: b, key: appendKey(nil, key), token: token, end: end}
	if !wait {
		return unavailable(b.store.Submit(op, store.Persistent))
	}
	op.answered = make(chan error, 1)
	if err := b.store.Submit(op, store.Lazy); err != nil {
		return unavailable(err)
	}
	select {
	case err := <-op.answered:
		return unavailable(err)
	case <-ctx.Done():
		return ctx.Err() // it is settled all the same
	}
}

// release gives up a claim that nobody will use.
func (b *BoltInbox) release(key []byte, token Token) {
	op := &settleOp{b: b, key: key, token: token, end: EndReleased}
	if err := b.store.Submit(op, store.Persistent); err != nil {
		// The claim ends with its lease.
		b.log.LogAttrs(context.Background(), slog.LevelWarn, "release claim", slog.Any("err", err))
	}
}

// unavailable marks err, unless nil, as ErrUnavailable.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// decodeRow is parseRow for rows of the store: a malformed one means that the file cannot be trusted.
func decodeRow(value []byte) (row, error) {
	r, err := parseRow(value)
	if err != nil {
		return row{}, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return r, nil
}

// mono is the time since the store was opened, in milliseconds, which no change of the wall clock touches.
func (b *BoltInbox) mono() int64 { return time.Since(b.opened).Milliseconds() }

// remaining is the rest of r's lease, 0 or less once it has ended.
func (b *BoltInbox) remaining(r *row) time.Duration {
	if r.Epoch == b.epoch {
		return r.Lease - time.Duration(b.mono()-r.Mono)*time.Millisecond
	}
	// The lease is older than this process: the wall clock at the opening says what was left then, but never more than
	// one lease.
	left := time.Duration(r.Start-b.opened.UnixMilli())*time.Millisecond + r.Lease
	return min(max(left, 0), r.Lease) - time.Since(b.opened)
}

// state is what r's state means now: a claim under HOLD becomes UNKNOWN when its lease ends.
func (b *BoltInbox) state(r *row) State {
	if r.State == StatePending && r.OnUnknown == OnUnknownHold && b.remaining(r) <= 0 {
		return StateUnknown
	}
	return r.State
}

func newToken() Token {
	var t Token
	rand.Read(t[:]) // never fails: crypto/rand
	return t
}
