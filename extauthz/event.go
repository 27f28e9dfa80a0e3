package extauthz

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/eventtype"
	"github.com/sidehook/sidehook/internal/signature"
)

const (
	// maxPartBytes bounds the ids of a request's events that are looked up with its claim. The requests that senders make have
	// up to a thousand events, with ids of a UUID's length.
	maxPartBytes = 64 << 10
	// maxSplitFactor bounds what a request may grow to, against max_body, when each of its events gets a document of its own.
	maxSplitFactor = 4
	// maxSeenBytes bounds x-sidehook-seen-ids.
	maxSeenBytes = 4 << 10
)

// ChangeRule says which events of a source tell of one change. The zero value is off.
type ChangeRule struct {
	// Object is the path of the id of what has changed.
	Object signature.Path
	// Types are the types of the events that tell of it, as patterns of eventtype.Matches.
	Types []string
	// Window is how long after one of them another is of the same change.
	Window time.Duration
}

// read returns the change of which an event tells.
func (r *ChangeRule) read(doc []byte, eventType string) Change {
	if r.Window <= 0 || !slices.ContainsFunc(r.Types, func(p string) bool { return eventtype.Matches(p, eventType) }) {
		return Change{}
	}
	object, ok := r.Object.Find(doc)
	if !ok {
		return Change{}
	}
	return Change{Hash: hashParts("change", r.Object.String(), object), Window: r.Window}
}

// LiveRule tells events of the real world from those of the sender's test mode. The zero value takes all for the former.
type LiveRule struct {
	// JSON is where the mode stands, Value what stands there in events of the real world.
	JSON  signature.Path
	Value string
}

// isTest reports whether an event is of the test mode. One that does not say is not.
func (r *LiveRule) isTest(doc []byte) bool {
	mode, ok := r.JSON.Find(doc)
	return ok && mode != r.Value
}

// EventsRule says where the events of a request stand that may carry several.
type EventsRule struct {
	// Array is the path of their array; the zero path: the body is it.
	Array signature.Path
	// ID and Type are paths within an event; zero: it has none.
	ID, Type signature.Path
}

// parts returns the ids of the events of a request, each once, and whether all have one. None, where they are more than a claim
// looks up.
func (r *EventsRule) parts(events signature.Array) (parts []string, whole bool) {
	whole = events.Len() > 0
	size := 0
	seen := make(map[string]bool)
	for i := range events.Len() {
		id, ok := r.ID.Find(events.Item(i))
		if !ok {
			whole = false
			continue
		}
		id = keyID(id)
		if seen[id] {
			continue
		}
		seen[id] = true
		if size += len(id); size > maxPartBytes {
			return nil, false
		}
		parts = append(parts, id)
	}
	return parts, whole
}

// about is what a verified message says beside its id and type, as far as its source asks. It shares no memory with the message.
type about struct {
	// ignore: the event is not to reach the app, for that reason.
	ignore     bool
	ignoredFor IgnoredFor
	version    Version
	change     Change
	parts      []string
	whole      bool
	// unversioned: the source compares versions, and the event tells none that can be read.
	unversioned bool
}

// tell reads what msg is about; its type is known.
func (b *bound) tell(msg *signature.Message, eventType string) about {
	src := b.source
	a := about{ignore: !src.wants(eventType)}
	if !src.reads() {
		return a
	}
	doc := src.Verifier.Document(msg)
	var events signature.Array
	if src.Events != nil {
		events, _ = src.Events.Array.Elements(doc)
	}
	if src.Events != nil && events.Len() > 0 {
		a.parts, a.whole = src.Events.parts(events)
		a.ignore = src.leavesOut(events)
	}
	if src.Live.isTest(doc) {
		a.ignore, a.ignoredFor = true, IgnoredForMode
	}
	a.version = src.Version.read(doc)
	a.unversioned = !src.Version.At.IsZero() && a.version.At == ""
	a.change = src.Change.read(doc, eventType)
	return a
}

// reads reports whether anything is asked of a message beside its id and type.
func (s *Source) reads() bool {
	return s.Events != nil || !s.Live.JSON.IsZero() || !s.Version.At.IsZero() || s.Change.Window > 0
}

// leavesOut reports whether the source's types leave out every event of a request.
func (s *Source) leavesOut(events signature.Array) bool {
	for i := range events.Len() {
		eventType, _ := s.Events.Type.Find(events.Item(i))
		if s.wants(eventType) {
			return false
		}
	}
	return true
}

// split makes a claim of each event of a request in STORE: whole is the request's own, with the request as its event. The
// document of each is the request's, with the array holding that one alone. It returns none where the request is kept as one:
// it has no events, or too many, or they would grow to too much. extra is what they take beside the body.
func (b *bound) split(whole ClaimRequest) (claims []ClaimRequest, extra int64) {
	src := b.source
	if !src.Split || src.Events == nil || whole.Store == nil {
		return nil, 0
	}
	body := whole.Store.Body
	events, ok := src.Events.Array.Elements(body)
	n := events.Len()
	if !ok || n == 0 {
		return nil, 0
	}
	extra = int64(events.Around())*int64(n) + int64(len(body)-events.Around())
	if extra > maxSplitFactor*b.maxBody {
		return nil, 0
	}
	for i := range n {
		claims = append(claims, b.part(whole, events, i))
	}
	return claims, extra
}

// part makes the claim of one event of a request.
func (b *bound) part(whole ClaimRequest, events signature.Array, i int) ClaimRequest {
	src := b.source
	c, stored := whole, *whole.Store
	id, ok := src.Events.ID.Find(events.Item(i))
	if !ok {
		// What tells it from the others of the request is its place, and what tells the request from others is its id.
		id = whole.Key.ID + "#" + strconv.Itoa(i+1)
	}
	c.Key.ID = keyID(id)
	c.Was = slices.Clone(whole.Was)
	for j := range c.Was {
		c.Was[j].ID = c.Key.ID
	}
	if !src.Events.Type.IsZero() {
		c.Type, _ = src.Events.Type.Find(events.Item(i))
		c.Type = strings.Clone(c.Type[:min(len(c.Type), maxIDLen)])
	}
	stored.Key, stored.Type, stored.Shown, stored.Body = c.Key, c.Type, headerText(c.Key.ID), events.Alone(i)
	if !src.OrderBy.JSON.IsZero() {
		key, _ := src.OrderBy.JSON.Find(stored.Body)
		stored.Order = keyID(key)
	}
	c.ContentWindow = 0                         // the hash is the request's
	c.Parts, c.Whole = []string{c.Key.ID}, true // it may have come in a request that was not split
	if !c.Ignore || c.IgnoredFor == IgnoredForType {
		c.Ignore, c.IgnoredFor = !src.wants(c.Type), IgnoredForType
	}
	c.Version = src.Version.read(stored.Body)
	c.Change = src.Change.read(stored.Body, c.Type)
	c.Store = &stored
	return c
}

// seenText is the value of x-sidehook-seen-ids: ids as x-sidehook-event-id has them, with commas encoded too, and a comma between
// them. Where not all fit, the list ends in "...".
func seenText(ids []string) string {
	const more = "..."
	var b strings.Builder
	for i, id := range ids {
		text := strings.ReplaceAll(headerText(id), ",", "%2C")
		if text == more {
			text = "%2E.."
		}
		room := maxSeenBytes
		if i < len(ids)-1 {
			room -= len(more) + 1
		}
		if b.Len()+len(text)+1 > room {
			text = more
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text)
		if text == more {
			break
		}
	}
	return b.String()
}
