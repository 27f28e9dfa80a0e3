package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sentField stands in the data of a posted event, before the time of its posting in nanoseconds since 1970, in 19 digits.
const sentField = `"sent":`

// received is what the receiver child has seen since it was asked last, as one line of JSON.
type received struct {
	Count int
	// Open is the most requests that were open at one time.
	Open int
	// First and Last are the arrivals, in nanoseconds since 1970.
	First, Last int64
	// P50 and P99 are of the time from the posting of an event to its arrival.
	P50, P99 time.Duration
	// IDs are the webhook-ids of what came, where the receiver was asked to keep them.
	IDs []string `json:",omitempty"`
	// Refused were answered 500, see "refuse"; the others count.
	Refused int
	// Disorder is how many came with a number that is not above that of the one before with the same key.
	Disorder int
}

func (r received) rate() float64 {
	if r.Last <= r.First {
		return 0
	}
	return float64(r.Count) / time.Duration(r.Last-r.First).Seconds()
}

// receiver is a customer's server, as fast as one can be: it answers 200 at once, or after a delay, or never.
type receiver struct {
	mu      sync.Mutex // covers all below
	delay   time.Duration
	hang    bool
	keepIDs bool
	open    int
	now     received
	ages    []time.Duration
	refused string
	numbers map[string]int // by key, the last
}

// receiverMain is the receiver child. It says its address first, then answers each line of stdin: "look" with a received,
// "answer DURATION", "hang", "keep-ids" and "refuse KEY" with "ok". It ends with its stdin.
func receiverMain(args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("receiver", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:0", "where to listen")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	defer l.Close()
	r := &receiver{numbers: make(map[string]int)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	fmt.Fprintln(stdout, l.Addr())
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		answer, err := r.command(lines.Text())
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(stdout, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (r *receiver) command(line string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "look":
		r.now.P50, r.now.P99 = percentile(r.ages, 0.50), percentile(r.ages, 0.99)
		text, err := json.Marshal(r.now)
		r.now, r.ages = received{}, r.ages[:0]
		return string(text), err
	case "answer":
		delay, err := time.ParseDuration(rest)
		r.delay, r.hang = delay, false
		return "ok", err
	case "hang":
		r.hang = true
	case "keep-ids":
		r.keepIDs = true
	case "refuse":
		r.refused = rest
	default:
		return "", fmt.Errorf("no command %q", line)
	}
	return "ok", nil
}

func (r *receiver) serve(c net.Conn) {
	defer c.Close()
	for in := newReader(c); ; {
		_, body, err := in.message()
		if err != nil {
			return
		}
		id, _ := field(in.head, "webhook-id")
		if r.refuses(in.head) {
			if _, err := c.Write(refusal); err != nil {
				return
			}
			continue
		}
		delay, hang := r.arrived(time.Now(), string(id), body)
		if hang {
			_, _ = io.Copy(io.Discard, c) // until the other side gives up
			r.left()
			return
		}
		if delay > 0 {
			<-time.After(delay)
		}
		r.left()
		if _, err := c.Write(appAnswer); err != nil {
			return
		}
	}
}

func (r *receiver) arrived(at time.Time, id string, body []byte) (delay time.Duration, hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
	r.now.Open = max(r.now.Open, r.open)
	r.now.Count++
	r.now.Last = at.UnixNano()
	if r.now.First == 0 {
		r.now.First = r.now.Last
	}
	if sent, ok := sentAt(body); ok {
		r.ages = append(r.ages, at.Sub(sent))
	}
	if r.keepIDs {
		r.now.IDs = append(r.now.IDs, id)
	}
	return r.delay, r.hang
}

// refuses reports whether a request with this head is one to refuse, and otherwise notes where it stands among those of its key.
func (r *receiver) refuses(head []byte) bool {
	key, ok := field(head, keyHeader)
	if !ok {
		return false
	}
	text, _ := field(head, numberHeader)
	number, err := strconv.Atoi(string(text))
	r.mu.Lock()
	defer r.mu.Unlock()
	if string(key) == r.refused {
		r.now.Refused++
		return true
	}
	last, seen := r.numbers[string(key)]
	if err != nil || seen && number <= last {
		r.now.Disorder++
	}
	r.numbers[string(key)] = number
	return false
}

func (r *receiver) left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
}

// sentAt reads the time that the load wrote into an event.
func sentAt(body []byte) (time.Time, bool) {
	_, rest, ok := bytes.Cut(body, []byte(sentField))
	if !ok || len(rest) < sentDigits {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(string(rest[:sentDigits]), 10, 64)
	return time.Unix(0, n), err == nil
}

// tell has a receiver child do what line says, and returns its answer.
func (c *child) tell(line string) (string, error) {
	if _, err := fmt.Fprintln(c.stdin, line); err != nil {
		return "", fmt.Errorf("tell %s: %w", c.name, err)
	}
	return c.line()
}

// look asks a receiver child what it has seen since the last look.
func (c *child) look() (r received, err error) {
	text, err := c.tell("look")
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(text), &r)
}
