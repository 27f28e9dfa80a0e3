package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// sentDigits is the length of a time in nanoseconds since 1970, until the year 2286.
	sentDigits = 19
	// eventsPath is the intake.
	eventsPath = "/v1/events"
)

// eventBody is an event of that type of exactly bodyBytes, as an app posts it, with room for the time of its posting.
func eventBody(eventType string) []byte {
	head := fmt.Sprintf(`{"type":%q,"data":{%s%0*d,"note":"`, eventType, sentField, sentDigits, 0)
	const tail = `"}}`
	return slices.Concat([]byte(head), bytes.Repeat([]byte{'x'}, bodyBytes-len(head)-len(tail)), []byte(tail))
}

// eventRequest is a whole request, and where in it the time of posting goes.
func eventRequest(host, eventType string) (request []byte, sent int) {
	body := eventBody(eventType)
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", eventsPath, host, len(body))
	sent = b.Len() + bytes.Index(body, []byte(sentField)) + len(sentField)
	b.Write(body)
	return b.Bytes(), sent
}

// postMain is the post child: it posts events over keep-alive connections, as fast as they are answered or at a fixed
// rate, until a time or a number is reached, and prints a loadResult. At a fixed rate an answer's time counts from
// when its request was due, so that waiting for a slow answer is not hidden.
func postMain(args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("post", flag.ContinueOnError)
	addr := flags.String("addr", "", "host:port of the intake")
	eventType := flags.String("type", "invoice.paid", "type of the events")
	conns := flags.Int("conns", 64, "connections")
	lasts := flags.Duration("for", 0, "how long")
	n := flags.Int("n", 0, "how many; 0: only the time counts")
	rate := flags.Float64("rate", 0, "requests a second; 0: as fast as they are answered")
	if err := flags.Parse(args); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	p := poster{addr: *addr, eventType: *eventType, conns: *conns, lasts: *lasts, n: *n}
	if *rate > 0 {
		p.every = time.Duration(float64(time.Second) / *rate)
	}
	result, err := p.run()
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(result)
}

type poster struct {
	addr, eventType string
	conns, n        int
	lasts, every    time.Duration
}

func (p poster) run() (loadResult, error) {
	type share struct {
		took   []time.Duration
		status map[int]int
		err    error
	}
	shares := make([]share, p.conns)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range shares {
		wg.Go(func() {
			s := &shares[i]
			s.status = make(map[int]int)
			s.took, s.err = p.connection(start, i, s.status)
		})
	}
	wg.Wait()
	result := loadResult{Elapsed: time.Since(start), Status: make(map[int]int)}
	var all []time.Duration
	for _, s := range shares {
		if s.err != nil {
			return loadResult{}, s.err
		}
		all = append(all, s.took...)
		for code, n := range s.status {
			result.Status[code] += n
		}
	}
	result.Requests = len(all)
	result.P50, result.P99 = percentile(all, 0.50), percentile(all, 0.99)
	return result, nil
}

// connection posts what falls to connection i of those that began at start.
func (p poster) connection(start time.Time, i int, status map[int]int) ([]time.Duration, error) {
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(start.Add(p.lasts + turnTimeout))
	request, sent := eventRequest(p.addr, p.eventType)
	var took []time.Duration
	in := newReader(c)
	for k := i; p.n == 0 || k < p.n; k += p.conns {
		due := time.Now()
		if p.every > 0 {
			due = start.Add(time.Duration(k) * p.every)
			<-time.After(time.Until(due))
		}
		if p.lasts > 0 && due.Sub(start) >= p.lasts {
			break
		}
		strconv.AppendInt(request[sent:sent], due.UnixNano(), 10)
		if _, err := c.Write(request); err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
		first, _, err := in.message()
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		took = append(took, time.Since(due))
		status[statusOf(first)]++
	}
	return took, nil
}

// acceptMain is the yardstick child of intake: a net/http handler that reads the body and answers 202 without a disk. It
// says its address first and ends with its stdin.
func acceptMain(_ []string, stdin io.Reader, stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(acceptAnswer)
	})}
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		server.Close()
	}()
	fmt.Fprintln(stdout, l.Addr())
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// acceptAnswer is as long as the intake's.
var acceptAnswer = []byte(`{"id":"evt_00000000000000000000000000","deliveries":[{"id":"dlv_00000000000000000000","endpoint":"bench","state":"WAITING"}]}`)

// clientMain is the yardstick child of delivery: a Go client that only posts the same bytes, each of its workers one
// after the other. It prints a loadResult.
func clientMain(args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	addr := flags.String("addr", "", "host:port of the receiver")
	n := flags.Int("n", 1000, "requests")
	workers := flags.Int("workers", 64, "requests at one time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: *workers, DisableCompression: true}
	body := hookBody()
	status := make([]map[int]int, *workers)
	errs := make([]error, *workers)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range *workers {
		wg.Go(func() {
			status[i] = make(map[int]int)
			for k := i; k < *n && errs[i] == nil; k += *workers {
				var code int
				code, errs[i] = postOnce(transport, "http://"+*addr+hookPath, body)
				status[i][code]++
			}
		})
	}
	wg.Wait()
	result := loadResult{Requests: *n, Elapsed: time.Since(start), Status: make(map[int]int)}
	for i := range status {
		if errs[i] != nil {
			return errs[i]
		}
		for code, n := range status[i] {
			result.Status[code] += n
		}
	}
	return json.NewEncoder(stdout).Encode(result)
}

func postOnce(transport *http.Transport, url string, body []byte) (int, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        {"sidehook"},
		"Webhook-Id":        {"evt_00000000000000000000000000"},
		"Webhook-Timestamp": {"1767225600"},
		"Webhook-Signature": {"v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	return res.StatusCode, err
}
