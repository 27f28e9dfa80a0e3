package egress

import (
	"container/list"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
)

const (
	// maxConnAge is how long after its making a connection may begin an attempt: its address was judged then.
	maxConnAge = 60 * time.Second
	// maxConnIdle is below the keep-alive times of usual servers (nginx 75 s, Node 5 s; those that close earlier are seen).
	maxConnIdle = 30 * time.Second
	// DefaultMaxIdle is how many connections are kept for all endpoints together: each costs 20 to 30 KiB, and with
	// thousands of endpoints most are not used again.
	DefaultMaxIdle = 512
)

// poolKey tells connections apart that may not serve each other's attempts. A reload that changes an endpoint's URL or its
// filter changes the key, so nothing judged by another filter is used again.
type poolKey struct {
	endpoint string
	filter   *netguard.Filter
	target   netguard.Target
	socket   string
}

func keyOf(e *Endpoint) poolKey {
	if e.Socket != "" {
		return poolKey{endpoint: e.ID, target: socketTarget, socket: e.Socket}
	}
	return poolKey{endpoint: e.ID, filter: e.Filter, target: e.Target}
}

// socketTarget stands for the address that an endpoint with a socket has not.
var socketTarget = netguard.Target{URL: "http://localhost/", Scheme: "http", Host: "localhost", Port: 80, RequestURI: "/"}

// pools keeps connections between attempts, those of each endpoint apart. They are ClientConns of net/http and not its
// own pool: that one sends a request again by itself when it believes that the receiver has not seen it, dials in the
// background for attempts that are over, and knows no age. Here one attempt is one request on a connection that is known.
type pools struct {
	mu   sync.Mutex // domain: all of pools, of each pool and of the lower half of each conn; nothing blocks under it
	m    map[poolKey]*pool
	idle list.List // of *conn, those that carry no attempt, the one used last in front
	max  int       // of idle

	http1 bool // connections speak HTTP/1.1 alone, whatever the receiver offers
}

// pool is what one endpoint keeps.
type pool struct {
	key       poolKey
	transport *http.Transport
	url       *url.URL
	users     int     // attempts between get and leave
	conns     []*conn // idle ones, and HTTP/2 ones with or without attempts; the one used last is last
	gone      bool    // out of pools: what comes back is closed
	reaper    *time.Timer
	reapAt    time.Time // when reaper comes; zero: it does not
}

// enter returns the pool for e, which the caller leaves.
func (ps *pools) enter(e *Endpoint) (*pool, error) {
	key := keyOf(e)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.m[key]
	if p == nil {
		u, err := requestURL(key.target)
		if err != nil {
			return nil, err
		}
		p = &pool{key: key, transport: newTransport(key.filter), url: u}
		if ps.http1 {
			p.transport.ForceAttemptHTTP2 = false
			p.transport.Protocols = new(http.Protocols)
			p.transport.Protocols.SetHTTP1(true)
		}
		ps.m[key] = p
	}
	p.users++
	return p, nil
}

// leave ends what enter began. A pool that nobody uses and that keeps nothing is forgotten.
func (ps *pools) leave(p *pool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.users--
	ps.forgetLocked(p)
}

func (ps *pools) forgetLocked(p *pool) {
	if p.users == 0 && len(p.conns) == 0 && !p.gone {
		p.gone = true
		delete(ps.m, p.key)
	}
}

// take returns a kept connection of p on which a request can be begun now, nil if there is none.
func (ps *pools) take(p *pool) *conn {
	var dead []*conn
	defer func() { abortAll(dead) }()
	now := time.Now()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i, c := range slices.Backward(p.conns) {
		if c.retired || now.Sub(c.made) >= maxConnAge {
			continue // the reaper closes it
		}
		if c.client.Reserve() != nil {
			// An HTTP/2 connection with attempts may be full for now; any other is closed, or closing.
			if c.inUse == 0 {
				p.conns = slices.Delete(p.conns, i, i+1)
				ps.busyLocked(c)
				dead = append(dead, c)
			}
			continue
		}
		c.inUse++
		ps.busyLocked(c)
		if !c.http2 {
			p.conns = slices.Delete(p.conns, i, i+1)
		}
		return c
	}
	return nil
}

// dial makes a connection of p to one of addrs, for one attempt to begin with. What was learnt on the way is in the
// dialing also when it fails.
func (ps *pools) dial(ctx context.Context, p *pool, addrs []netip.AddrPort) (*conn, *dialing, error) {
	d := &dialing{filter: p.key.filter, target: p.key.target, addrs: addrs, socket: p.key.socket}
	c, err := dial(ctx, p.transport, d)
	if err != nil {
		return nil, d, err
	}
	c.pool = p
	if c.http2 {
		ps.mu.Lock()
		p.conns = append(p.conns, c)
		ps.mu.Unlock()
	}
	return c, d, nil
}

