package egress

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ndjsonBound is how long a test over real sockets may take before it is given up.
const ndjsonBound = 30 * time.Second

// ndjsonLine is a line of the answer, as an app reads it.
type ndjsonLine struct {
	Status     int
	Type       string
	ID         string
	Deliveries []struct{ Endpoint string }
}

func ndjsonLines(t *testing.T, body []byte) []ndjsonLine {
	t.Helper()
	if len(body) > 0 && body[len(body)-1] != '\n' {
		t.Errorf("the answer ends without a line end: %q", body)
	}
	var lines []ndjsonLine
	for text := range bytes.Lines(body) {
		var l ndjsonLine
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func ndjsonPost(body string) *http.Request {
	return intakePost(eventsPath, body, "Content-Type", "application/x-ndjson")
}

// said is a line in short: its status, and its id or the code of its problem.
func (l ndjsonLine) said() string {
	return fmt.Sprint(l.Status, " ", l.ID, strings.TrimPrefix(l.Type, problemType))
}

func TestNDJSON(t *testing.T) {
	t.Parallel()
	event := func(id string) string { return `{"id":"` + id + `","type":"a","data":1}` }
	const most = 100
	fill := func(n int) string { // an event of n bytes
		frame := `{"id":"f","type":"a","data":""}`
		return frame[:len(frame)-2] + strings.Repeat("x", n-len(frame)) + frame[len(frame)-2:]
	}
	for _, tt := range []struct {
		name, body string
		want       []string
	}{
		{"a line each", event("a") + "\n" + event("b") + "\n", []string{"202 a", "202 b"}},
		{"no line end at the end", event("a") + "\n" + event("b"), []string{"202 a", "202 b"}},
		{"line ends of another system, and blank lines", "\r\n" + event("a") + "\r\n \t\n\n" + event("b") + "\r\n", []string{"202 a", "202 b"}},
		{"nothing", "", nil},
		{"blank lines alone", "\n\n", nil},
		{"bad lines between good ones", event("a") + "\n{\n" + `{"type":"a","type":"a","data":1}` + "\n" + event("b") + "\n" +
			`{"type":"a","endpoint":"nobody","data":1}` + "\n" + event("a.b") + "\n" + event("c"),
			[]string{"202 a", "400 invalid_json", "400 duplicate_key", "202 b", "422 unknown_endpoint", "400 invalid_event", "202 c"}},
		{"two events in a line", event("a") + event("b") + "\n", []string{"400 invalid_json"}},
		{"an array of events", "[" + event("a") + "]\n", []string{"400 invalid_json"}},
		{"a line of the largest size", fill(most) + "\n" + event("b") + "\n", []string{"202 f", "202 b"}},
		{"a line of one byte more", fill(most+1) + "\n" + event("b") + "\n", []string{"413 too_large", "202 b"}},
		{"a line beyond every buffer", event("a") + "\n" + fill(20_000) + "\n" + event("b") + "\n", []string{"202 a", "413 too_large", "202 b"}},
		{"a long line at the end", event("a") + "\n" + fill(20_000), []string{"202 a", "413 too_large"}},
		{"the same twice", event("a") + "\n" + event("a") + "\n", []string{"202 a", "202 a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in, _ := newTestIntake(new(intakeOutbox), func(c *IntakeConfig) { c.Settings.MaxEventBytes = most })
			w := serveIntake(in, ndjsonPost(tt.body))
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/x-ndjson" {
				t.Errorf("%d of %q", w.Code, w.Header().Get("Content-Type"))
			}
			var got []string
			for _, l := range ndjsonLines(t, w.Body.Bytes()) {
				got = append(got, l.said())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if err := in.bytes.Acquire(t.Context(), in.cfg.MaxBytesInFlight); err != nil {
				t.Errorf("bytes are still held: %v", err)
			}
		})
	}
	t.Run("Idempotency-Key", func(t *testing.T) {
		t.Parallel()
		in, _ := newTestIntake(new(intakeOutbox), nil)
		r := ndjsonPost(event("a"))
		r.Header.Set("Idempotency-Key", "k")
		checkProblem(t, serveIntake(in, r), 400, "invalid_event")
	})
}

// Lines are stored beside each other in bounded numbers, and answered in order.
func TestNDJSONOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		o := &intakeOutbox{before: func(e *Event) error {
			for n := now.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			defer now.Add(-1)
			var n int
			if _, err := fmt.Sscanf(e.ID, "e%d", &n); err != nil {
				return err
			}
			time.Sleep(time.Duration(1+(n*7919)%50) * time.Millisecond) // later ones end before earlier ones
			return nil
		}}
		in, counts := newTestIntake(o, nil)
		const lines = 1000
		var body strings.Builder
		for i := range lines {
			fmt.Fprintf(&body, "{\"id\":\"e%d\",\"type\":\"a\",\"data\":1}\n", i)
		}
		got := ndjsonLines(t, serveIntake(in, ndjsonPost(body.String())).Body.Bytes())
		if len(got) != lines {
			t.Fatalf("%d answers, want %d", len(got), lines)
		}
		for i, l := range got {
			if want := fmt.Sprintf("202 e%d", i); l.said() != want {
				t.Fatalf("answer %d is %q, want %q", i, l.said(), want)
			}
		}
		// The queue, the line that collect waits for, and the one that read has begun.
		if m := most.Load(); m < maxLinesInHand/2 || m > maxLinesInHand+2 {
			t.Errorf("at most %d lines were stored at one time, want about %d", m, maxLinesInHand)
		}
		if diff := cmp.Diff(map[string]int{IntakeAccepted: lines}, counts.get()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	})
}

