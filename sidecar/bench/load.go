package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// hookPath is what the load posts to; the bench's source claims it.
	hookPath = "/hook/bench"
	// bodyBytes is the size of every body: the figure.
	bodyBytes = 1024
	// turnTimeout bounds one turn of load as a whole.
	turnTimeout = 3 * time.Minute
)

// hookKey is the raw key with which the load signs. It guards nothing but this benchmark's own sidehook.
var hookKey = []byte("sidehook-bench-key-of-32-bytes!!")

// hookSecret is hookKey as a config holds it.
func hookSecret() string { return "whsec_" + base64.StdEncoding.EncodeToString(hookKey) }

// loadResult is what the load child reports of a turn, as one line of JSON.
type loadResult struct {
	Requests int
	Elapsed  time.Duration
	// Status counts the answers by HTTP status.
	Status map[int]int
	// P50 and P99 are of the time between the first byte written and the last byte read.
	P50, P99 time.Duration
}

func (r loadResult) rate() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// loadMain is the load child: it signs all requests first, says "ready", waits for a line on stdin, posts them over
// keep-alive connections as fast as they are answered, and prints a loadResult.
// It speaks HTTP/1.1 by hand and runs on one thread: what it uses of the machine is taken from Envoy and the gate.
func loadMain(args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	addr := flags.String("addr", "", "host:port of Envoy")
	n := flags.Int("n", 1000, "requests")
	conns := flags.Int("conns", 64, "connections")
	if err := flags.Parse(args); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	requests := signRequests(*n, *addr, time.Now())
	fmt.Fprintln(stdout, "ready")
	if _, err := bufio.NewReader(stdin).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	result, err := load(*addr, requests, *conns)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(result)
}

// signRequests makes n whole requests, signed at now, each with a fresh random id of 30 bytes and the same body.
func signRequests(n int, host string, now time.Time) [][]byte {
	sign := newSigner()
	requests := make([][]byte, n)
	for i := range requests {
		m := sign.sign(now)
		var b bytes.Buffer
		b.Grow(bodyBytes + 384)
		fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"+
			"webhook-id: %s\r\nwebhook-timestamp: %s\r\nwebhook-signature: %s\r\n\r\n",
			hookPath, host, len(sign.body), m.id, m.seconds, m.signature)
		b.Write(sign.body)
		requests[i] = b.Bytes()
	}
	return requests
}

// hookBody is a JSON object of exactly bodyBytes.
func hookBody() []byte {
	const head, tail = `{"type":"invoice.paid","timestamp":"2026-01-01T00:00:00.000Z","data":{"note":"`, `"}}`
	return slices.Concat([]byte(head), bytes.Repeat([]byte{'x'}, bodyBytes-len(head)-len(tail)), []byte(tail))
}

// load posts every request once over conns keep-alive connections.
func load(addr string, requests [][]byte, conns int) (loadResult, error) {
	took := make([]time.Duration, len(requests))
	status := make([]int, len(requests))
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, conns)
	sockets := make([]net.Conn, conns)
	for i := range sockets {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return loadResult{}, err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(turnTimeout))
		sockets[i] = c
	}
	start := time.Now()
	for _, c := range sockets {
		wg.Go(func() {
			r := newReader(c)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(requests) {
					return
				}
				sent := time.Now()
				if _, err := c.Write(requests[i]); err != nil {
					errs <- fmt.Errorf("write request %d: %w", i, err)
					return
				}
				first, _, err := r.message()
				if err != nil {
					errs <- fmt.Errorf("read answer %d: %w", i, err)
					return
				}
				took[i] = time.Since(sent)
				status[i] = statusOf(first)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	select {
	case err := <-errs:
		return loadResult{}, err
	default:
	}
	result := loadResult{Requests: len(requests), Elapsed: elapsed, Status: make(map[int]int)}
	for _, code := range status {
		result.Status[code]++
	}
	result.P50, result.P99 = percentile(took, 0.50), percentile(took, 0.99)
	return result, nil
}

// statusOf reads the code of an HTTP/1.1 status line; 0 when there is none.
func statusOf(line []byte) int {
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !ok || len(rest) < 3 {
		return 0
	}
	code, err := strconv.Atoi(string(rest[:3]))
	if err != nil {
		return 0
	}
	return code
}
