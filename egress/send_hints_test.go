package egress

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What an answer says of other places is no more than text: the status alone decides, and nothing is sent elsewhere, now or
// at the next attempt.
func TestAnswerHintsAreIgnored(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	var elsewhere atomic.Int32
	other := sendServe(t, func(net.Conn) { elsewhere.Add(1) })
	page := `<html><head><meta http-equiv="refresh" content="0; url=http://` + other + `/"></head></html>`
	for _, c := range []struct{ name, field, value string }{
		{"Refresh", "Refresh", "0; url=http://" + other + "/stolen"},
		{"Location of a success", "Location", "http://" + other + "/stolen"},
		{"Content-Location", "Content-Location", "http://" + other + "/stolen"},
		{"Alt-Svc of another host", "Alt-Svc", `h2="` + other + `"; ma=86400; persist=1, http/1.1="` + other + `"`},
		{"Alt-Svc of another port", "Alt-Svc", `h3=":443", h2=":` + other[strings.LastIndexByte(other, ':')+1:] + `"`},
		{"Link", "Link", "<http://" + other + "/>; rel=preload, <http://" + other + ">; rel=preconnect"},
		{"Set-Cookie", "Set-Cookie", "session=1; Path=/"},
	} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			t.Run(c.name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				var seen sendSeen
				e := sendEndpoint(t, sendHTTPS(t, ca.issue(t, nil), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					seen.ServeHTTP(w, r)
					w.Header().Set(c.field, c.value)
					w.Header().Set("Content-Type", "text/html")
					_, _ = io.WriteString(w, page)
				}), protocol), sendTrusting(ca.pool))
				s := sendSender(t)
				for attempt := 1; attempt <= 2; attempt++ {
					sendWant(t, sendWith(t, s, e, attempt), OutcomeDelivered)
					req, _, n := seen.last(t)
					if n != attempt || req.Header["Cookie"] != nil || req.Header["Alt-Used"] != nil {
						t.Errorf("%d requests after %d attempts, the last with %q", n, attempt, req.Header)
					}
				}
			})
		}
	}
	t.Cleanup(func() {
		if n := elsewhere.Load(); n != 0 {
			t.Errorf("%d connections to where the answers point", n)
		}
	})
}

// A receiver that reads the request a byte at a time holds neither the attempt beyond its time limit, nor a connection
// after it.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	over, ended := make(chan struct{}), make(chan error, 1)
	at := sendServe(t, func(c net.Conn) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for one := make([]byte, 1); ; {
			select {
			case <-tick.C:
				if _, err := c.Read(one); err != nil {
					ended <- err
					return
				}
			case <-over:
				// What is on its way yet, and then the end, unless nobody has closed it.
				_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
				_, err := io.Copy(io.Discard, c)
				ended <- err
				return
			}
		}
	})
	e := sendEndpoint(t, "http://"+at, sendWithin(time.Second))
	ev := sendEvent()
	ev.Body = make([]byte, 32<<20) // more than any buffer between us
	s := sendSender(t)
	r := s.Send(t.Context(), e, ev, 1)
	close(over)
	sendCheck(t, e, r)
	sendWant(t, r, OutcomeTimeoutHeaders)
	if r.Took < time.Second || r.Took > 3*time.Second || s.keptConns() != 0 {
		t.Errorf("took %s, %d connections kept", r.Took, s.keptConns())
	}
	if err := <-ended; isTimeout(err) {
		t.Error("the connection outlives the attempt")
	}
}