// A line waits for room among the bytes in flight; it is not refused as a request of its own would be.
func TestNDJSONWaitsForRoom(t *testing.T) {
	t.Parallel()
	o := new(intakeOutbox)
	in, _ := newTestIntake(o, func(c *IntakeConfig) { c.Settings.MaxEventBytes, c.MaxBytesInFlight = 200, 200 })
	const lines = 200
	w := serveIntake(in, ndjsonPost(strings.Repeat(`{"type":"a","data":1}`+"\n", lines)))
	for i, l := range ndjsonLines(t, w.Body.Bytes()) {
		if l.Status != http.StatusAccepted {
			t.Errorf("line %d: %s", i, l.said())
		}
	}
	if n := len(o.accepted()); n != lines {
		t.Errorf("%d events, want %d", n, lines)
	}
}

// ndjsonServer serves in with deadlines that are over before a request of NDJSON is.
func ndjsonServer(t *testing.T, in *Intake) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(in)
	s.Config.ReadTimeout, s.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	s.Config.RegisterOnShutdown(in.Stop)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// A client may send a line and read its answer before it sends the next one, for longer than a whole request may take.
func TestNDJSONInTurn(t *testing.T) {
	t.Parallel()
	in, _ := newTestIntake(new(intakeOutbox), nil)
	s := ndjsonServer(t, in)
	body, send := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+eventsPath, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	started := time.Now()
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	var answers *bufio.Reader
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for i := 0; time.Since(started) < 600*time.Millisecond; i++ {
		if _, err := fmt.Fprintf(send, "{\"id\":\"e%d\",\"type\":\"a\",\"data\":1}\n", i); err != nil {
			t.Fatal(err)
		}
		if answers == nil {
			resp := <-answered
			if resp == nil {
				return
			}
			defer resp.Body.Close()
			answers = bufio.NewReader(resp.Body)
		}
		text, err := answers.ReadBytes('\n')
		if err != nil {
			t.Fatalf("answer %d after %v: %v", i, time.Since(started), err)
		}
		if got, want := ndjsonLines(t, text)[0].said(), fmt.Sprintf("202 e%d", i); got != want {
			t.Fatalf("answer %d is %q, want %q", i, got, want)
		}
		<-pause.C
	}
	if err := send.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
		t.Errorf("after the last line: %q, %v", rest, err)
	}
}

// pipeListener accepts one connection, in memory and without any buffer.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// ndjsonPipe begins a request of NDJSON over a connection in memory to a server whose own time limits are short. end
// closes all. It is for bubbles.
func ndjsonPipe(t *testing.T, in *Intake, length int) (c net.Conn, end func()) {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn, 1)}
	server := &http.Server{Handler: in, ReadTimeout: time.Second, WriteTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	c, theirs := net.Pipe()
	l.conns <- theirs
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n",
		eventsPath, length); err != nil {
		t.Fatal(err)
	}
	return c, func() {
		if err := errors.Join(c.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

// ndjsonAnswer reads the whole answer from c.
func ndjsonAnswer(t *testing.T, c net.Conn) []byte {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// Most clients read nothing before they have sent all. The answers wait for them, though nothing between us and the
// client takes a byte of them.
func TestNDJSONSendThenRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _ := newTestIntake(new(intakeOutbox), nil)
		const lines = 20_000
		body := bytes.Repeat([]byte(`{"type":"a","data":1}`+"\n"), lines)
		c, end := ndjsonPipe(t, in, len(body))
		defer end()
		if _, err := c.Write(body); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(ndjsonAnswer(t, c), []byte(`{"status":202,`)); n != lines {
			t.Errorf("%d lines were taken, want %d", n, lines)
		}
	})
}

