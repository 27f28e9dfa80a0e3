package egress

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Receiver is an HTTP/2 receiver that is told frame by frame what to do.
type h2Receiver struct {
	*http2.Framer
	conn net.Conn
}

// serveH2 has serve speak HTTP/2 on each connection; n counts them from 0.
func serveH2(t *testing.T, ca *sendCA, serve func(r *h2Receiver, n int)) string {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}, NextProtos: []string{"h2"}}
	var conns atomic.Int32
	return "https://" + sendServe(t, func(raw net.Conn) {
		n := int(conns.Add(1)) - 1
		c := tls.Server(raw, config)
		defer c.Close()
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		r := &h2Receiver{http2.NewFramer(c, c), c}
		if r.WriteSettings() == nil {
			serve(r, n)
			_, _ = io.Copy(io.Discard, c)
		}
	})
}

// request reads frames until a request has come whole, and returns its stream.
func (r *h2Receiver) request() (uint32, error) {
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return 0, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = r.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = r.WritePing(true, f.Data)
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return f.StreamID, nil
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// answer answers the request of a stream with a status.
func (r *h2Receiver) answer(stream uint32, status string) error {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	return r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	refuse := func(code http2.ErrCode) func(*h2Receiver, uint32) {
		return func(r *h2Receiver, stream uint32) { _ = r.WriteRSTStream(stream, code) }
	}
	goAway := func(last uint32, code http2.ErrCode) func(*h2Receiver, uint32) {
		return func(r *h2Receiver, _ uint32) {
			_ = r.WriteGoAway(last, code, []byte(sendToken))
			_ = r.conn.Close()
		}
	}
	for _, c := range []struct {
		name string
		// first ends the first request of the first connection, second the second one, unless they are nil. All others
		// are answered with 204.
		first, second func(*h2Receiver, uint32)
		want          []Outcome // of attempts in turn
		requests      int32     // read by the receiver
	}{
		{"answers", nil, nil, []Outcome{OutcomeDelivered, OutcomeDelivered}, 2},
		// It promises that it did nothing with the request: the same attempt goes on, on another connection.
		{"refuses a stream", nil, refuse(http2.ErrCodeRefusedStream), []Outcome{OutcomeDelivered, OutcomeDelivered}, 3},
		{"goes away before a stream", nil, goAway(1, http2.ErrCodeNo), []Outcome{OutcomeDelivered, OutcomeDelivered}, 3},
		{"goes away before a stream for calm", nil, goAway(1, http2.ErrCodeEnhanceYourCalm), []Outcome{OutcomeDelivered, OutcomeDelivered}, 3},
		// But not on a connection that was made for it: a receiver that refuses that refuses the next one too.
		{"refuses the first stream", refuse(http2.ErrCodeRefusedStream), nil, []Outcome{OutcomeConnectionReset, OutcomeDelivered}, 2},
		{"goes away before the first stream", goAway(0, http2.ErrCodeNo), nil, []Outcome{OutcomeConnectionClosed, OutcomeDelivered}, 2},
		{"goes away before the first stream for calm", goAway(0, http2.ErrCodeEnhanceYourCalm), nil, []Outcome{OutcomeConnectionClosed, OutcomeDelivered}, 2},
		// It has read the request and may have acted on it: said, and never sent again in the same attempt.
		{"goes away with a stream", nil, goAway(3, http2.ErrCodeNo), []Outcome{OutcomeDelivered, OutcomeStaleConnection, OutcomeDelivered}, 3},
		{"resets a stream", nil, refuse(http2.ErrCodeInternal), []Outcome{OutcomeDelivered, OutcomeConnectionReset, OutcomeDelivered}, 3},
		{"resets a stream for its protocol", nil, refuse(http2.ErrCodeProtocol), []Outcome{OutcomeDelivered, OutcomeConnectionReset}, 2},
		{"cancels a stream", refuse(http2.ErrCodeCancel), nil, []Outcome{OutcomeConnectionReset, OutcomeDelivered}, 2},
		{"closes under a stream", nil, func(r *h2Receiver, _ uint32) { _ = r.conn.Close() }, []Outcome{OutcomeDelivered, OutcomeStaleConnection, OutcomeDelivered}, 3},
		{"closes under the first stream", func(r *h2Receiver, _ uint32) { _ = r.conn.Close() }, nil, []Outcome{OutcomeConnectionClosed, OutcomeDelivered}, 2},
		{"breaks the framing", func(r *h2Receiver, _ uint32) { _ = r.WriteRawFrame(http2.FrameSettings, 0, 1, nil) }, nil, []Outcome{OutcomeBadAnswer, OutcomeDelivered}, 2},
		{"has no status", func(r *h2Receiver, stream uint32) {
			_ = r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{}, EndStream: true, EndHeaders: true})
		}, nil, []Outcome{OutcomeBadAnswer, OutcomeDelivered}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			at := serveH2(t, ca, func(r *h2Receiver, n int) {
				for i := 0; ; i++ {
					stream, err := r.request()
					if err != nil {
						return
					}
					requests.Add(1)
					switch {
					case n == 0 && i == 0 && c.first != nil:
						c.first(r, stream)
					case n == 0 && i == 1 && c.second != nil:
						c.second(r, stream)
					default:
						_ = r.answer(stream, "204")
					}
				}
			})
			e, s := sendEndpoint(t, at+"/"+sendToken, sendTrusting(ca.pool)), sendSender(t)
			for i, want := range c.want {
				if r := sendWith(t, s, e, i+1); r.Outcome != want {
					t.Errorf("attempt %d: %s (%s), want %s", i+1, r.Outcome, r.Detail, want)
				}
			}
			if n := requests.Load(); n != c.requests {
				t.Errorf("the receiver read %d requests, want %d", n, c.requests)
			}
		})
	}
}

// A graceful shutdown of Go's own server: GOAWAY, then what is in flight is answered.
func TestHTTP2Shutdown(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	arrived, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(arrived) })
		<-answer
	})}
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}, NextProtos: []string{"h2"}}
	at := sendRun(t, server, func() error { return server.ServeTLS(l, "", "") }, "https://"+l.Addr().String())
	e, s := sendEndpoint(t, at, sendTrusting(ca.pool)), sendSender(t)
	got := make(chan Result, 1)
	go func() { got <- s.Send(t.Context(), e, sendEvent(), 1) }()
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	close(answer)
	sendWant(t, <-got, OutcomeDelivered)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	sendWant(t, sendWith(t, s, e, 2), OutcomeConnectRefused)
}
