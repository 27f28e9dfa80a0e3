package extauthz

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// listing is what a ListEvents request asks for. Events are listed by the rows of the inbox, or, where the state says that
// they are kept for the app, by what is kept; of DISCARDED ones these come first, and then the rows.
type listing struct {
	StoredFilter
	rows int
	// stored says which of the two this page is of; cursor is where it starts.
	stored bool
	cursor string
}

// What stands in a page token before the cursor: which of the two listings it belongs to.
const (
	tokenClaims = "c"
	tokenStored = "s"
)

// ofStored reports whether events in state s are found by what is kept for the app.
func ofStored(s State) bool {
	switch s {
	case StateStored, StateDelivering, StateDead, StateOrphaned, StateDiscarded:
		return true
	}
	return false
}

// listingOf checks and translates a ListEventsRequest.
func listingOf(m *inboxv1.ListEventsRequest) (l listing, err error) {
	var errs []error
	if n := m.GetPageSize(); n < 0 || n > MaxPageRows {
		errs = append(errs, fmt.Errorf("page_size: %d is not within 0 to %d", n, MaxPageRows))
	}
	l.rows = rowsOf(m.GetPageSize())
	l.StoredFilter, err = filterOf(&inboxv1.Filter{
		Source: m.GetSource(), State: m.GetState(), Tenant: m.GetTenant(), Type: m.GetType(), Reason: m.GetReason(),
		Since: m.GetSince(), Until: m.GetUntil(),
	})
	if err != nil {
		errs = append(errs, err)
	}
	l.stored = ofStored(l.State)
	if l.Reason != "" && !l.stored {
		errs = append(errs, errors.New("reason: goes with state STORED, DELIVERING, DEAD, ORPHANED or DISCARDED"))
	}
	if token := m.GetPageToken(); token != "" {
		rest, ok := strings.CutPrefix(token, l.tokenPrefix())
		kind := rest[:min(1, len(rest))]
		switch {
		case ok && kind == tokenStored && l.stored && len(rest) > 1:
			l.cursor = rest[1:]
		case ok && kind == tokenClaims && (l.State == StateDiscarded || !l.stored && len(rest) > 1):
			l.stored, l.cursor = false, rest[1:]
		default:
			errs = append(errs, errors.New("page_token: not one that this API gave for these filters"))
		}
	}
	return l, errors.Join(errs...)
}

// claims is the filter for rows of the inbox.
func (l *listing) claims() Filter {
	return Filter{
		Source: l.Source, Tenant: l.Tenant, State: l.State, OrStored: l.State == StateDone, Type: l.Type, Since: l.Since, Until: l.Until,
	}
}

// token is what continues the listing after a page whose cursor is next; empty where there is no more.
func (l *listing) token(next string) string {
	switch {
	case next != "" && l.stored:
		return l.tokenPrefix() + tokenStored + next
	case next != "":
		return l.tokenPrefix() + tokenClaims + next
	case l.stored && l.State == StateDiscarded && l.Reason == "":
		return l.tokenPrefix() + tokenClaims
	}
	return ""
}

// tokenPrefix names the filters that a cursor belongs to: going on with other ones would leave out rows in silence. Times
// are not among them, for people give them as how long ago.
func (l *listing) tokenPrefix() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d %q %q %q", l.Source, l.State, l.Type, l.Tenant, l.Reason)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:6]) + "."
}

// filterOf checks and translates a filter; nil selects all.
func filterOf(m *inboxv1.Filter) (f StoredFilter, err error) {
	var errs []error
	f.Source, f.Reason = m.GetSource(), m.GetReason()
	if f.State, err = stateOf(m.GetState()); err != nil {
		errs = append(errs, err)
	}
	if f.Type, err = unescape(m.GetType()); err != nil {
		errs = append(errs, fmt.Errorf("type: %w", err))
	}
	if f.Tenant, err = unescape(m.GetTenant()); err != nil {
		errs = append(errs, fmt.Errorf("tenant: %w", err))
	}
	for _, b := range []struct {
		name string
		from *timestamppb.Timestamp
		to   *time.Time
	}{{"since", m.GetSince(), &f.Since}, {"until", m.GetUntil(), &f.Until}} {
		if b.from == nil {
			continue
		}
		if err := b.from.CheckValid(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
		}
		*b.to = b.from.AsTime()
	}
	if m.GetSince() != nil && m.GetUntil() != nil && !f.Since.Before(f.Until) {
		errs = append(errs, errors.New("until: not after since, so that nothing can match"))
	}
	return f, errors.Join(errs...)
}

// eventKey checks and translates the name of an event.
func eventKey(source, id, tenant string) (Key, error) {
	var errs []error
	if source == "" {
		errs = append(errs, errNoSourceName)
	}
	if id == "" {
		errs = append(errs, errNoEventID)
	}
	raw, err := unescape(id)
	if err != nil {
		errs = append(errs, fmt.Errorf("id: %w", err))
	}
	of, err := unescape(tenant)
	if err != nil {
		errs = append(errs, fmt.Errorf("tenant: %w", err))
	}
	return Key{Source: source, Tenant: of, ID: keyID(raw)}, errors.Join(errs...)
}
