package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAnswerByStatus(t *testing.T) {
	t.Parallel()
	want := map[int]Outcome{
		200: OutcomeDelivered, 201: OutcomeDelivered, 202: OutcomeDelivered, 204: OutcomeDelivered, 299: OutcomeDelivered,
		300: OutcomeRedirect, 301: OutcomeRedirect, 302: OutcomeRedirect, 303: OutcomeRedirect, 304: OutcomeRedirect, 307: OutcomeRedirect,
		308: OutcomeRedirect, 399: OutcomeRedirect,
		400: OutcomeRejected, 401: OutcomeRejected, 403: OutcomeRejected, 404: OutcomeRejected, 405: OutcomeRejected, 408: OutcomeRejected,
		409: OutcomeRejected, 410: OutcomeGone, 413: OutcomeRejected, 415: OutcomeRejected, 422: OutcomeRejected, 429: OutcomeThrottled, 499: OutcomeRejected,
		500: OutcomeServerError, 501: OutcomeServerError, 502: OutcomeUnavailable, 503: OutcomeUnavailable, 504: OutcomeUnavailable,
		505: OutcomeServerError, 599: OutcomeServerError,
		600: OutcomeBadAnswer, 999: OutcomeBadAnswer,
	}
	var status atomic.Int32
	e := sendEndpoint(t, sendHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })))
	s := sendSender(t)
	for code, outcome := range want {
		status.Store(int32(code))
		r := sendWith(t, s, e, 1)
		if r.Outcome != outcome || r.Status != code {
			t.Errorf("%d: %s (%s), status %d; want %s", code, r.Outcome, r.Detail, r.Status, outcome)
		}
	}
}

// A redirect is a failure: the signed body is sent to nobody whom the receiver names.
func TestAnswerRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var target sendSeen
	elsewhere := sendHTTP(t, &target)
	for _, location := range []string{"", elsewhere + "/stolen", "//" + strings.TrimPrefix(elsewhere, "http://") + "/stolen", "/again"} {
		for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
			var hits atomic.Int32
			e := sendEndpoint(t, sendHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				hits.Add(1)
				if location != "" {
					w.Header().Set("Location", location)
				}
				w.WriteHeader(status)
			})))
			r := sendOnce(t, e)
			if r.Outcome != OutcomeRedirect || hits.Load() != 1 {
				t.Errorf("%d to %q: %s, %d requests", status, location, r.Outcome, hits.Load())
			}
		}
	}
	if n := len(target.requests); n != 0 {
		t.Errorf("%d requests to where redirects led", n)
	}
}

func TestAnswerDeliveryControl(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields []string
		status int
		want   Outcome
	}{
		{[]string{"disable"}, 200, OutcomeDisableAsked},
		{[]string{"DISABLE"}, 500, OutcomeDisableAsked},
		{[]string{"abort-message"}, 400, OutcomeAbortAsked},
		{[]string{"Abort-Message"}, 204, OutcomeAbortAsked},
		{[]string{"abort-message, disable"}, 410, OutcomeDisableAsked},
		{[]string{"abort-message", "disable"}, 429, OutcomeDisableAsked},
		{[]string{"disable ,abort-message"}, 503, OutcomeDisableAsked},
		{[]string{"disabled"}, 200, OutcomeDelivered},
		{[]string{"no-disable"}, 500, OutcomeServerError},
		{[]string{""}, 200, OutcomeDelivered},
		{nil, 200, OutcomeDelivered},
	} {
		e := sendEndpoint(t, sendHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["webhook-Delivery"] = c.fields // the receiver's spelling is its own
			w.WriteHeader(c.status)
		})))
		if r := sendOnce(t, e); r.Outcome != c.want || r.Status != c.status {
			t.Errorf("%q with %d: %s, status %d; want %s", c.fields, c.status, r.Outcome, r.Status, c.want)
		}
	}
}

func TestAnswerRetryAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		fields []string
		want   time.Duration
	}{
		{429, []string{"120"}, 2 * time.Minute},
		{503, []string{"3"}, 3 * time.Second},
		{404, []string{"600"}, 10 * time.Minute},
		{302, []string{"60"}, time.Minute},
		{500, []string{"30", "90"}, 90 * time.Second},
		{500, []string{"9223372037"}, MaxRetryAfter},
		{500, []string{"soon"}, 0},
		{500, nil, 0},
		{200, []string{"600"}, 0}, // of a success it says nothing
	} {
		e := sendEndpoint(t, sendHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Retry-After"] = c.fields
			w.WriteHeader(c.status)
		})))
		if r := sendOnce(t, e); r.RetryAfter != c.want {
			t.Errorf("%d with %q: %s, want %s", c.status, c.fields, r.RetryAfter, c.want)
		}
	}
}

func TestAnswerBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		size      int
		announced bool
		kept      int
		read      int64
		truncated bool
		reusable  bool
	}{
		{"none", 0, true, 0, 0, false, true},
		{"short", 2, true, 2, 2, false, true},
		{"as much as is kept", keptAnswer, true, keptAnswer, keptAnswer, false, true},
		{"a byte more", keptAnswer + 1, true, keptAnswer, keptAnswer + 1, true, true},
		{"3 KiB in chunks", 3 << 10, false, keptAnswer, 3 << 10, true, true},
		{"a byte less than is read", maxAnswer - 1, true, keptAnswer, maxAnswer - 1, true, true},
		{"more than is read", maxAnswer + 1, true, keptAnswer, maxAnswer, true, false},
		{"far more, in chunks", 4 << 20, false, keptAnswer, maxAnswer, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			body := strings.Repeat("0123456789", c.size/10+1)[:c.size]
			e := sendEndpoint(t, sendHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.announced {
					w.Header().Set("Content-Length", fmt.Sprint(c.size))
				}
				w.WriteHeader(500)
				_, _ = io.WriteString(w, body)
			})))
			s := sendSender(t)
			r := sendWith(t, s, e, 1)
			sendWant(t, r, OutcomeServerError)
			if string(r.Answer) != body[:c.kept] || r.AnswerBytes != c.read || r.Truncated != c.truncated {
				t.Errorf("%d bytes kept, %d read, truncated %t; want %d, %d, %t", len(r.Answer), r.AnswerBytes, r.Truncated, c.kept, c.read, c.truncated)
			}
			if again := sendWith(t, s, e, 2); again.Reused != c.reusable {
				t.Errorf("the next attempt reused the connection: %t, want %t", again.Reused, c.reusable)
			}
		})
	}
}

// Nothing asks for compression, and nothing is unpacked: a small answer that unpacks to a large one stays small.
func TestAnswerIsNotUnpacked(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	for range 50 {
		_, _ = zip.Write(make([]byte, 1<<20))
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := packed.Bytes()
	if len(bomb) > maxAnswer {
		t.Fatalf("the bomb has %d bytes packed", len(bomb))
	}
	ca := newSendCA(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	})
	for _, at := range []string{sendHTTP(t, handler), sendHTTPS(t, ca.issue(t, nil), handler, "h2")} {
		r := sendOnce(t, sendEndpoint(t, at, sendTrusting(ca.pool)))
		sendWant(t, r, OutcomeDelivered)
		if r.AnswerBytes != int64(len(bomb)) || !bytes.Equal(r.Answer, bomb[:keptAnswer]) || !r.Truncated {
			t.Errorf("%d bytes read of %d that were sent", r.AnswerBytes, len(bomb))
		}
	}
}

