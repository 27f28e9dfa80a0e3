package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// oddBody is one of the bodies of the classes BODY and CHARSET.
type oddBody struct{ name, body, coding string }

func oddBodies(t *testing.T) []oddBody {
	t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(w, `{"type":"x","n":1}`); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return []oddBody{
		{name: "odd spacing and CR LF at the end", body: "{ \"b\":1,  \"a\":2.0 }\r\n"},
		{name: "escaped slashes", body: `{"url":"https:\/\/h\/x"}`},
		{name: "a character of four bytes", body: `{"name":"🦊 Zürich"}`},
		{name: "not UTF-8", body: "\xff\xfe{\"a\":1}"},
		{name: "raw UTF-8 beside escapes", body: `{"a":"é\u003c\/"}`},
		{name: "byte order mark", body: "\xef\xbb\xbf{\"type\":\"x\"}"},
		{name: "zero bytes", body: "a\x00b\x00"},
		{name: "gzip, hashed as it is", body: zipped.String(), coding: "gzip"},
		{name: "blanks alone", body: " \n\t "},
		{name: "empty", body: ""},
	}
}

// wayOfSending is how a body travels to Envoy.
type wayOfSending struct {
	name    string
	client  *http.Client
	chunked bool
}

func waysOfSending() []wayOfSending {
	return []wayOfSending{
		{"with its length", client, false},
		{"in chunks of one byte", client, true},
		{"over HTTP2", overHTTP2, false},
		{"over HTTP2 without a length", overHTTP2, true},
	}
}

// The bodies of the classes BODY and CHARSET: each was lost by a receiver that read it before hashing it, or by a
// middleware that wrote it anew. The app has to get these very bytes, however they travel.
func TestBodiesArriveByteForByte(t *testing.T) {
	t.Parallel()
	x := start(t, setup{})
	bodies, ways := oddBodies(t), waysOfSending()
	for i, b := range bodies {
		for j, way := range ways {
			t.Run(b.name+"/"+way.name, func(t *testing.T) {
				t.Parallel()
				id := fmt.Sprintf("msg_%d_%d", i, j)
				m := standard(t, "/webhooks/standard", id, []byte(b.body), time.Now(), standardSecret)
				m.header.Set("Content-Type", "application/octet-stream")
				if b.coding != "" {
					m.header.Set("Content-Encoding", b.coding)
				}
				m.chunked = way.chunked
				got, err := send(t.Context(), way.client, x.url, m)
				if err != nil {
					t.Fatal(err)
				}
				if got.body != "thanks" {
					t.Fatalf("the sender got %v, want the app's answer", got)
				}
				if calls := x.app.of(id); len(calls) != 1 || string(calls[0].body) != b.body {
					t.Errorf("the app got %+v, want one call with %q", calls, b.body)
				}
			})
		}
	}
}

// Class SIZE: one limit, whatever the way, and a refusal before the app and the inbox.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: `
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], max_body: 4Ki}`})
	for _, test := range []struct {
		name    string
		bytes   int
		chunked bool
		client  *http.Client
		refused bool
	}{
		{"just so", 4096, false, client, false},
		{"just so in chunks", 4096, true, client, false},
		{"just so over HTTP2", 4096, true, overHTTP2, false},
		{"one byte more", 4097, false, client, true},
		{"one byte more in chunks", 4097, true, client, true},
		{"one byte more over HTTP2", 4097, true, overHTTP2, true},
		{"a lot more", 1 << 20, false, client, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			id := "msg_" + strings.ReplaceAll(test.name, " ", "_")
			m := standard(t, "/webhooks/standard", id, bytes.Repeat([]byte("x"), test.bytes), time.Now(), standardSecret)
			m.chunked = test.chunked
			got, err := send(t.Context(), test.client, x.url, m)
			if err != nil {
				t.Fatal(err)
			}
			if !test.refused && got.body != "thanks" {
				t.Errorf("got %v, want the app's answer", got)
			}
			if test.refused && !got.is(http.StatusRequestEntityTooLarge, "too_large") {
				t.Errorf("got %v, want 413 too_large", got)
			}
			if n := len(x.app.of(id)); (n == 0) != test.refused {
				t.Errorf("the app was called %d times", n)
			}
			if e := x.event("standard", id); (e == nil) != test.refused {
				t.Errorf("the inbox has %v", e)
			}
		})
	}
}

// GitHub sends up to 25 MB and does not send again: 24.9 MB pass as they are. Four at once do not fit into the memory
// that is meant for bodies: some are told to come back, none costs more, and all have passed in the end.
func TestBodiesAsLargeAsGitHubSends(t *testing.T) {
	t.Parallel()
	x := start(t, setup{more: "limits: {bodies_in_flight: 64Mi}"})
	body := bytes.Repeat([]byte("0123456789abcdef"), 24_900_000/16)
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			id := fmt.Sprintf("delivery-%d", i)
			own := append(bytes.Clone(body), byte('0'+i))
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for {
				got, err := send(ctx, client, x.url, github(id, own, githubSecret))
				if err != nil {
					t.Error(err)
					return
				}
				if got.body == "thanks" {
					break
				}
				if !got.is(http.StatusServiceUnavailable, "busy") || got.header.Get("Retry-After") == "" {
					t.Errorf("got %v, want the app's answer or 503 busy with Retry-After", got)
					return
				}
				<-tick.C
			}
			if calls := x.app.of(id); len(calls) != 1 || !bytes.Equal(calls[0].body, own) {
				t.Errorf("%s: the app was called %d times, or not with the %d bytes that were sent", id, len(calls), len(own))
			}
		})
	}
	senders.Wait()
	// A body is in memory once in the gRPC message and once for the verifier at most; without the limit four of them
	// would take more.
	if peak, ok := peakMemory(t, x.gate.process.Pid); ok && peak > 256<<20 {
		t.Errorf("the gate took %d MiB of memory", peak>>20)
	}
	got := x.post(github("delivery-9", bytes.Repeat([]byte("x"), 25<<20+1), githubSecret))
	if !got.is(http.StatusRequestEntityTooLarge, "too_large") {
		t.Errorf("25 MiB and a byte got %v, want 413 too_large", got)
	}
}

// Envoy does not hold back the body of an upgrade, so the gate could not verify it. The app's own WebSockets work.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	x := start(t, setup{open: "[{path_prefix: /ws}]"})
	x.app.answer(func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer connection.Close()
		_, _ = io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
	})
	m := contact(t, "msg_upgrade")
	m.header.Set("Connection", "Upgrade")
	m.header.Set("Upgrade", "websocket")
	if got := x.post(m); !got.is(http.StatusBadRequest, "upgrade_refused") {
		t.Errorf("on a source: got %v, want 400 upgrade_refused", got)
	}
	if n := len(x.app.all()); n != 0 {
		t.Errorf("the app was called %d times", n)
	}

	connection, err := net.DialTimeout("tcp", strings.TrimPrefix(x.url, "http://"), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection, "GET /ws HTTP/1.1\r\nHost: app\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	res, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	hello := make([]byte, 5)
	if _, err := io.ReadFull(reader, hello); err != nil || res.StatusCode != http.StatusSwitchingProtocols || string(hello) != "hello" {
		t.Errorf("on an open path: got %s, %q, %v, want 101 and hello", res.Status, hello, err)
	}
}
