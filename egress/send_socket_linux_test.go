package egress

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// Linux says at once that the queue of a socket is full, where TCP waits. An app that is only slow to accept is no app that
// is away: the attempt waits for its turn.
func TestSendSocketWithAFullQueue(t *testing.T) {
	t.Parallel()
	e, _ := sendSocket(t, nil)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: e.Socket}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), e.Socket)
	l, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	waiting := 0
	for {
		c, err := net.Dial("unix", e.Socket)
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		waiting++
	}
	done := make(chan Result, 1)
	s := sendAsked(t, Request{Method: "POST", Target: "/"})
	go func() { done <- s.Send(t.Context(), e, sendEvent(), 1) }()
	select {
	case r := <-done:
		t.Fatalf("%s (%s) while the queue was full", r.Outcome, r.Detail)
	case <-time.After(50 * time.Millisecond):
	}
	for range waiting {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := sendReadRequest(bufio.NewReader(c)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	sendWant(t, <-done, OutcomeDelivered)
}

// While its queue stays full it is one that does not answer.
func TestSendSocketThatNeverAccepts(t *testing.T) {
	t.Parallel()
	e, _ := sendSocket(t, nil)
	e.Policy.Timeout = 50 * time.Millisecond
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: e.Socket}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.Dial("unix", e.Socket)
		if err != nil {
			break
		}
		defer c.Close()
	}
	r := sendAsked(t, Request{Method: "POST", Target: "/"}).Send(t.Context(), e, sendEvent(), 1)
	sendCheck(t, e, r)
	sendWant(t, r, OutcomeConnectTimeout)
}
