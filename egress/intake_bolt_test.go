package egress

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/store/storetest"
)

// newBoltIntake makes an intake over b and its endpoints a, b and c.
func newBoltIntake(b *boltBench) (*Intake, *intakeCounts) {
	counts := new(intakeCounts)
	endpoints := NewEndpoints([]*Endpoint{{ID: "a"}, {ID: "b"}, {ID: "c", Tenant: "t1"}})
	return NewIntake(IntakeConfig{Outbox: b, Endpoints: func() *Endpoints { return endpoints }, Count: counts.count}), counts
}

// What was answered 202 is there after a restart, and a repeat gets the same answer then.
func TestIntakeDurable(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	b := openBoltOutbox(t, folder, 0, nil)
	defer func() { _ = b.end() }()
	in, _ := newBoltIntake(b)
	const body = `{"id":"i1","type":"invoice.paid","data":{"a":1}}`
	first := serveIntake(in, intakeJSON(body))
	if first.Code != http.StatusAccepted {
		t.Fatalf("%d %s", first.Code, first.Body)
	}
	if err := b.end(); err != nil {
		t.Fatal(err)
	}

	b = openBoltOutboxAgain(t, folder)
	in, counts := newBoltIntake(b)
	if again := serveIntake(in, intakeJSON(body)); again.Code != http.StatusAccepted || again.Body.String() != first.Body.String() {
		t.Errorf("again: %d %s, want %s", again.Code, again.Body, first.Body)
	}
	if diff := cmp.Diff(map[string]int{IntakeRepeated: 1}, counts.get()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	for _, endpoint := range []string{"a", "b"} {
		due := b.due(t, endpoint)
		if len(due) != 1 {
			t.Fatalf("%d deliveries wait at %s, want 1", len(due), endpoint)
		}
		e, err := b.Load(due[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(e.Body), `,"data":{"a":1}}`) || e.Type != "invoice.paid" || e.ID != "i1" {
			t.Errorf("event %+v", e)
		}
		if want := fmt.Sprintf(`{"id":"%s","endpoint":"%s","state":"WAITING"}`, due[0].ID, endpoint); !strings.Contains(first.Body.String(), want) {
			t.Errorf("answer %s lacks %s", first.Body, want)
		}
	}
}

// A CloudEvent's headers and a raw body come back from the store as they were posted.
func TestIntakeKeepsInStore(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, nil)
	defer func() { _ = b.end() }()
	in, _ := newBoltIntake(b)
	w := serveIntake(in, intakePost("/v1/endpoints/c/events", allBytes(), "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Type", "x.y"))
	if w.Code != http.StatusAccepted {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	e, err := b.Load(b.due(t, "c")[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if string(e.Body) != allBytes() || e.Tenant != "t1" || len(e.Headers) != 4 || e.ContentType != "" {
		t.Errorf("event %+v", e)
	}
}

// Case 40: a full disk is said, nothing is half written, and it is over by itself once there is room.
func TestIntakeDiskFull(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, nil)
	defer func() { _ = b.end() }()
	in, counts := newBoltIntake(b)
	b.faults.Next(storetest.Fault{Err: storetest.DiskFull})
	const body = `{"id":"i1","type":"a","data":1}`
	w := serveIntake(in, intakeJSON(body))
	checkProblem(t, w, 503, "store_full")
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if n := len(b.due(t, "a")) + len(b.due(t, "b")); n != 0 {
		t.Errorf("%d deliveries of an event that was refused", n)
	}
	if w := serveIntake(in, intakeJSON(body)); w.Code != http.StatusAccepted {
		t.Errorf("once there is room: %d %s", w.Code, w.Body)
	}
	if n := len(b.due(t, "a")); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
	if diff := cmp.Diff(map[string]int{"store_full": 1, IntakeAccepted: 1}, counts.get()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// Case 40: a store at its limit refuses events and loses none of those that it has.
func TestIntakeStoreFull(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 8<<20, func(c *BoltOutboxConfig) { c.EndpointBytes = 1 << 40 })
	defer func() { _ = b.end() }()
	in, counts := newBoltIntake(b)
	accepted := 0
	var last *httptest.ResponseRecorder
	for range 100 {
		last = serveIntake(in, intakePost("/v1/endpoints/a/events", strings.Repeat("x", 200<<10)))
		if last.Code != http.StatusAccepted {
			break
		}
		accepted++
	}
	checkProblem(t, last, 503, "store_full")
	if due := b.due(t, "a"); len(due) != accepted || accepted == 0 {
		t.Errorf("%d deliveries, %d were accepted", len(due), accepted)
	}
	if got := counts.get(); got["store_full"] != 1 || got[IntakeAccepted] != accepted {
		t.Errorf("counted %v, %d were accepted", got, accepted)
	}
}

// A sync that failed leaves open whether the event is stored: it is not said that it is not.
func TestIntakeSyncFailed(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, nil)
	defer func() { _ = b.end() }()
	in, _ := newBoltIntake(b)
	b.faults.Next(storetest.Fault{Err: storetest.SyncFailed, Written: true})
	w := serveIntake(in, intakeJSON(`{"id":"i1","type":"a","data":1}`))
	checkProblem(t, w, 503, "unavailable")
	if !strings.Contains(w.Body.String(), "it may be stored") {
		t.Errorf("answer %s", w.Body)
	}
}

// Case 35: many posts of one id at one time make one event, and all get its answer; other content under it is refused.
func TestIntakeConcurrentID(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, nil)
	defer func() { _ = b.end() }()
	in, counts := newBoltIntake(b)
	const posts = 64
	answers := make([]*httptest.ResponseRecorder, posts)
	var wg sync.WaitGroup
	for i := range posts {
		wg.Go(func() {
			answers[i] = serveIntake(in, intakeJSON(fmt.Sprintf(`{"id":"i1","type":"a","data":%d}`, i%2)))
		})
	}
	wg.Wait()
	// Which of the two contents was first is open.
	even, odd := answers[0], answers[1]
	if even.Code != http.StatusAccepted {
		even, odd = odd, even
	}
	for i, w := range answers {
		switch {
		case w.Code == http.StatusAccepted && w.Body.String() == even.Body.String():
		case w.Code == http.StatusConflict && odd.Code == http.StatusConflict:
		default:
			t.Errorf("post %d: %d %s", i, w.Code, w.Body)
		}
	}
	if diff := cmp.Diff(map[string]int{IntakeAccepted: 1, IntakeRepeated: posts/2 - 1, "id_conflict": posts / 2}, counts.get()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if na, nb := len(b.due(t, "a")), len(b.due(t, "b")); na != 1 || nb != 1 {
		t.Errorf("%d deliveries at a, %d at b, want 1 each", na, nb)
	}
}
