package egress

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

// TestStartOnAFullDisk: attempts that a kill cut off keep nobody from starting where they cannot be logged, and nothing
// that waits is lost over it. They are logged by a later start.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	b := openBoltOutbox(t, folder, 0, nil)
	d := givenDelivery(t, b)
	b.Mark(&d, time.Now(), TriggerSchedule)
	if err := b.end(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	faults := new(storetest.Faults)
	s, err := store.Open(t.Context(), store.Options{Folder: folder, Commit: faults.Commit})
	if err != nil {
		t.Fatal(err)
	}
	faults.Next(storetest.Fault{Err: storetest.DiskFull})
	full, err := NewBoltOutbox(BoltOutboxConfig{Store: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatalf("start with the disk full: %v", err)
	}
	if got := full.Known(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("it knows %q, want a, b, c", got)
	}
	ds, err := full.Due(nil, "a", LaneFirst, nil, 2)
	if err != nil || len(ds) != 1 || ds[0].Tries != 0 {
		t.Errorf("due: %+v, %v; want the delivery as it was", ds, err)
	}
	if !strings.Contains(log.String(), "no space left on device") {
		t.Errorf("the log does not say what is missing: %s", log.String())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b = openBoltOutboxAgain(t, folder)
	if ds := b.due(t, "a"); len(ds) != 1 || ds[0].Tries != 1 || ds[0].Reason != OutcomeInterrupted {
		t.Errorf("after a start with room: %+v, want the try as interrupted", ds)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestLastSetOfEndpointsCounts: one that the disk did not take is done after those that came later, and must not undo them.
func TestLastSetOfEndpointsCounts(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 0, nil)
		b.faults.Next(storetest.Fault{Err: storetest.DiskFull}, storetest.Fault{Err: storetest.DiskFull})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := b.SetEndpoints(ctx, []string{"a", "b"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("with the disk full: %v, want that it is not written in time", err)
		}
		if err := b.SetEndpoints(t.Context(), []string{"a", "c", "d"}); err != nil { // tried until there is room
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := b.Known(); !slices.Equal(got, []string{"a", "c", "d"}) {
			t.Errorf("known: %q, want those of the last call", got)
		}
		b.mustAccept(t, boltEvent("", "body"), "d")
		if err := b.end(); err != nil {
			t.Error(err)
		}
		again := openBoltOutboxAgain(t, folder)
		if got := again.Known(); !slices.Equal(got, []string{"a", "c", "d"}) {
			t.Errorf("known after a restart: %q, want those of the last call", got)
		}
		if err := again.end(); err != nil {
			t.Error(err)
		}
	})
}
