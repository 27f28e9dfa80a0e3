package extauthz

import (
	"bytes"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// claimOp is a Claim on its way through the committer.
type claimOp struct {
	b     *BoltInbox
	req   ClaimRequest
	key   []byte
	was   [][]byte
	token Token
	// keeping is the event of a claim in STORE, nil in PASS.
	keeping Keeping

	// phase is claimWaiting until either side ends it: the committer by answering, the caller by going away.
	phase    atomic.Uint32
	answered chan struct{}

	// What Apply found; the caller's after answered is closed.
	claim Claim
	full  bool
	err   error
	// put: the event was written in the last transaction.
	put bool
	// waitFor is the key of the row that an InFlight claim waits for.
	waitFor []byte
	// fresh are the request's parts that no other claim has brought.
	fresh []string
}

const (
	claimWaiting = iota
	claimAnswered
	claimAbandoned
)

func newClaimOp(b *BoltInbox, req ClaimRequest) *claimOp {
	op := &claimOp{b: b, req: req, key: appendKey(make([]byte, 0, 64), req.Key), token: newToken(), answered: make(chan struct{})}
	for _, k := range req.Was {
		op.was = append(op.was, appendKey(nil, k))
	}
	return op
}

// keys are the row's key and those of earlier names.
func (op *claimOp) keys() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(op.key) {
			return
		}
		for _, k := range op.was {
			if !yield(k) {
				return
			}
		}
	}
}

// abandon reports whether the caller went away before there was an answer; what was or will be claimed is then released.
func (op *claimOp) abandon() bool { return op.phase.CompareAndSwap(claimWaiting, claimAbandoned) }

// Apply implements store.Op.
func (op *claimOp) Apply(tx *store.Tx) error {
	op.claim, op.full, op.waitFor, op.put = Claim{}, false, nil, false
	if op.phase.Load() == claimAbandoned {
		return nil
	}
	free, letThrough, err := op.look(tx)
	if err != nil || op.answeredAlready() {
		return err
	}
	var aside State
	if !letThrough {
		aside, err = op.judge(tx)
	}
	if err == nil && aside == 0 && !op.answeredAlready() {
		if err = op.meetContent(tx); err == nil && !op.answeredAlready() {
			err = op.meetParts(tx)
		}
	}
	if err != nil || op.answeredAlready() {
		return err
	}
	if aside != 0 {
		return op.setAside(tx, free, aside)
	}
	if op.full, err = op.noRoom(tx); op.full || err != nil {
		return err
	}
	r, err := op.row(tx, free, truncateType(op.req.Type)) // which lies on the stack here
	if op.full = errors.Is(err, ErrFull); err != nil {
		if op.full {
			return nil
		}
		return err
	}
	return op.write(tx, free, &r)
}

// answeredAlready reports whether something that was found has decided on the claim.
func (op *claimOp) answeredAlready() bool { return op.claim.Outcome != 0 }

// look answers the claim by the rows of its id, or returns those that give way to it, and whether a person let the id through.
func (op *claimOp) look(tx *store.Tx) (free []found, letThrough bool, err error) {
	for key := range op.keys() {
		bucket, value := doneBucket, tx.Get(doneBucket, key)
		if value == nil {
			bucket, value = openBucket, tx.Get(openBucket, key)
		}
		if value == nil {
			continue
		}
		r, err := decodeRow(value)
		if err != nil {
			return nil, false, err
		}
		f := found{bucket, key, value, r}
		if op.claim.Outcome = op.again(&f.row); op.answeredAlready() {
			return nil, false, nil
		}
		if !f.row.State.settled() {
			if err := op.meet(tx, key, f.value, &f.row); err != nil || op.answeredAlready() {
				return nil, false, err
			}
			letThrough = letThrough || f.row.letThrough()
		}
		free = append(free, f)
	}
	return free, letThrough, nil
}

// judge says as what an event is to be kept from the app; zero: it is not. What is with the app now may answer the claim.
func (op *claimOp) judge(tx *store.Tx) (State, error) {
	if op.req.Ignore {
		return StateIgnored, nil
	}
	stale, err := op.judgeVersion(tx)
	switch {
	case err != nil || op.answeredAlready():
		return 0, err
	case stale:
		return StateStale, nil
	}
	told, err := op.judgeChange(tx)
	if told {
		return StateDuplicateChange, err
	}
	return 0, err
}

