package egress

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

const (
	// DefaultOverlap is how long the keys before a new one sign on.
	DefaultOverlap = 24 * time.Hour
	// MaxOverlap bounds it: a key that shall go must go one day.
	MaxOverlap = 30 * 24 * time.Hour
	// maxKeys bounds the keys of an endpoint: each one is a signature in the header of each attempt.
	maxKeys = 8
)

// tidyStep bounds the time without a look at the rows, so that a clock that was set does not matter for long.
const tidyStep = time.Hour

// tidyRows bounds the rows that one write of tidy's takes.
const tidyRows = 256

// Add adds an endpoint with a key of its own. shown is what the receiver verifies with, which is not kept readable. It
// returns ErrSpec, ErrExists, ErrNoSealer, ErrLimit, ErrFull or ErrUnavailable, wrapped; after the last one the endpoint
// may have been added.
func (r *Registry) Add(ctx context.Context, id string, spec *egressv1.EndpointSpec, kind egressv1.KeyKind) (g Registration, shown string, err error) {
	if !validEndpointID(id) {
		return g, "", fmt.Errorf("%w: id: want 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or a digit", ErrSpec)
	}
	r.change.Lock()
	defer r.change.Unlock()
	was := r.current.Load()
	switch {
	case was.byID[id] != nil || was.stored[id] != nil:
		return g, "", fmt.Errorf("%q: %w", id, ErrExists)
	case r.cfg.Sealer == nil:
		return g, "", ErrNoSealer
	case len(was.stored) >= MaxAPIEndpoints:
		return g, "", fmt.Errorf("%w: %d endpoints", ErrLimit, MaxAPIEndpoints)
	case r.cfg.Store.Full():
		return g, "", ErrFull
	case !was.set:
		return g, "", fmt.Errorf("%w: the endpoints of the configuration are not in force yet", ErrUnavailable)
	}
	if err := checkSpec(spec, was.config.Filter); err != nil {
		return g, "", err
	}
	now := time.Now()
	key, shown, err := makeKey(r.cfg.Sealer, id, kind, now)
	if err != nil {
		return g, "", err
	}
	row := &egressv1.StoredEndpoint{
		Spec: proto.CloneOf(spec), Keys: []*egressv1.StoredKey{key}, CreateTime: timeMessage(now), UpdateTime: timeMessage(now),
	}
	if err := sealHeaders(r.cfg.Sealer, id, row); err != nil {
		return g, "", err
	}
	// An outbox that knows an endpoint without a row is put right by the next start; a row without an endpoint would be one
	// for which events are lost.
	if err := r.tell(context.WithoutCancel(ctx), map[string]bool{id: true}); err != nil {
		return g, "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	g, err = r.replace(ctx, id, row)
	return g, shown, err
}

// Update changes the fields of an endpoint of the API that paths name (see UpdateEndpointRequest) to those of spec. It
// returns ErrSpec, ErrNotFound, ErrConfigured, ErrNoSealer or ErrUnavailable, wrapped.
func (r *Registry) Update(ctx context.Context, id string, spec *egressv1.EndpointSpec, paths []string) (before, after Registration, err error) {
	r.change.Lock()
	defer r.change.Unlock()
	before, row, err := r.own(id)
	if err != nil {
		return before, after, err
	}
	if row.Spec, err = applyMask(row.GetSpec(), spec, paths); err != nil {
		return before, after, err
	}
	checked := row.GetSpec()
	if !slices.Contains(paths, "headers") { // those that are kept have no value here, and were checked
		checked = proto.CloneOf(checked)
		checked.Headers = nil
	}
	if err := checkSpec(checked, r.Filter()); err != nil {
		return before, after, err
	}
	if slices.Contains(paths, "headers") {
		if len(row.GetSpec().GetHeaders()) > 0 && r.cfg.Sealer == nil {
			return before, after, ErrNoSealer
		}
		if err := sealHeaders(r.cfg.Sealer, id, row); err != nil {
			return before, after, err
		}
	}
	row.UpdateTime = timeMessage(time.Now())
	after, err = r.replace(ctx, id, row)
	return before, after, err
}

// Rotate gives an endpoint of the API a new key, of the kind of the newest before it where kind is unspecified. The keys
// before it sign on for overlap, or until their own earlier end. Errors: see Add and Update.
func (r *Registry) Rotate(ctx context.Context, id string, kind egressv1.KeyKind, overlap time.Duration) (g Registration, shown string, err error) {
	if overlap < 0 || overlap > MaxOverlap {
		return g, "", fmt.Errorf("%w: overlap: %s is not within 0 to %s", ErrSpec, overlap, MaxOverlap)
	}
	r.change.Lock()
	defer r.change.Unlock()
	g, row, err := r.own(id)
	if err != nil {
		return g, "", err
	}
	if r.cfg.Sealer == nil {
		return g, "", ErrNoSealer
	}
	if kind == egressv1.KeyKind_KEY_KIND_UNSPECIFIED {
		kind = row.GetKeys()[0].GetKind()
	}
	now := time.Now()
	key, shown, err := makeKey(r.cfg.Sealer, id, kind, now)
	if err != nil {
		return g, "", err
	}
	end := timeMessage(now.Add(overlap))
	for _, k := range row.GetKeys() {
		if k.GetUntilTime() == nil || k.GetUntilTime().AsTime().After(end.AsTime()) {
			k.UntilTime = end
		}
	}
	row.Keys = slices.DeleteFunc(row.GetKeys(), func(k *egressv1.StoredKey) bool { return !signs(k, now) })
	row.Keys = slices.Insert(row.GetKeys(), 0, key)
	if len(row.GetKeys()) > maxKeys {
		return g, "", fmt.Errorf("%w: %d keys sign for %q: wait until one ends, or rotate without overlap", ErrLimit, maxKeys, id)
	}
	row.UpdateTime = timeMessage(now)
	g, err = r.replace(ctx, id, row)
	return g, shown, err
}

// Remove removes an endpoint of the API, also a shadowed one; what waits for it is cancelled. It returns ErrNotFound,
// ErrConfigured or ErrUnavailable, wrapped.
func (r *Registry) Remove(ctx context.Context, id string) (Registration, error) {
	r.change.Lock()
	defer r.change.Unlock()
	was := r.current.Load()
	entry := was.stored[id]
	switch {
	case entry == nil && was.byID[id] != nil:
		return Registration{}, fmt.Errorf("%q: %w", id, ErrConfigured)
	case entry == nil:
		return Registration{}, fmt.Errorf("endpoint %q: %w", id, ErrNotFound)
	}
	return r.replace(ctx, id, nil)
}

// own returns the endpoint of the API that is in force under id, and a copy of its row. r.change is held.
func (r *Registry) own(id string) (Registration, *egressv1.StoredEndpoint, error) {
	g, ok := r.Get(id)
	switch {
	case !ok:
		return g, nil, fmt.Errorf("endpoint %q: %w", id, ErrNotFound)
	case g.Stored == nil:
		return g, nil, fmt.Errorf("%q: %w", id, ErrConfigured)
	}
	return g, proto.CloneOf(g.Stored), nil
}

// replace writes row, nil to remove it, and puts it in force. It returns the endpoint as it is then, or as it was.
// r.change is held.
func (r *Registry) replace(ctx context.Context, id string, row *egressv1.StoredEndpoint) (Registration, error) {
	var value []byte
	if row != nil {
		var err error
		if value, err = encodeDefinition(row); err != nil {
			return Registration{}, err
		}
	}
	if err := r.write(definitionRow{[]byte(id), value}); err != nil {
		return Registration{}, err
	}
	was := r.current.Load()
	now := &registered{set: was.set, config: was.config, byID: was.byID, stored: maps.Clone(was.stored)}
	entry := was.stored[id]
	if row == nil {
		delete(now.stored, id)
	} else {
		entry = newEntry(id, row, openSecrets(r.cfg.Sealer, id, row), was.config)
		now.stored[id] = entry
	}
	g := Registration{Endpoint: entry.endpoint, Stored: entry.row, Shadowed: was.byID[id] != nil}
	r.signal()
	if err := r.put(ctx, now); err != nil {
		return g, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return g, nil
}

// tidy does once what Run does, and returns when there is something to do again.
func (r *Registry) tidy(ctx context.Context) (next time.Duration, err error) {
	r.change.Lock()
	defer r.change.Unlock()
	was := r.current.Load()
	if !was.set {
		return tidyStep, nil
	}
	now := r.wall()
	sure := r.guard.Observe(time.Since(r.opened).Milliseconds(), now.UnixMilli()) == ""
	next = tidyStep
	var rows []definitionRow
	stored := maps.Clone(was.stored)
	for id, entry := range was.stored {
		row := r.tidied(id, entry, now, sure)
		for _, k := range row.GetKeys() {
			if until := k.GetUntilTime(); until != nil && signs(k, now) {
				next = min(next, max(time.Second, until.AsTime().Sub(now)))
			}
		}
		if row == entry.row {
			continue
		}
		if len(rows) == tidyRows {
			next = 0
			break
		}
		value, err := encodeDefinition(row)
		if err != nil {
			return 0, err
		}
		rows = append(rows, definitionRow{[]byte(id), value})
		stored[id] = newEntry(id, row, openSecrets(r.cfg.Sealer, id, row), was.config)
	}
	if len(rows) == 0 && !r.retell && maps.Equal(r.told, was.ids()) {
		return next, nil
	}
	if err := r.write(rows...); err != nil {
		return 0, err
	}
	return next, r.put(ctx, &registered{set: was.set, config: was.config, byID: was.byID, stored: stored})
}

// tidied returns entry's row without the keys that sign no more and with all seals under the first key; entry.row itself
// where it is so already. What cannot be opened is left alone, and so is, unless the clock is sure, a key whose time is over:
// it would be lost for good, and signs on when the clock is right again.
func (r *Registry) tidied(id string, entry *storedEntry, now time.Time, sure bool) *egressv1.StoredEndpoint {
	over := func(k *egressv1.StoredKey) bool { return sure && !signs(k, now) }
	old := func(k *egressv1.StoredKey) bool { return !r.cfg.Sealer.fresh(k.GetSealed()) }
	switch headers := entry.row.GetSealedHeaderValues(); {
	case r.cfg.Sealer == nil, entry.opened.problem != "":
		return entry.row
	case slices.ContainsFunc(entry.row.GetKeys(), over):
	case slices.ContainsFunc(entry.row.GetKeys(), old):
	case len(headers) > 0 && !r.cfg.Sealer.fresh(headers):
	default:
		return entry.row
	}
	row := proto.CloneOf(entry.row)
	row.Keys = slices.DeleteFunc(row.GetKeys(), over)
	for _, k := range row.GetKeys() {
		plain, err := r.cfg.Sealer.open(k.GetSealed(), id, sealedKey, k.GetId())
		if err != nil {
			return entry.row // cannot be: it was opened before
		}
		k.Sealed = r.cfg.Sealer.seal(plain, id, sealedKey, k.GetId())
	}
	for i, f := range entry.opened.headers {
		row.GetSpec().GetHeaders()[i].Value = f.Value
	}
	if err := sealHeaders(r.cfg.Sealer, id, row); err != nil {
		return entry.row
	}
	return row
}

// signs reports whether k's time is not over at now.
func signs(k *egressv1.StoredKey, now time.Time) bool {
	return k.GetUntilTime() == nil || now.Before(k.GetUntilTime().AsTime())
}
