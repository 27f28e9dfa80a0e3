package main

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEventRequest holds the load's events to what the receiver reads of them: the time of posting, written in place.
func TestEventRequest(t *testing.T) {
	t.Parallel()
	request, sent := eventRequest("127.0.0.1:9292", "invoice.paid")
	at := time.Unix(0, 1_796_070_685_123_456_789)
	strconv.AppendInt(request[sent:sent], at.UnixNano(), 10)
	in := newReader(strings.NewReader(string(request)))
	_, body, err := in.message()
	if err != nil {
		t.Fatal(err)
	}
	if len(body) != bodyBytes {
		t.Errorf("a body of %d bytes, want %d", len(body), bodyBytes)
	}
	if got, ok := sentAt(body); !ok || !got.Equal(at) {
		t.Errorf("sentAt = %v, %t, want %v", got, ok, at)
	}
	if host, ok := field(in.head, "Host"); !ok || string(host) != "127.0.0.1:9292" {
		t.Errorf("host %q, %t", host, ok)
	}
	for _, body := range []string{"", `{"data":{}}`, `{"sent":12}`, `{"sent":"123456789012345678"}`} {
		if got, ok := sentAt([]byte(body)); ok {
			t.Errorf("sentAt(%s) = %v, want none", body, got)
		}
	}
}

// TestReceiver posts to a receiver and compares what it says it saw.
func TestReceiver(t *testing.T) {
	t.Parallel()
	r := &receiver{numbers: make(map[string]int)}
	ours, theirs := net.Pipe()
	go r.serve(theirs)
	defer ours.Close()
	if _, err := r.command("keep-ids"); err != nil {
		t.Fatal(err)
	}
	in := newReader(ours)
	for _, id := range []string{"a", "b"} {
		if _, err := ours.Write([]byte("POST /hook HTTP/1.1\r\nWebhook-Id: " + id + "\r\nContent-Length: 0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if first, _, err := in.message(); err != nil || statusOf(first) != 200 {
			t.Fatalf("answered %q, %v", first, err)
		}
	}
	got, err := r.command("look")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Count":2`, `"Open":1`, `"IDs":["a","b"]`} {
		if !strings.Contains(got, want) {
			t.Errorf("look = %s, without %s", got, want)
		}
	}
	if got, err := r.command("look"); err != nil || !strings.Contains(got, `"Count":0`) {
		t.Errorf("a second look = %s, %v, want nothing new", got, err)
	}
}

// TestReceiverOfKeys: what has keys is counted where it comes out of order, and one key can be refused.
func TestReceiverOfKeys(t *testing.T) {
	t.Parallel()
	r := &receiver{numbers: make(map[string]int)}
	ours, theirs := net.Pipe()
	go r.serve(theirs)
	defer ours.Close()
	if _, err := r.command("refuse bad"); err != nil {
		t.Fatal(err)
	}
	in := newReader(ours)
	for _, sent := range []struct {
		key, number string
		status      int
	}{{"a", "0", 200}, {"b", "7", 200}, {"a", "1", 200}, {"bad", "0", 500}, {"a", "1", 200}, {"b", "5", 200}, {"b", "6", 200}, {"a", "x", 200}} {
		if _, err := ours.Write([]byte("POST /hook HTTP/1.1\r\nX-Key: " + sent.key + "\r\nX-Number: " + sent.number + "\r\nContent-Length: 0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if first, _, err := in.message(); err != nil || statusOf(first) != sent.status {
			t.Fatalf("%s %s is answered %q, %v", sent.key, sent.number, first, err)
		}
	}
	got, err := r.command("look")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Count":7`, `"Refused":1`, `"Disorder":3`} {
		if !strings.Contains(got, want) {
			t.Errorf("look = %s, without %s", got, want)
		}
	}
}
