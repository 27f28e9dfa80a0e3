package extauthz

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// DefaultMaxBodyBytes is max_body of a source that names none: 1 MiB.
const DefaultMaxBodyBytes = 1 << 20

// table is one set of sources in force.
type table struct {
	sources *Sources
	bound   []bound // by the index of the source
}

// bound is a source together with what the gate keeps of it.
type bound struct {
	source  *Source
	state   *sourceState
	secrets secretHandles
	tenants *tenantKeys // nil: it has none
	origin  string      // public URL without fragment and final slash
	maxBody int64
}

// bind makes a bound.
func bind(src *Source, state *sourceState, secrets secretHandles) bound {
	b := bound{source: src, state: state, secrets: secrets, origin: src.origin(), maxBody: src.MaxBodyBytes}
	if b.maxBody <= 0 {
		b.maxBody = DefaultMaxBodyBytes
	}
	return b
}

// route finds the source of a request: what the route names, else what the raw path matches, unless another reading
// of that path is a source's. The reason is zero where the source shall judge; without a source it says what to do.
func (t *table) route(req *request) (*bound, Reason) {
	if name := req.source(); name != "" {
		i, ok := t.sources.byName[name]
		if !ok {
			return nil, ReasonUnknownSource
		}
		return &t.bound[i], 0
	}
	path := req.path()
	raw := t.sources.find(req.host, req.method, path)
	other, overflow := t.sources.ambiguous(req.host, req.method, path, raw)
	switch {
	case other >= 0:
		return &t.bound[other], ReasonAmbiguousPath
	case overflow:
		return nil, ReasonAmbiguousPath
	case raw == openRoute:
		return nil, ReasonOpen
	case raw == noRoute:
		return nil, ReasonUnmatched
	default:
		return &t.bound[raw], 0
	}
}

// verified is what a verified message says of itself. It shares no memory with the message.
type verified struct {
	tenant    string // empty: none
	id        string // as keys hold it; empty: the scheme has none
	event     string // id as headers and logs hold it
	eventType string
	kind      string // eventType as headers hold it
	content   [sha256.Size]byte
	keys      []signature.Key // with which it was verified
	about
}

// examine judges all of a request that needs no inbox. The decision's reason is zero where the message is verified,
// or where the source verifies nothing.
func (b *bound) examine(ctx context.Context, keys KeySource, req *request, now time.Time) (verified, decision) {
	if d := b.inspect(req); d.reason != 0 {
		return verified{}, d
	}
	if b.source.Verifier == nil {
		return verified{}, decision{}
	}
	tenant, ok := b.tenant(req.path())
	if !ok {
		return verified{}, decision{reason: ReasonUnknownTenant}
	}
	from := sender{strings.Clone(tenant), b.source.Keys}
	if b.tenants != nil {
		var d decision
		if from.keys, d.reason, d.err = b.tenants.of(from.tenant, now); d.reason != 0 {
			return verified{tenant: from.tenant}, d
		}
	}
	v, d := b.verify(ctx, keys, req, from, now)
	if d.reason != 0 {
		v.tenant = from.tenant
	}
	return v, d
}

// sender is whom a request can be of: the tenant that its path names, if any, and the keys that it may have.
type sender struct {
	tenant string
	keys   []signature.Key
}

