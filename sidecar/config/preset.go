package config

import (
	"strings"
	"time"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// preset is what a source has from its kind: a provider's facts, or the defaults of a scheme of the user's own.
type preset struct {
	// name is the provider's, or "custom", or "none".
	name string
	// verifier is nil for verify: none, and where no kind could be told.
	verifier      *signature.Verifier
	tolerance     time.Duration
	retention     time.Duration
	horizon       time.Duration // how long the sender sends again; 0: unknown
	deadline      time.Duration // how long the sender waits for an answer; 0: unknown
	contentWindow time.Duration
	maxBody       int64
	refusalStatus int
	minSecret     int // bytes of a secret as it is written; 0: unknown
	retries       signature.Retries
	requireID     bool
	handshake     extauthz.Handshake
	object        string                 // path of the id of an event's object; "": unknown
	version       *signature.VersionSpec // nil: unknown
	live          *signature.LiveSpec    // nil: the sender does not tell
	events        *signature.EventsSpec  // nil: one in a request
}

// handshakes are the gate's handshakes by their names in the table of providers.
var handshakes = map[string]extauthz.Handshake{
	"":            extauthz.HandshakeNone,
	"slack":       extauthz.HandshakeSlack,
	"meta":        extauthz.HandshakeMeta,
	"twitch":      extauthz.HandshakeTwitch,
	"zoom":        extauthz.HandshakeZoom,
	"discord":     extauthz.HandshakeDiscord,
	"graph":       extauthz.HandshakeGraph,
	"dropbox":     extauthz.HandshakeDropbox,
	"asana":       extauthz.HandshakeAsana,
	"xero":        extauthz.HandshakeXero,
	"okta":        extauthz.HandshakeOkta,
	"twitter":     extauthz.HandshakeTwitter,
	"cloudevents": extauthz.HandshakeCloudEvents,
	"head":        extauthz.HandshakeHead,
	"monday":      extauthz.HandshakeMonday,
	"notion":      extauthz.HandshakeNotion,
	"worldline":   extauthz.HandshakeWorldline,
	"ebay":        extauthz.HandshakeEBay,
}

// handshakeMethods are the methods of the challenges that do not come by POST, as events do.
var handshakeMethods = map[extauthz.Handshake]string{
	extauthz.HandshakeMeta:        "GET",
	extauthz.HandshakeDropbox:     "GET",
	extauthz.HandshakeOkta:        "GET",
	extauthz.HandshakeTwitter:     "GET",
	extauthz.HandshakeCloudEvents: "OPTIONS",
	extauthz.HandshakeHead:        "HEAD",
	extauthz.HandshakeWorldline:   "GET",
	extauthz.HandshakeEBay:        "GET",
}

// preset returns the kind of a source. What is wrong is noted; the result is usable all the same.
func (l *loader) preset(path, owner string, m *configv1.Source) preset {
	p := preset{
		name: "custom", retries: signature.RetriesYes,
		tolerance: signature.DefaultTolerance, retention: signature.DefaultRetention,
		maxBody: signature.DefaultMaxBodyBytes, refusalStatus: signature.DefaultRefusalStatus,
	}
	var written []string
	for _, field := range []struct {
		name string
		set  bool
	}{{"provider", m.GetProvider() != ""}, {"scheme", m.GetScheme() != nil}, {"verify", m.GetVerify() != ""}} {
		if field.set {
			written = append(written, field.name)
		}
	}
	switch {
	case len(written) == 0:
		l.errorf(path, "%s has no provider and no scheme, so nothing could be verified; write one of them "+
			"(`sidehook providers` lists the presets)", owner)
	case len(written) > 1:
		l.errorf(path+"."+written[1], "%s exclude each other; remove all but one", strings.Join(written, " and "))
	case m.GetVerify() != "":
		p.name = "none"
		l.warnf(path+".verify", "%s lets every request through: nobody checks who sent it", owner)
	case m.GetScheme() != nil:
		spec, verifier := compileScheme(path+".scheme", m.GetScheme(), &l.report)
		p.verifier = verifier
		p.requireID = spec.ID != nil && !spec.ID.Hash && !spec.ID.None
		p.live, p.events = spec.Live, spec.Events
	default:
		p = l.provider(path+".provider", m.GetProvider(), p)
	}
	p.verifier = l.expected(path, m, p)
	return p
}

// provider returns the preset of that name, or otherwise, a mistake noted.
func (l *loader) provider(path, name string, otherwise preset) preset {
	row, ok := signature.ProviderByName(name)
	if !ok {
		var names []string
		for _, p := range signature.Providers() {
			names = append(names, p.Name)
		}
		meant := ""
		if near := nearest(name, names); near != "" {
			meant = "is " + near + " meant? "
		}
		l.errorf(path, "%s is no provider; %s`sidehook providers` lists them all", quote(name), meant)
		return otherwise
	}
	handshake, ok := handshakes[row.Handshake]
	if !ok {
		l.errorf(path, "%s has a handshake that is not in this version: %s", name, quote(row.Handshake))
	}
	return preset{
		name: row.Name, verifier: row.Verifier(),
		tolerance: row.Tolerance.Std(), retention: row.Retention.Std(), contentWindow: row.ContentWindow.Std(),
		horizon: row.RetryHorizon.Std(), deadline: row.Deadline.Std(), retries: row.Retries,
		maxBody: row.MaxBodyBytes, refusalStatus: row.RefusalStatus, minSecret: row.MinSecretBytes,
		requireID: row.RequireID, handshake: handshake,
		object: row.Object, version: row.Version, live: row.Live, events: row.Events,
	}
}
