package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// push is an event of one repository, as GitHub sends it: repository.id says of which.
type push struct {
	Number     int `json:"number"`
	Repository struct {
		ID int `json:"id"`
	} `json:"repository"`
}

func pushTo(t testing.TB, repository, number int) message {
	t.Helper()
	p := push{Number: number}
	p.Repository.ID = repository
	body, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return github(pushID(repository, number), body, githubSecret)
}

func pushID(repository, number int) string { return fmt.Sprintf("push-%d-%d", repository, number) }

// pushes are an app that takes events of repositories, and may refuse some.
type pushes struct {
	mu     sync.Mutex // covers all below
	taken  map[int][]int
	now    map[int]int // of a repository, with the app
	beside int         // events that came while another of their repository was with the app
	refuse func(push) bool
}

func newPushes() *pushes { return &pushes{taken: map[int][]int{}, now: map[int]int{}} }

// ServeHTTP implements http.Handler.
func (p *pushes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e push
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	key := e.Repository.ID
	p.mu.Lock()
	p.now[key]++
	if p.now[key] > 1 {
		p.beside++
	}
	refused := p.refuse != nil && p.refuse(e)
	p.mu.Unlock()
	<-time.After(2 * time.Millisecond) // long enough for another one to come beside
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[key]--
	if refused {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	p.taken[key] = append(p.taken[key], e.Number)
}

func (p *pushes) of(repository int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken[repository])
}

// refusing has the app refuse those from now on; nil: none.
func (p *pushes) refusing(f func(push) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = f
}

// count is how many were taken in all.
func (p *pushes) count() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range p.taken {
		n += len(all)
	}
	return n
}

// upTo are the numbers from 0 to n-1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// byRepository is the source code in STORE, with these settings of its delivery.
func byRepository(delivery string) string {
	return fmt.Sprintf(`
  - {name: code, match: {path: /webhooks/github, method: POST}, provider: github, secrets: [{file: FOLDER/github}], mode: STORE,
     delivery: {url: "http://APP", order_by: {json: repository.id}, %s}}`, delivery)
}

// Events of one key come one after the other, in the order in which they were stored, also where the app fails. A key that is
// stuck holds up nobody else. After a dead letter the key goes on, or stops until a person has decided.
func TestStoreKeepsOrder(t *testing.T) {
	t.Parallel()
	const repositories, each, stuck = 8, 12, 3
	for _, test := range []struct {
		name, onDead string
		stops        bool
	}{{"SKIP", "SKIP", false}, {"STOP, then redelivered", "STOP", true}, {"STOP, then discarded", "STOP", true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := start(t, setup{sources: byRepository("max_in_flight: 32, waits: [300ms, 300ms], on_dead: " + test.onDead)})
			p := newPushes()
			failedOnce := map[int]bool{}
			p.refuse = func(e push) bool {
				if e.Repository.ID == stuck {
					return e.Number == 0
				}
				if e.Number == 4 && !failedOnce[e.Repository.ID] {
					failedOnce[e.Repository.ID] = true
					return true
				}
				return false
			}
			x.app.answer(p.ServeHTTP)
			for n := range each {
				for r := range repositories {
					x.mustStore(pushTo(t, r, n))
				}
			}
			eventually(t, "the other keys are delivered", func() bool {
				for r := range repositories {
					if r != stuck && len(p.of(r)) < each {
						return false
					}
				}
				return true
			})
			x.awaitState("code", pushID(stuck, 0), deadState)
			want := upTo(each)[1:]
			if test.stops {
				x.mustStore(pushTo(t, 99, 0)) // by the time that this one is through, the stopped key had its chance
				x.awaitState("code", pushID(99, 0), done)
				if got := p.of(stuck); len(got) != 0 {
					t.Errorf("after a dead letter the key went on: %v", got)
				}
				p.refusing(nil)
				name := []*inboxv1.EventName{{Source: "code", Id: pushID(stuck, 0)}}
				if test.name == "STOP, then discarded" {
					if _, err := x.admin.DiscardEvents(t.Context(), connect.NewRequest(&inboxv1.DiscardEventsRequest{Events: name})); err != nil {
						t.Fatal(err)
					}
				} else {
					want = upTo(each)
					if _, err := x.admin.RedeliverEvents(t.Context(), connect.NewRequest(&inboxv1.RedeliverEventsRequest{Events: name})); err != nil {
						t.Fatal(err)
					}
				}
			}
			eventually(t, "the key that was stuck is delivered", func() bool { return len(p.of(stuck)) >= len(want) })
			for r := range repositories {
				want := want
				if r != stuck {
					want = upTo(each)
				}
				if got := p.of(r); !slices.Equal(got, want) {
					t.Errorf("repository %d came as %v, want %v", r, got, want)
				}
			}
			if p.beside != 0 {
				t.Errorf("%d events came while another one of their key was with the app", p.beside)
			}
		})
	}
}

// The key can stand in a header. Events without one are in no order, and wait for nobody.
func TestStoreOrderByHeader(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: `
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], mode: STORE,
     delivery: {url: "http://APP", order_by: {header: X-Shop}, waits: [1s, 1s]}}`})
	x.app.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Sidehook-Event-Id") == "a-0" && r.Header.Get("X-Sidehook-Attempt") == "1" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	at := map[string]string{"a-0": "a", "a-1": "a", "a-2": "a", "b-0": "b", "none": ""}
	for _, id := range slices.Sorted(maps.Keys(at)) {
		m := contact(t, id)
		if at[id] != "" {
			m.header.Set("X-Shop", at[id])
		}
		x.mustStore(m)
	}
	for id := range at {
		x.awaitState("standard", id, done)
	}
	var order []string
	for _, c := range x.app.all() {
		order = append(order, c.id())
	}
	place := func(id string) int { return slices.Index(order, id) }
	again := len(order) - 1 - slices.Index(reversed(order), "a-0")
	if len(order) != 6 || !(again < place("a-1") && place("a-1") < place("a-2")) || place("b-0") > again || place("none") > again {
		t.Errorf("they came in the order %v", order)
	}
}

func reversed(s []string) []string {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

// The app of a GitHub integration is down while many repositories push. GitHub never sends again: none may be lost, and each
// repository's come in order.
func TestStoreGitHubWhileTheAppIsDown(t *testing.T) {
	t.Parallel()
	const repositories, each = 40, 15
	x := start(t, setup{sources: byRepository("max_in_flight: 64")})
	p := newPushes()
	x.app.answer(p.ServeHTTP)
	x.app.down()
	var senders sync.WaitGroup
	for r := range repositories {
		senders.Go(func() {
			for n := range each {
				got, err := send(t.Context(), client, x.url, pushTo(t, r, n))
				if err != nil || !got.is(http.StatusOK, "stored") {
					t.Errorf("push %d of repository %d got %v, %v", n, r, got, err)
				}
			}
		})
	}
	senders.Wait()
	<-time.After(time.Second)
	x.app.up(t)
	eventually(t, "all are delivered", func() bool { return p.count() >= repositories*each })
	for r := range repositories {
		if got := p.of(r); !slices.Equal(got, upTo(each)) {
			t.Errorf("repository %d came as %v", r, got)
		}
	}
	if p.beside != 0 {
		t.Errorf("%d events came while another one of their repository was with the app", p.beside)
	}
	for r := range repositories {
		x.awaitState("code", pushID(r, each-1), done)
	}
}
