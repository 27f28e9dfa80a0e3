package extauthz

import (
	"context"
	"errors"
	"fmt"
)

// noStored is a StoredRecords that keeps nothing: no source is in STORE.
type noStored struct{}

var _ StoredRecords = noStored{}

var errNoStored = errors.New("no event is kept for the app")

func (noStored) List(context.Context, StoredFilter, string, int) (StoredPage, error) {
	return StoredPage{}, nil
}
func (noStored) Count(context.Context, StoredFilter) (int64, error)         { return 0, nil }
func (noStored) Find(context.Context, ...StoredRef) ([]StoredRecord, error) { return nil, nil }
func (noStored) Get(context.Context, StoredRef) (StoredDetail, error) {
	return StoredDetail{}, ErrNotFound
}
func (noStored) Body(context.Context, StoredRef) ([]byte, error)                 { return nil, ErrNotFound }
func (noStored) Summary(context.Context) ([]StateSummary, error)                 { return nil, nil }
func (noStored) Redeliver(context.Context, ...StoredRef) ([]StoredChange, error) { return nil, nil }
func (noStored) Discard(context.Context, ...StoredRef) ([]StoredChange, error)   { return nil, nil }
func (noStored) Expunge(context.Context, StoredRef) error                        { return ErrNotFound }
func (noStored) StartJob(context.Context, JobSpec) (Job, error) {
	return Job{}, fmt.Errorf("%w: %w", ErrState, errNoStored)
}
func (noStored) Jobs(context.Context) ([]Job, error)            { return nil, nil }
func (noStored) Job(context.Context, uint64) (Job, error)       { return Job{}, ErrNotFound }
func (noStored) CancelJob(context.Context, uint64) (Job, error) { return Job{}, ErrNotFound }
func (noStored) RefText(StoredRef) string                       { return "" }
func (noStored) ParseRef(string) (StoredRef, error)             { return StoredRef{}, errNoStored }
