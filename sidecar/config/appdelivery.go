package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

const (
	// DefaultAppTimeout is how long an app has for an event that was stored: nobody waits for its answer.
	DefaultAppTimeout = time.Minute
	// The waits between probes of an app that cannot be reached. It is beside us, and comes back within seconds.
	firstAppHold   = time.Second
	longestAppHold = 30 * time.Second
)

// App is where the events of a source in STORE are delivered.
type App struct {
	// Endpoint has the source's name.
	Endpoint *egress.Endpoint
	// StopOnDead: a dead letter stops the later events of its key.
	StopOnDead bool
}

// stored checks and compiles what a source in STORE is beside its gate: where its events go. Nil in PASS.
func (l *loader) stored(path, owner string, m *configv1.Source, p preset, s *extauthz.Source) *App {
	d := m.GetDelivery()
	if m.GetMode() != configv1.Mode_MODE_STORE {
		if d != nil {
			l.errorf(path+".delivery", "is for mode: STORE: in PASS the request itself goes to the app")
		}
		if len(m.GetStoreHeaders()) > 0 {
			l.errorf(path+".store_headers", "is for mode: STORE: in PASS no header is kept")
		}
		return nil
	}
	switch {
	case m.GetVerify() != "":
		l.errorf(path+".mode", "STORE keeps what a sender vouches for, and verify: none has nobody verify that; write PASS")
		return nil
	case d == nil:
		l.errorf(path+".delivery", "is required with mode: STORE: it says where the app listens; write delivery: {url: http://127.0.0.1:8080}")
		return nil
	}
	s.StoreHeaders = l.storeHeaders(path+".store_headers", m.GetStoreHeaders())
	s.DeliveryPath, s.Resign = d.GetPath(), d.GetResign()
	s.OrderBy = l.orderBy(path+".delivery.order_by", d.GetOrderBy())
	if s.Resign && p.verifier != nil {
		if err := p.verifier.CanSign(s.Keys); err != nil {
			l.errorf(path+".delivery.resign", "%s: %v; leave it out", owner, err)
		}
	}
	if d.GetOrderBy() == nil && d.GetOnDead() != configv1.OnDead_ON_DEAD_UNSPECIFIED {
		l.warnf(path+".delivery.on_dead", "has no effect without order_by")
	}
	fillAppDelivery(d)
	app := &App{
		Endpoint: &egress.Endpoint{
			ID: m.GetName(), Origin: egress.OriginConfig,
			Policy: egress.Policy{
				Timeout:           d.GetTimeout().AsDuration(),
				Schedule:          egress.Schedule{JitterPercent: int(d.GetJitterPercent())},
				RespectRetryAfter: d.GetRespectRetryAfter(),
				OnGone:            egress.GoneRetries,
				MaxInFlight:       int(d.GetMaxInFlight()),
				Rate:              rate(d.GetRate()),
				FirstHold:         firstAppHold,
				LongestHold:       longestAppHold,
				HoldOnlyUnreached: true,
			},
		},
		StopOnDead: d.GetOnDead() == configv1.OnDead_ON_DEAD_STOP,
	}
	for _, w := range d.GetWaits() {
		app.Endpoint.Policy.Schedule.Waits = append(app.Endpoint.Policy.Schedule.Waits, w.AsDuration())
	}
	for _, code := range d.GetStopOn() {
		app.Endpoint.Policy.StopOn = append(app.Endpoint.Policy.StopOn, int(code))
	}
	l.appAddress(path+".delivery", owner, d, app.Endpoint)
	return app
}

// fillAppDelivery writes the defaults of a delivery to the app into d.
func fillAppDelivery(d *configv1.AppDelivery) {
	d.Timeout = cmp.Or(d.GetTimeout(), durationpb.New(DefaultAppTimeout))
	if len(d.GetWaits()) == 0 {
		for _, w := range egress.DefaultWaits() {
			d.Waits = append(d.Waits, durationpb.New(w))
		}
	}
	d.JitterPercent = cmp.Or(d.JitterPercent, proto.Int32(egress.DefaultJitterPercent))
	d.RespectRetryAfter = cmp.Or(d.RespectRetryAfter, new(true))
	d.MaxInFlight = cmp.Or(d.GetMaxInFlight(), DefaultEndpointInFlight)
	if d.GetOrderBy() != nil {
		d.OnDead = cmp.Or(d.GetOnDead(), configv1.OnDead_ON_DEAD_SKIP)
	}
}