// verify judges a message that is whole.
func (b *bound) verify(ctx context.Context, keys KeySource, req *request, from sender, now time.Time) (verified, decision) {
	if d, ok := b.unsignedHandshake(req, from, now); ok {
		return verified{}, b.paced(d, now)
	}
	msg := req.message(b.origin)
	msg.MaxBody = b.maxBody
	verdict := b.judgeSignature(ctx, keys, &msg, from, now)
	switch verdict.Reason {
	case signature.ReasonOK:
		b.secrets.used(verdict.Key, now)
		if d, ok := b.handshake(req, from.key(verdict.Key)); ok {
			return verified{}, d
		}
		if d, ok := b.confirmSubscription(ctx, keys, &msg, from.key(verdict.Key)); ok {
			return verified{}, d
		}
		if verdict.ID == "" && b.source.RequireID {
			return verified{}, decision{reason: ReasonMissingID}
		}
		tenant, ok := b.named(req, &msg, from.tenant)
		if !ok {
			return verified{}, decision{reason: ReasonUnknownTenant}
		}
		v := b.remember(&verdict, tenant)
		v.keys = from.keys
		v.about = b.tell(&msg, v.eventType)
		return v, decision{}
	case signature.ReasonMissingSignature:
		if b.unsignedTaken() {
			if d, ok := b.handshake(req, nil); ok {
				return verified{}, b.paced(d, now)
			}
		}
	case signature.ReasonBadSignature:
		if lost := b.suspect(req); lost != settingNone {
			return verified{}, decision{reason: ReasonBodyNotForwarded, setting: lost}
		}
	}
	return verified{}, b.refuse(refusalOf(verdict.Reason))
}

// refuse is a refusal with the status that the provider's protocol wants for it.
func (b *bound) refuse(reason Reason) decision {
	d := decision{reason: reason}
	if reason.refusesSignature() {
		d.status = b.source.RefusalStatus
		if b.source.Handshake == HandshakeXero { // it wants an empty body
			d.contentType = contentTypeText
		}
	}
	return d
}

// paced lets one unsigned handshake of a source through a second; a refusal costs nothing and is not held back.
func (b *bound) paced(d decision, now time.Time) decision {
	if d.reason != ReasonHandshake {
		return b.refuse(d.reason)
	}
	if !b.state.handshakes.take(now) {
		return decision{reason: ReasonBusy}
	}
	return d
}

// inspect refuses what cannot be judged: a connection that is to become another protocol, too much, and every way in
// which the mesh loses a body, none of which is the sender's fault and all of which would look like a forgery.
func (b *bound) inspect(req *request) decision {
	if req.upgrade || req.method == http.MethodConnect {
		return decision{reason: ReasonUpgradeRefused}
	}
	n := int64(len(req.body))
	if n > b.maxBody || req.contentLength > b.maxBody {
		return decision{reason: ReasonTooLarge}
	}
	lost := settingNone
	switch {
	case req.partial:
		lost = settingPartial
	case req.text:
		lost = settingPackAsBytes
	case n == 0 && (req.contentLength > 0 || req.size > 0):
		lost = settingWithRequestBody
	case req.contentLength != lengthAbsent && req.contentLength != n:
		lost = settingFilterOrder
	case req.buffered:
		b.state.buffered.Store(true)
	}
	if lost != settingNone {
		return decision{reason: ReasonBodyNotForwarded, setting: lost}
	}
	return decision{}
}

// suspect names the setting that may be why a message of unknown length does not verify: a filter before ours took
// its content-length away and changed the body, or the body came in chunks and Envoy does not buffer. Once a body of
// the source was buffered, an empty one is taken for what it is.
func (b *bound) suspect(req *request) setting {
	if req.contentLength != lengthAbsent {
		return settingNone
	}
	if req.size > 0 && req.size != int64(len(req.body)) {
		return settingFilterOrder
	}
	mayHaveBody := req.method == http.MethodPost || req.method == http.MethodPut || req.method == http.MethodPatch
	if len(req.body) == 0 && mayHaveBody && !b.state.buffered.Load() {
		return settingWithRequestBody
	}
	return settingNone
}

// unzipped returns the bytes of memory that the body may take beside its own: those that come out of a zipped one.
func (b *bound) unzipped(req *request) int64 {
	if b.source.Verifier == nil || !b.source.Verifier.DecodesBody() || req.get("content-encoding") == "" {
		return 0
	}
	return b.maxBody
}

// key returns the key of that index, or nil.
func (s sender) key(index int) *signature.Key {
	if index < 0 || index >= len(s.keys) {
		return nil
	}
	return &s.keys[index]
}