// row is what a claim of that type puts in place of the rows that are free: STORED with the event, or PENDING.
func (op *claimOp) row(tx *store.Tx, free []found, eventType []byte) (row, error) {
	now := time.Now()
	r := row{First: now.UnixMilli(), Last: now.UnixMilli(), Type: eventType, Version: op.req.Version}
	for i := range free {
		if f := &free[i]; !f.row.neverClaimed() {
			r.First = min(r.First, f.row.First)
			r.Older = appendOlder(r.Older, &f.row)
		}
	}
	if op.keeping != nil {
		var err error
		r.State, r.Older = StateStored, nil
		r.Ref, err = op.keeping.Put(tx)
		op.put = err == nil
		return r, err
	}
	r.State, r.OnUnknown = StatePending, op.req.OnUnknown
	r.Start, r.Lease, r.Epoch, r.Mono, r.Token = now.UnixMilli(), op.req.Lease, op.b.epoch, op.b.mono(), op.token
	return r, nil
}

// found is a row of one of the claim's keys that gives way to it.
type found struct {
	bucket, key, value []byte
	row                row
}

// again answers the claim by a settled row of its id; zero: by nothing, for there the id is free or its lease decides.
func (op *claimOp) again(r *row) Outcome {
	switch {
	case r.State.forApp():
		return Duplicate
	case r.State == StateIgnored && op.req.Ignore,
		r.State == StateStale && op.req.Version.At != "", // a mark only ever moves on
		r.State == StateDuplicateChange && op.req.Change.Window > 0:
		return asideOutcomes[r.State]
	}
	return 0
}

// asideOutcomes are the answers to events that are set aside.
var asideOutcomes = map[State]Outcome{StateIgnored: Ignored, StateStale: Stale, StateDuplicateChange: DuplicateChange}

// noRoom reports whether the store, or the source's share of it, is full.
func (op *claimOp) noRoom(tx *store.Tx) (bool, error) {
	if op.b.store.Full() {
		return true, nil
	}
	return op.b.shares.exceeded(tx, op.b.store, op.req.Key.Source)
}

// meet answers the claim by an open row that is not free.
func (op *claimOp) meet(tx *store.Tx, key, value []byte, r *row) error {
	left := op.b.remaining(r)
	switch {
	case r.State == StateReleased:
	case r.State == StatePending && left > 0:
		op.wait(key, left)
	case r.State == StateUnknown:
		op.claim = Claim{Outcome: Held}
	case r.OnUnknown == OnUnknownHold:
		op.claim = Claim{Outcome: Held}
		return changeState(tx, key, value, r, StateUnknown)
	}
	return nil
}

// wait answers the claim by an open one, whose lease has left to run.
func (op *claimOp) wait(key []byte, left time.Duration) {
	op.claim = Claim{Outcome: InFlight, RetryAfter: left}
	op.waitFor = bytes.Clone(key)
}

