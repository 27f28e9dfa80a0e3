package main

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// app is any app: it takes a webhook, does its work and answers 200, or 500 while its database is down. It verifies
// nothing and remembers nothing; that is what sidehook is for.
type app struct {
	addr string

	mu           sync.Mutex // covers all below
	databaseDown bool
	got          [][]byte // the bodies since the last look
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, body)
	if err != nil || a.databaseDown {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "ok") // the sender may have gone
}

// breakDatabase has it answer 500 from now on, or no more.
func (a *app) breakDatabase(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.databaseDown = down
}

// look says what came since the last look, where each webhook's body should be want.
func (a *app) look(want []byte) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := a.got
	a.got = nil
	for _, body := range got {
		if !bytes.Equal(body, want) {
			return "other bytes than were sent"
		}
	}
	switch len(got) {
	case 0:
		return "nothing"
	case 1:
		return "1 call"
	default:
		return "several calls"
	}
}
