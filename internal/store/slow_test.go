package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowCommitIsSaid: a disk on which commits take long is told of, once a minute, and how many there were.
func TestSlowCommitIsSaid(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var takes time.Duration
		s := openStore(t, Options{
			Folder: folder, Logger: slog.New(slog.NewJSONHandler(&log, nil)),
			Commit: func(commit, _ func() error) error {
				time.Sleep(takes)
				return commit()
			},
		})
		r := run(t, s)
		start := time.Now()
		for _, step := range []struct{ at, takes time.Duration }{
			{0, 99 * time.Millisecond},
			{10 * time.Second, 100 * time.Millisecond},
			{20 * time.Second, time.Second},
			{69 * time.Second, 400 * time.Millisecond},
			{70 * time.Second, 300 * time.Millisecond},
			{71 * time.Second, 200 * time.Millisecond},
		} {
			time.Sleep(time.Until(start.Add(step.at)))
			takes = step.takes
			op := putOp("k", "v")
			if err := r.Submit(op, Urgent); err != nil {
				t.Fatal(err)
			}
			if err := <-op.done; err != nil {
				t.Fatal(err)
			}
		}
		type line struct {
			Level        string
			Milliseconds int64 `json:"duration_ms"`
			Slow         int   `json:"slow_commits"`
		}
		var got []line
		for text := range bytes.Lines(log.Bytes()) {
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		if want := []line{{"WARN", 100, 1}, {"WARN", 300, 3}}; !slices.Equal(got, want) {
			t.Errorf("logged %+v, want %+v", got, want)
		}
	})
}

// TestFailedCommitsAreSaid: while the disk is full each commit fails, and the log says so now and then, and how many did. The
// one that ends the store is always said.
func TestFailedCommitsAreSaid(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var fails error
		s := openStore(t, Options{
			Folder: folder, Logger: slog.New(slog.NewJSONHandler(&log, nil)),
			Commit: func(commit, rollback func() error) error {
				if fails == nil {
					return commit()
				}
				return errors.Join(rollback(), fails)
			},
		})
		r := run(t, s)
		start := time.Now()
		full := &fs.PathError{Op: "write", Path: FileName, Err: syscall.ENOSPC}
		for _, step := range []struct {
			at   time.Duration
			fail error
		}{
			{0, nil}, {time.Second, full}, {2 * time.Second, full}, {10 * time.Second, full}, {11 * time.Second, full},
			{12 * time.Second, nil}, {13 * time.Second, full}, {14 * time.Second, syscall.EIO},
		} {
			time.Sleep(time.Until(start.Add(step.at)))
			fails = step.fail
			if err := r.do(Urgent, putOp("k", "v")); (err != nil) != (fails != nil) {
				t.Fatalf("at %v: %v, want %v", step.at, err, fails)
			}
		}
		<-r.ended
		r.ended <- nil
		type line struct {
			Level  string
			Failed int `json:"failed_commits"`
		}
		var got []line
		for text := range bytes.Lines(log.Bytes()) {
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		if want := []line{{"ERROR", 1}, {"ERROR", 3}, {"ERROR", 2}}; !slices.Equal(got, want) {
			t.Errorf("logged %+v, want %+v", got, want)
		}
	})
}