// put gives a connection back after an attempt. clean says that the attempt left it as it found it: its answer was read
// to the end, or ended a stream of HTTP/2 alone.
func (ps *pools) put(p *pool, c *conn, clean bool) {
	var dead []*conn
	now := time.Now()
	ps.mu.Lock()
	c.inUse--
	// A connection of HTTP/1 that the receiver closes after this answer has nothing available.
	if !clean || p.gone || !c.http2 && c.client.Available() == 0 {
		c.retired = true
	}
	switch {
	case c.inUse > 0:
	case c.retired:
		p.remove(c)
		dead = append(dead, c)
	default:
		if !c.http2 {
			p.conns = append(p.conns, c)
		}
		c.idleSince, c.place = now, ps.idle.PushFront(c)
		ps.armLocked(p, c.expires(), now)
		if ps.idle.Len() > ps.max {
			oldest := ps.idle.Back().Value.(*conn)
			oldest.retired = true
			oldest.pool.remove(oldest)
			ps.busyLocked(oldest)
			ps.forgetLocked(oldest.pool)
			dead = append(dead, oldest)
		}
	}
	ps.mu.Unlock()
	abortAll(dead)
}

// busyLocked takes c off the list of idle connections.
func (ps *pools) busyLocked(c *conn) {
	if c.place != nil {
		ps.idle.Remove(c.place)
		c.place = nil
	}
}

// remove takes c out of p, if it is there.
func (p *pool) remove(c *conn) {
	p.conns = slices.DeleteFunc(p.conns, func(o *conn) bool { return o == c })
}

// drop closes the idle connections of p, which are likely to have died of the same cause as one that was stale.
func (ps *pools) drop(p *pool) {
	ps.mu.Lock()
	dead := ps.retireLocked(p)
	ps.mu.Unlock()
	abortAll(dead)
}

// retireLocked takes all connections of p out of use and returns those that carry nothing.
func (ps *pools) retireLocked(p *pool) (idle []*conn) {
	for _, c := range p.conns {
		c.retired = true
		if c.inUse == 0 {
			ps.busyLocked(c)
			idle = append(idle, c)
		}
	}
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool { return c.inUse == 0 })
	return idle
}

// retain closes what serves none of endpoints (nil: everything): at once what is idle, the rest after its attempt.
func (ps *pools) retain(endpoints *Endpoints) {
	var dead []*conn
	ps.mu.Lock()
	for key, p := range ps.m {
		if endpoints != nil {
			if e := endpoints.ByID(key.endpoint); e != nil && keyOf(e) == key {
				continue
			}
		}
		p.gone = true
		delete(ps.m, key)
		if p.reaper != nil {
			p.reaper.Stop()
		}
		dead = append(dead, ps.retireLocked(p)...)
	}
	ps.mu.Unlock()
	abortAll(dead)
}

// armLocked has the reaper of p come at that time, or earlier if it would already.
func (ps *pools) armLocked(p *pool, at, now time.Time) {
	if p.gone || !p.reapAt.IsZero() && !at.Before(p.reapAt) {
		return
	}
	p.reapAt = at
	if wait := max(at.Sub(now), 0); p.reaper == nil {
		p.reaper = time.AfterFunc(wait, func() { ps.reap(p) })
	} else {
		p.reaper.Reset(wait)
	}
}

// expires is when an idle connection is closed.
func (c *conn) expires() time.Time {
	idle, age := c.idleSince.Add(maxConnIdle), c.made.Add(maxConnAge)
	if age.Before(idle) {
		return age
	}
	return idle
}

// reap closes what has been idle or kept for too long. It runs on the timer's own goroutine, so it may be polite: a
// close_notify that nobody reads blocks it for some seconds, and nothing else.
func (ps *pools) reap(p *pool) {
	var old []*conn
	now := time.Now()
	ps.mu.Lock()
	p.reapAt = time.Time{}
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool {
		if c.inUse > 0 || now.Before(c.expires()) {
			return false
		}
		c.retired = true
		ps.busyLocked(c)
		old = append(old, c)
		return true
	})
	for _, c := range p.conns {
		if c.inUse == 0 {
			ps.armLocked(p, c.expires(), now)
		}
	}
	ps.forgetLocked(p)
	ps.mu.Unlock()
	for _, c := range old {
		_ = c.client.Close()
	}
}

func abortAll(conns []*conn) {
	for _, c := range conns {
		c.abort()
	}
}