// A client that stands still is waited for between two lines longer than within one, and what it sent before is answered.
func TestNDJSONStalls(t *testing.T) {
	t.Parallel()
	const whole = `{"id":"a","type":"a","data":1}` + "\n"
	for _, tt := range []struct {
		name, sent string
		want       []string
		after      time.Duration
	}{
		{"between two lines", whole, []string{"202 a"}, lineIdle},
		{"within a line", whole + `{"id":"b"`, []string{"202 a", "400 incomplete_body"}, lineStall},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				in, _ := newTestIntake(new(intakeOutbox), nil)
				c, end := ndjsonPipe(t, in, 1000)
				defer end()
				if _, err := io.WriteString(c, tt.sent); err != nil {
					t.Fatal(err)
				}
				started := time.Now()
				var got []string
				for _, l := range ndjsonLines(t, ndjsonAnswer(t, c)) {
					got = append(got, l.said())
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("answers (-want +got):\n%s", diff)
				}
				if took := time.Since(started); took != tt.after {
					t.Errorf("it took %v, want %v", took, tt.after)
				}
			})
		})
	}
}

// Once all is read there is no hurry: a slow disk does not make lines fail that are in hand.
func TestNDJSONSlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _ := newTestIntake(&intakeOutbox{before: func(*Event) error {
			time.Sleep(2 * lineIdle)
			return nil
		}}, nil)
		const body = `{"id":"a","type":"a","data":1}` + "\n"
		c, end := ndjsonPipe(t, in, len(body))
		defer end()
		if _, err := io.WriteString(c, body); err != nil {
			t.Fatal(err)
		}
		if got := ndjsonLines(t, ndjsonAnswer(t, c)); len(got) != 1 || got[0].said() != "202 a" {
			t.Errorf("answers %+v", got)
		}
	})
}

// A body that ends within a line: what came before is taken and answered, the part is not.
func TestNDJSONCutOff(t *testing.T) {
	t.Parallel()
	o := new(intakeOutbox)
	in, _ := newTestIntake(o, nil)
	r := ndjsonPost("")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"id":"a","type":"a","data":1}`+"\n"+`{"id":"b","type":"a","data":1}`), brokenReader{}))
	var got []string
	for _, l := range ndjsonLines(t, serveIntake(in, r).Body.Bytes()) {
		got = append(got, l.said())
	}
	if diff := cmp.Diff([]string{"202 a", "400 incomplete_body"}, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if events := o.accepted(); len(events) != 1 {
		t.Errorf("%d events, want 1", len(events))
	}
}

// The end of the process does not wait for a client that keeps its request open.
func TestNDJSONStop(t *testing.T) {
	t.Parallel()
	in, _ := newTestIntake(new(intakeOutbox), nil)
	s := ndjsonServer(t, in)
	body, send := io.Pipe()
	defer send.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+eventsPath, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	go func() { _, _ = io.WriteString(send, `{"id":"a","type":"a","data":1}`+"\n") }()
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	if text, err := answers.ReadString('\n'); err != nil || !strings.HasPrefix(text, `{"status":202,"id":"a"`) {
		t.Fatalf("%q, %v", text, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Config.Shutdown(t.Context()) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(ndjsonBound):
		t.Fatal("the server waits for the client")
	}
	if rest, _ := io.ReadAll(answers); len(rest) > 0 {
		t.Errorf("after the stop: %q", rest)
	}
}

// brokenWriter is a client that has gone.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A client that has gone holds nothing up: reading ends, and all that was held is given back.
func TestNDJSONClientGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _ := newTestIntake(new(intakeOutbox), nil)
		body, send := io.Pipe()
		r := ndjsonPost("")
		r.Body = body
		var sender sync.WaitGroup
		sender.Go(func() {
			for {
				if _, err := io.WriteString(send, `{"type":"a","data":1}`+"\n"); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
		in.ServeHTTP(brokenWriter{httptest.NewRecorder()}, r)
		body.Close()
		sender.Wait()
		if !in.bytes.TryAcquire(in.cfg.MaxBytesInFlight) {
			t.Error("bytes are still held")
		}
	})
}