// own reports whether key is that of one of the claim's own rows.
func (op *claimOp) own(key []byte) bool {
	for k := range op.keys() {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}

// setAside keeps the event as one that is not to reach the app. Where an earlier delivery of it went there, that may still
// succeed, and its row stays, RELEASED.
func (op *claimOp) setAside(tx *store.Tx, free []found, s State) error {
	now := time.Now().UnixMilli()
	for i := range free {
		if f := &free[i]; !f.row.neverClaimed() {
			freed := f.row
			freed.State, freed.Token, freed.Older, freed.Last = StateReleased, Token{}, appendOlder(nil, &f.row), now
			op.claim.Outcome = asideOutcomes[s]
			return replaceRow(tx, f.bucket, f.key, f.value, &f.row, &freed)
		}
	}
	var err error
	if op.full, err = op.noRoom(tx); op.full || err != nil {
		return err
	}
	if err := removeAll(tx, free); err != nil {
		return err
	}
	r := row{State: s, First: now, Last: now, Type: truncateType(op.req.Type)}
	if s == StateIgnored {
		r.IgnoredFor = op.req.IgnoredFor
	}
	op.claim.Outcome = asideOutcomes[s]
	return putRow(tx, doneBucket, op.key, &r)
}

// removeAll deletes the rows that give way.
func removeAll(tx *store.Tx, free []found) error {
	for i := range free {
		f := &free[i]
		if err := removeRow(tx, f.bucket, f.key, f.value, &f.row); err != nil {
			return err
		}
	}
	return nil
}

// write puts r in place of the rows that are free.
func (op *claimOp) write(tx *store.Tx, free []found, r *row) error {
	if err := removeAll(tx, free); err != nil {
		return err
	}
	if err := op.noteContents(tx); err != nil {
		return err
	}
	if r.State == StateStored {
		op.claim.Outcome = Stored
		if err := moveMark(tx, op.key, op.req.Version); err != nil {
			return err
		}
		return putRow(tx, doneBucket, op.key, r)
	}
	op.claim.Outcome, op.claim.Token = Claimed, op.token
	return putRow(tx, openBucket, op.key, r)
}

// Done implements store.Op.
func (op *claimOp) Done(err error) {
	op.err = err
	if op.put {
		op.keeping.Done(err)
	}
	if err == nil && op.waitFor != nil {
		op.claim.Wait = op.b.waits.add(string(op.waitFor), op.claim.RetryAfter)
	}
	answered := op.phase.CompareAndSwap(claimWaiting, claimAnswered)
	written := op.claim.Outcome == Claimed
	close(op.answered)
	// A commit that failed may still have been written.
	if written && (!answered || err != nil) && !store.Fatal(err) {
		op.b.release(op.key, op.token)
	}
}

// appendOlder adds to older the tokens of r whose late success still counts.
func appendOlder(older []Token, r *row) []Token {
	if r.State != StateReleased {
		older = append(older, r.Token)
	}
	older = append(older, r.Older...)
	return older[:min(len(older), maxOlderTokens)]
}

// settleOp is a Settle on its way through the committer.
type settleOp struct {
	b        *BoltInbox
	key      []byte
	token    Token
	end      End
	answered chan error // nil: nobody waits
	ended    bool
}

// Apply implements store.Op.
func (op *settleOp) Apply(tx *store.Tx) error {
	op.ended = false
	value := tx.Get(openBucket, op.key)
	if value == nil {
		return nil // DONE already, purged, or released by a person
	}
	r, err := decodeRow(value)
	if err != nil {
		return err
	}
	older := slices.Index(r.Older, op.token)
	own := r.State != StateReleased && r.Token == op.token
	switch {
	case !own && older < 0:
		return nil
	case op.end == EndDone:
		op.ended = true
		return finish(tx, op.key, value, &r)
	case own:
		op.ended = true
		return free(tx, op.key, value, &r, r.Older)
	}
	// An older lease has ended without success: nothing is left to wait for from it.
	rest := slices.Delete(slices.Clone(r.Older), older, older+1)
	if r.State == StateReleased {
		return free(tx, op.key, value, &r, rest)
	}
	changed := r
	changed.Older = rest
	return replaceRow(tx, openBucket, op.key, value, &r, &changed)
}

// Done implements store.Op.
func (op *settleOp) Done(err error) {
	if err == nil && op.ended {
		op.b.waits.end(string(op.key))
	}
	if op.answered == nil {
		return
	}
	op.answered <- err
	if err != nil && !store.Fatal(err) {
		// The caller knows that it is not on disk; it shall still get there.
		again := &settleOp{b: op.b, key: op.key, token: op.token, end: op.end}
		_ = op.b.store.Submit(again, store.Persistent)
	}
}

// finish makes an open row DONE.
func finish(tx *store.Tx, key, value []byte, r *row) error {
	if err := removeRow(tx, openBucket, key, value, r); err != nil {
		return err
	}
	if err := moveMark(tx, key, r.Version); err != nil {
		return err
	}
	done := row{State: StateDone, First: r.First, Last: r.Last, Type: r.Type}
	return putRow(tx, doneBucket, key, &done)
}

// free gives an open row's id to the next that asks. The row stays only while a success of an older lease may come.
func free(tx *store.Tx, key, value []byte, r *row, older []Token) error {
	if len(older) == 0 {
		return removeRow(tx, openBucket, key, value, r)
	}
	freed := *r
	freed.State, freed.Token, freed.Older = StateReleased, Token{}, older
	return replaceRow(tx, openBucket, key, value, r, &freed)
}

func changeState(tx *store.Tx, key, value []byte, r *row, to State) error {
	changed := *r
	changed.State = to
	return replaceRow(tx, openBucket, key, value, r, &changed)
}