// storeHeaders checks which headers are kept beside the others, and returns their names in lower case.
func (l *loader) storeHeaders(path string, names []string) []string {
	var kept []string
	for i, n := range names {
		name := strings.ToLower(n)
		if why := extauthz.NeverKept(name); why != "" {
			l.errorf(fmt.Sprintf("%s[%d]", path, i), "%s %s; remove it", quote(n), why)
		}
		kept = append(kept, name)
	}
	return kept
}

// orderBy compiles what says which events come one after the other.
func (l *loader) orderBy(path string, m *configv1.OrderBy) extauthz.OrderBy {
	o := extauthz.OrderBy{Header: strings.ToLower(m.GetHeader())}
	if m.GetJson() != "" {
		var err error
		if o.JSON, err = signature.ParsePath(m.GetJson()); err != nil {
			l.errorf(path+".json", "%v", err)
		}
	}
	return o
}

// appAddress checks where the app listens, and puts that into e: a socket, or an address on loopback or in allow. Only such a
// one is ever dialled, whatever a name resolves to.
func (l *loader) appAddress(path, owner string, d *configv1.AppDelivery, e *egress.Endpoint) {
	if socket, ok := strings.CutPrefix(d.GetUrl(), "unix:"); ok {
		if !filepath.IsAbs(socket) {
			l.errorf(path+".url", "%s: write the socket with an absolute path, such as unix:/run/app.sock", owner)
		}
		for field, set := range map[string]bool{"allow": len(d.GetAllow()) > 0, "ca_file": d.GetCaFile() != ""} {
			if set {
				l.errorf(path+"."+field, "has no effect on a socket; remove it")
			}
		}
		if e.Socket = filepath.Clean(socket); len(e.Socket) > maxSocketPath {
			l.errorf(path+".url", "%s: the path of a socket has at most %d bytes", owner, maxSocketPath)
		}
		return
	}
	u, err := url.Parse(d.GetUrl())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "" {
		l.errorf(path+".url", "%s: write scheme, host and port of the app, such as http://127.0.0.1:8080, or unix:/run/app.sock", owner)
		return
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		l.errorf(path+".url", "%s: the request keeps its own path and query; leave them out here, or write path", owner)
		return
	}
	if u.Scheme != "https" && d.GetCaFile() != "" {
		l.errorf(path+".ca_file", "has no effect on http; remove it")
	}
	c := netguard.Config{
		Allow: l.prefixes(path+".allow", d.GetAllow()), OnlyAllow: true, AllowHTTP: true,
		RootCAs: l.roots(path+".ca_file", d.GetCaFile()),
	}
	host := u.Hostname()
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1" // what it resolves to is no matter of a name server
		u.Host = strings.Replace(u.Host, u.Hostname(), host, 1)
	}
	if a, err := netip.ParseAddr(host); err != nil {
		if len(c.Allow) == 0 {
			l.errorf(path+".url", "%s: a name can resolve to any address; write in allow the networks that are meant, or an address of loopback", owner)
			return
		}
		c.AllowNames = []string{host}
	} else if a.IsLoopback() && a.Zone() == "" && !slices.ContainsFunc(c.Allow, func(p netip.Prefix) bool { return p.Contains(a) }) {
		c.Allow = append(c.Allow, netip.PrefixFrom(a, a.BitLen()))
	}
	c.Ports = []uint16{portOf(u)}
	f, err := netguard.New(c)
	if err != nil {
		for _, e := range unjoin(err) {
			l.errorf(path, "%s: %v", owner, e)
		}
		return
	}
	if e.Target, err = f.Check(u.Scheme + "://" + u.Host + "/"); err != nil {
		// The filter of the outbound half has its list elsewhere.
		l.errorf(path+".url", "%s: %s", owner, strings.ReplaceAll(err.Error(), "filter.allow", "delivery.allow"))
	}
	e.Filter = f
}

// portOf is the port that u names, or its scheme's.
func portOf(u *url.URL) uint16 {
	if a, err := netip.ParseAddrPort("0.0.0.0:" + u.Port()); err == nil {
		return a.Port()
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}
