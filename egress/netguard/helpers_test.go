package netguard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// awayProxy is the proxy of the environment in which all tests of this package run. Nobody listens there.
const awayProxy = "http://127.0.0.1:9"

// TestMain sets the variables by which programs choose a proxy: what this package dials must not go by them.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"} {
		os.Setenv(name, awayProxy)
		os.Setenv(strings.ToLower(name), awayProxy)
	}
	os.Exit(m.Run())
}

// mustNew makes a Filter of c.
func mustNew(t testing.TB, c Config) *Filter {
	t.Helper()
	f, err := New(c)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return f
}

// mustCheck is the target of a URL that f lets pass.
func mustCheck(t *testing.T, f *Filter, url string) Target {
	t.Helper()
	target, err := f.Check(url)
	if err != nil {
		t.Fatalf("Check(%q): %v", url, err)
	}
	return target
}

// wantRefusal checks that err is a *Refusal of verdict want, with a text, and returns it.
func wantRefusal(t *testing.T, err error, want Verdict) *Refusal {
	t.Helper()
	r, ok := errors.AsType[*Refusal](err)
	if !ok {
		t.Fatalf("got error %v (%T), want a refusal", err, err)
	}
	if want != 0 && r.Verdict != want {
		t.Errorf("refused as %v, want %v: %v", r.Verdict, want, r)
	}
	if r.Error() == "" || r.Verdict == VerdictAllowed || r.Verdict == 0 {
		t.Errorf("a refusal without reason: %#v", r)
	}
	return r
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// zone is what the DNS server of the tests knows: the records of each absolute name.
type zone map[string]records

// records are the answers for one name.
type records struct {
	cname string
	addrs []string
	// next are the addresses of every answer after the first, where they differ.
	next []string
	// code is the answer's code where it is no success.
	code dnsmessage.RCode
	// codeAAAA is code for the question AAAA alone.
	codeAAAA dnsmessage.RCode
	// silent: there is no answer. silentAAAA: none to the question AAAA.
	silent, silentAAAA bool
}

// nameServer answers from a zone on 127.0.0.1, by UDP and TCP, and keeps the questions that it was asked.
type nameServer struct {
	zone zone
	addr string

	mu        sync.Mutex
	questions []dnsmessage.Question
}

// newNameServer starts a server that ends with the test. A name that z does not know is NXDOMAIN.
func newNameServer(t *testing.T, z zone) *nameServer {
	t.Helper()
	// A port that is free for UDP may be taken for TCP; so the pair is tried anew.
	for range 20 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("listen: %v", err)
		}
		s := &nameServer{zone: z, addr: packets.LocalAddr().String()}
		streams, err := net.Listen("tcp", s.addr)
		if err != nil {
			packets.Close()
			continue
		}
		var running sync.WaitGroup
		running.Go(func() { s.servePackets(packets) })
		running.Go(func() { s.serveStreams(streams) })
		t.Cleanup(func() {
			packets.Close()
			streams.Close()
			running.Wait()
		})
		return s
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil
}

// resolver asks s and nobody else.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.addr)
	}}
}

// asked returns the questions so far.
func (s *nameServer) asked() []dnsmessage.Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]dnsmessage.Question(nil), s.questions...)
}

func (s *nameServer) servePackets(conn net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		// 1,232 bytes is what Go's resolver says it takes.
		if reply := s.reply(buf[:n], 1232); reply != nil {
			conn.WriteTo(reply, from)
		}
	}
}

func (s *nameServer) serveStreams(l net.Listener) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		running.Go(func() {
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			var size [2]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return
			}
			query := make([]byte, int(size[0])<<8|int(size[1]))
			if _, err := io.ReadFull(conn, query); err != nil {
				return
			}
			if reply := s.reply(query, 1<<16-1); reply != nil {
				conn.Write(append([]byte{byte(len(reply) >> 8), byte(len(reply))}, reply...))
			}
		})
	}
}

// reply is the answer to a query, cut off with the TC bit beyond limit; nil: none.
func (s *nameServer) reply(query []byte, limit int) []byte {
	var msg dnsmessage.Message
	if err := msg.Unpack(query); err != nil || len(msg.Questions) != 1 {
		return nil
	}
	q := msg.Questions[0]
	s.mu.Lock()
	again := false
	for _, old := range s.questions {
		again = again || old.Name == q.Name && old.Type == q.Type
	}
	s.questions = append(s.questions, q)
	s.mu.Unlock()

	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: msg.ID, Response: true, RecursionAvailable: true},
		Questions: msg.Questions,
	}
	rec, known := s.zone[q.Name.String()]
	ipv6 := q.Type == dnsmessage.TypeAAAA
	switch {
	case rec.silent, rec.silentAAAA && ipv6:
		return nil
	case !known:
		answer.RCode = dnsmessage.RCodeNameError
	case rec.code != 0:
		answer.RCode = rec.code
	case rec.codeAAAA != 0 && ipv6:
		answer.RCode = rec.codeAAAA
	default:
		s.answer(&answer, q, again)
	}
	packed, err := answer.Pack()
	if err != nil {
		return nil
	}
	if len(packed) > limit {
		answer.Truncated, answer.Answers = true, nil
		packed, err = answer.Pack()
		if err != nil {
			return nil
		}
	}
	return packed
}

// answer adds the records for q: aliases in turn, 20 at most, as a recursive server does, then addresses.
func (s *nameServer) answer(m *dnsmessage.Message, q dnsmessage.Question, again bool) {
	name := q.Name
	for range 20 {
		rec := s.zone[name.String()]
		if rec.cname == "" {
			break
		}
		next := dnsmessage.MustNewName(rec.cname)
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.CNAMEResource{CNAME: next},
		})
		name = next
	}
	rec := s.zone[name.String()]
	addrs := rec.addrs
	if again && rec.next != nil {
		addrs = rec.next
	}
	for _, text := range addrs {
		a := netip.MustParseAddr(text)
		header := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
}