// An answer without end is read as far as is allowed, and neither time nor memory is spent on the rest.
func TestAnswerWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{
		"2 GB announced": "HTTP/1.1 200 OK\r\nContent-Length: 2147483648\r\n\r\n",
		"no length":      "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
	} {
		var written atomic.Int64
		at := sendServe(t, func(c net.Conn) {
			if _, _, err := sendReadRequest(bufio.NewReader(c)); err != nil {
				return
			}
			_, _ = io.WriteString(c, header)
			for block := bytes.Repeat([]byte("x"), 64<<10); ; {
				n, err := c.Write(block)
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := sendOnce(t, sendEndpoint(t, "http://"+at))
		runtime.ReadMemStats(&after)
		sendWant(t, r, OutcomeDelivered)
		if r.AnswerBytes != maxAnswer || !r.Truncated {
			t.Errorf("%s: %d bytes read, truncated %t", name, r.AnswerBytes, r.Truncated)
		}
		// What the kernel buffers of a loopback connection is some MiB; 2 GB it is not.
		if n := written.Load(); n > 64<<20 {
			t.Errorf("%s: the receiver got rid of %d bytes", name, n)
		}
	}
}

// A body that drips ends with the attempt's time, not with the body (HTTP/1 and HTTP/2).
func TestAnswerDrips(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	var open atomic.Int32
	drip := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _ = io.WriteString(w, ".")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	for _, at := range []string{sendHTTP(t, drip), sendHTTPS(t, ca.issue(t, nil), drip, "h2")} {
		r := sendOnce(t, sendEndpoint(t, at, sendTrusting(ca.pool), sendWithin(time.Second)))
		sendWant(t, r, OutcomeTimeoutBody)
		if r.Status != 200 || r.Took < time.Second || r.AnswerBytes == 0 {
			t.Errorf("status %d, %s, %d bytes", r.Status, r.Took, r.AnswerBytes)
		}
	}
	sendEventually(t, "the receiver's handlers end", func() bool { return open.Load() == 0 })
}

// A failing status is the receiver's word, however its body ends; what it asked for is not lost.
func TestAnswerFailsAndDrips(t *testing.T) {
	t.Parallel()
	at := sendServe(t, func(c net.Conn) {
		if _, _, err := sendReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 429 Slow\r\nRetry-After: 77\r\nContent-Length: 100\r\n\r\nwait")
			_, _ = c.Read(make([]byte, 1))
		}
	})
	r := sendOnce(t, sendEndpoint(t, "http://"+at, sendWithin(time.Second)))
	sendWant(t, r, OutcomeThrottled)
	if r.RetryAfter != 77*time.Second || string(r.Answer) != "wait" {
		t.Errorf("Retry-After %s, answer %q", r.RetryAfter, r.Answer)
	}
}

// Headers are bounded, those of all 1xx answers together with the last one, and none is kept.
func TestAnswerHeaderIsBounded(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	flood := func(line string) string {
		return sendServe(t, func(c net.Conn) {
			if _, _, err := sendReadRequest(bufio.NewReader(c)); err != nil {
				return
			}
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"); err != nil {
				return
			}
			for {
				if _, err := io.WriteString(c, line); err != nil {
					return
				}
			}
		})
	}
	many := func(lines int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range lines {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
			}
		})
	}
	early := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Hint", strings.Repeat("x", 1000))
		for range 200 {
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	for name, at := range map[string]string{
		"many lines":           "http://" + flood("X-Header: "+strings.Repeat("x", 1000)+"\r\n"),
		"one line":             "http://" + flood(strings.Repeat("x", 1000)),
		"10 MB at once":        "http://" + sendAnswer(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 10<<20)+"\r\n\r\n"),
		"HTTP/1":               sendHTTP(t, many(200)),
		"HTTP/2":               sendHTTPS(t, ca.issue(t, nil), many(64), "h2"),
		"HTTP/2, far too much": sendHTTPS(t, ca.issue(t, nil), many(2000), "h2"),
		"1xx over HTTP/1":      sendHTTP(t, early),
		"1xx over HTTP/2":      sendHTTPS(t, ca.issue(t, nil), early, "h2"),
		"1xx without a last": "http://" + sendServe(t, func(c net.Conn) {
			if _, _, err := sendReadRequest(bufio.NewReader(c)); err != nil {
				return
			}
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
					return
				}
			}
		}),
	} {
		want := OutcomeHeaderTooLarge
		if name == "HTTP/2, far too much" {
			want = OutcomeBadAnswer // net/http ends the whole connection then, and says no more than PROTOCOL_ERROR
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sendOnce(t, sendEndpoint(t, at, sendTrusting(ca.pool)))
			sendWant(t, r, want)
			if len(r.Answer) != 0 {
				t.Errorf("%d bytes kept", len(r.Answer))
			}
		})
	}
}

