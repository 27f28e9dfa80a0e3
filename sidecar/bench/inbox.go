package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
)

// claimLease is longer than any run: no claim of a benchmark may end by itself.
const claimLease = time.Hour

// inbox is an inbox on a running store in this process.
type inbox struct {
	*extauthz.BoltInbox
	store *store.Store
	stop  context.CancelCauseFunc
	ended chan error
}

// openInbox opens or makes the inbox in folder; retention may be nil.
func openInbox(ctx context.Context, folder string, retention func(string) (time.Duration, bool)) (*inbox, error) {
	s, err := store.Open(ctx, store.Options{Folder: folder})
	if err != nil {
		return nil, err
	}
	b, err := extauthz.NewBoltInbox(extauthz.BoltInboxConfig{Store: s, Retention: retention})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	i := &inbox{BoltInbox: b, store: s, stop: cancel, ended: make(chan error, 1)}
	go func() { i.ended <- s.Run(ctx) }()
	return i, nil
}

// close ends the store's committer and closes the file.
func (i *inbox) close() error {
	i.stop(errors.New("benchmark over"))
	return errors.Join(<-i.ended, i.store.Close())
}

// settle says what take does about the end of a claim.
type settle uint8

const (
	_ settle = iota
	// settleNever leaves it PENDING.
	settleNever
	// settleQueue reports the app's success and goes on, as the access log does.
	settleQueue
	// settleWait waits until DONE is on disk.
	settleWait
)

// take claims a fresh id of a source.
func (i *inbox) take(ctx context.Context, source, id string, end settle) error {
	key := extauthz.Key{Source: source, ID: id}
	claim, err := i.Claim(ctx, extauthz.ClaimRequest{Key: key, Lease: claimLease, OnUnknown: extauthz.OnUnknownRetry})
	if err != nil {
		return err
	}
	if claim.Outcome != extauthz.Claimed {
		return fmt.Errorf("claim of a fresh id ended as outcome %d", claim.Outcome)
	}
	if end == settleNever {
		return nil
	}
	return i.Settle(ctx, key, claim.Token, extauthz.EndDone, end == settleWait)
}