// remember copies out of a verdict what outlives the message.
func (b *bound) remember(v *signature.Verdict, tenant string) verified {
	r := verified{tenant: tenant, id: keyID(v.ID), eventType: strings.Clone(v.Type[:min(len(v.Type), maxIDLen)])}
	r.event = headerText(r.id)
	if r.kind = headerText(r.eventType); len(v.Type) > maxIDLen {
		r.kind = hashed(v.Type)
	}
	if b.source.ContentWindow > 0 {
		r.content = contentKey(v, tenant)
	}
	return r
}

// contentKey is the second key of an event: what was signed, the type, and the tenant.
func contentKey(v *signature.Verdict, tenant string) [sha256.Size]byte {
	h := sha256.New()
	var length [8]byte
	h.Write(v.ContentHash[:])
	for _, part := range []string{v.Type, tenant} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// claimRequest asks the inbox for an event.
func (b *bound) claimRequest(v verified) ClaimRequest {
	src := b.source
	ask := ClaimRequest{
		Key:           Key{Source: src.Name, Tenant: v.tenant, ID: v.id},
		ContentHash:   v.content,
		ContentWindow: src.ContentWindow,
		Lease:         src.Lease,
		OnUnknown:     src.OnUnknown,
		Type:          v.eventType,
		Ignore:        v.ignore,
		IgnoredFor:    v.ignoredFor,
		Version:       v.version,
		Change:        v.change,
		Parts:         v.parts,
		Whole:         v.whole,
	}
	for _, name := range src.Was {
		ask.Was = append(ask.Was, Key{Source: name, Tenant: v.tenant, ID: v.id})
	}
	return ask
}

// passing is a pass with our headers: what the client sent under their names is replaced, its other x-sidehook-* go.
func (b *bound) passing(req *request, v verified) decision {
	d := decision{event: v.event, eventType: v.eventType, unversioned: v.unversioned}
	d.set[0] = headerValue{headerSource, b.source.Name}
	if v.event != "" {
		d.set[1] = headerValue{headerEventID, v.event}
	}
	if v.kind != "" {
		d.set[2] = headerValue{headerEventType, v.kind}
	}
	if v.tenant != "" {
		d.set[3] = headerValue{headerTenant, v.tenant}
	}
	d.remove = d.lost(req.reserved)
	return d
}

// tellSeen names the events of a request that passes which the app has.
func (d *decision) tellSeen(ids []string) {
	if len(ids) == 0 {
		return
	}
	d.set[len(d.set)-1] = headerValue{headerSeenIDs, seenText(ids)}
	d.remove = slices.DeleteFunc(d.remove, func(name string) bool { return name == headerSeenIDs })
}

// report lets through what a source that only reports would have refused, or passed: a verified message with our
// headers, another one with the reason.
func (b *bound) report(req *request, v verified, refusal decision) decision {
	if refusal.reason == 0 && b.source.Verifier != nil {
		d := b.passing(req, v)
		d.reason, d.would = ReasonReported, ReasonPassed
		if v.ignore {
			d.would = ReasonIgnored
		}
		return d
	}
	d := decision{reason: ReasonReported, would: refusal.reason, setting: refusal.setting}
	switch refusal.reason {
	case 0:
		d.would = ReasonUnverified
	case ReasonHandshake: // the app still answers its own
	default:
		d.set[0] = headerValue{headerReport, refusal.reason.String()}
	}
	d.remove = d.lost(req.reserved)
	return d
}

// lost returns the names among reserved that d does not set itself: a name on both lists would be ours to lose.
func (d *decision) lost(reserved []string) []string {
	var names []string
	for _, name := range reserved {
		ours := false
		for _, h := range d.set {
			ours = ours || h.name == name
		}
		if !ours {
			names = append(names, strings.Clone(name))
		}
	}
	return names
}