// 1xx answers that come slowly for ever end with the attempt's time; some of them before an answer do no harm.
func TestAnswerAfter1xx(t *testing.T) {
	t.Parallel()
	at := sendServe(t, func(c net.Conn) {
		if _, _, err := sendReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
				tick.Stop()
				return
			}
		}
	})
	sendWant(t, sendOnce(t, sendEndpoint(t, "http://"+at, sendWithin(time.Second))), OutcomeTimeoutHeaders)

	few := "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nwebhook-delivery: disable\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
	r := sendOnce(t, sendEndpoint(t, "http://"+sendAnswer(t, few)))
	if r.Outcome != OutcomeDelivered || r.Status != 204 {
		t.Errorf("%s (%s), status %d", r.Outcome, r.Detail, r.Status)
	}
}

func TestAnswerBreaksTheRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		want   Outcome
	}{
		"another protocol":        {"SSH-2.0-OpenSSH_9.2\r\n", OutcomeBadAnswer},
		"an echo of the request":  {"POST /" + sendToken + " HTTP/1.1\r\n\r\n", OutcomeBadAnswer},
		"no number":               {"HTTP/1.1 abc OK\r\n\r\n", OutcomeBadAnswer},
		"status 007":              {"HTTP/1.1 007 OK\r\nContent-Length: 0\r\n\r\n", OutcomeBadAnswer},
		"status 101":              {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", OutcomeBadAnswer},
		"two lengths":             {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", OutcomeBadAnswer},
		"a negative length":       {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", OutcomeBadAnswer},
		"an unknown coding":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: rot13\r\n\r\n", OutcomeBadAnswer},
		"a line without a colon":  {"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", OutcomeBadAnswer},
		"a chunk that is none":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", OutcomeBadAnswer},
		"a body cut short":        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc", OutcomeConnectionClosed},
		"a last chunk is missing": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", OutcomeConnectionClosed},
		"a header cut short":      {"HTTP/1.1 200 OK\r\nX-A: b\r\n", OutcomeConnectionClosed},
		"a status line cut short": {"HTTP/1.1 2", OutcomeBadAnswer}, // net/http does not tell it from a wrong one
		"nothing":                 {"", OutcomeConnectionClosed},
		"HTTP/1.0":                {"HTTP/1.0 200 OK\r\n\r\nok", OutcomeDelivered},
		"more than was announced": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 Smuggled\r\n\r\n", OutcomeDelivered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := sendServe(t, func(conn net.Conn) {
				if _, _, err := sendReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, c.answer)
				}
			})
			r := sendOnce(t, sendEndpoint(t, "http://"+at+"/"+sendToken))
			sendWant(t, r, c.want)
		})
	}
}

// A body that ends with its connection has not ended by itself once the attempt's context is over: that may have closed
// the connection. One that says its length has, whenever that was.
func TestAnswerEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		resp          http.Response
		over, wantErr bool
		want          Outcome
	}{
		{"until close, in time", http.Response{ProtoMajor: 1, ContentLength: -1}, false, false, OutcomeDelivered},
		{"until close, too late", http.Response{ProtoMajor: 1, ContentLength: -1}, true, true, 0},
		{"with a length", http.Response{ProtoMajor: 1, ContentLength: 2}, true, false, OutcomeDelivered},
		{"in chunks", http.Response{ProtoMajor: 1, ContentLength: -1, TransferEncoding: []string{"chunked"}}, true, false, OutcomeDelivered},
		{"over HTTP/2", http.Response{ProtoMajor: 2, ContentLength: -1}, true, false, OutcomeDelivered},
	}
	for _, test := range tests {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if test.over {
			cancel()
		}
		resp := test.resp
		resp.StatusCode, resp.Header, resp.Body = http.StatusOK, http.Header{}, io.NopCloser(strings.NewReader("ab"))
		x := exchange{sender: sendSender(t), endpoint: sendEndpoint(t, "http://127.0.0.1:9/"), ctx: ctx}
		whole, err := x.answer(&resp)
		if (err != nil) != test.wantErr || whole == test.wantErr || x.Outcome != test.want {
			t.Errorf("%s: %s, whole %v, %v; want %s, an error %v", test.name, x.Outcome, whole, err, test.want, test.wantErr)
		}
	}
}

// However a receiver stands still in its answer, the attempt ends with its time limit, and nothing of it is left behind:
// an attempt that went on would keep its slot, and the process from stopping.
func TestAnswerThatStandsStill(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	ca := newSendCA(t)
	secured := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}, NextProtos: []string{"http/1.1"}}
	tests := []struct {
		name, answer string
		want         Outcome
	}{
		{"no byte", "", OutcomeTimeoutHeaders},
		{"in the status line", "HTTP/1.1 200", OutcomeTimeoutHeaders},
		{"in the header", "HTTP/1.1 200 OK\r\nX-A: b\r\n", OutcomeTimeoutHeaders},
		{"after 100", "HTTP/1.1 100 Continue\r\n\r\n", OutcomeTimeoutHeaders},
		{"after 103", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", OutcomeTimeoutHeaders},
		{"after 101", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", OutcomeBadAnswer},
		{"after 101 without an upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\n", OutcomeBadAnswer},
		{"after 101 with a length", "HTTP/1.1 101 Switching Protocols\r\nContent-Length: 5\r\n\r\nab", OutcomeBadAnswer},
		{"after 101 and bytes", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + strings.Repeat("x", 3000), OutcomeBadAnswer},
		{"in a body without a length", "HTTP/1.1 200 OK\r\n\r\nab", OutcomeTimeoutBody},
		{"in a body with a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", OutcomeTimeoutBody},
		{"between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", OutcomeTimeoutBody},
		{"in the trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-A: b\r\n", OutcomeTimeoutBody},
		{"in the body of a failure", "HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\nab", OutcomeServerError},
		{"in HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nab", OutcomeTimeoutBody},
	}
	var running sync.WaitGroup // and not subtests, of which only a few run at one time
	for _, test := range tests {
		for _, scheme := range []string{"http", "https"} {
			left := make(chan struct{}, 1)
			at := sendServe(t, func(c net.Conn) {
				if scheme == "https" {
					c = tls.Server(c, secured)
				}
				br := bufio.NewReader(c)
				if _, _, err := sendReadRequest(br); err != nil {
					return
				}
				_, _ = io.WriteString(c, test.answer)
				// A sender that does not leave is let go, so that the test can say so.
				_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := br.ReadByte(); !isTimeout(err) {
					left <- struct{}{}
				}
			})
			s, e := sendSender(t), sendEndpoint(t, scheme+"://"+at, sendWithin(limit), sendTrusting(ca.pool))
			running.Go(func() {
				r := s.Send(t.Context(), e, sendEvent(), 1)
				if r.Outcome != test.want || r.Took > limit+2*time.Second {
					t.Errorf("%s, %s: %s (%s) after %s; want %s within %s", test.name, scheme, r.Outcome, r.Detail, r.Took, test.want, limit)
				}
				select {
				case <-left:
				case <-time.After(5 * time.Second):
					t.Errorf("%s, %s: the connection was kept", test.name, scheme)
				}
			})
		}
	}
	running.Wait()
}
