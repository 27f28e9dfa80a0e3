package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// TestStoreFull fills the store while the app is down. Senders get 503 then, and nothing of what they sent is kept; what is
// there is delivered once the app is up, and then there is room again. One source alone cannot take the room of the others.
func TestStoreFull(t *testing.T) {
	t.Parallel()
	const event = 200 << 10
	for _, test := range []struct {
		name, limits string
		least, most  int // bytes of bodies that one source can keep
	}{
		{"the whole store", "limits: {source_percent: 100}", 8 << 20, 16 << 20},
		{"the share of a source", "limits: {source_percent: 25}", 1 << 20, 4<<20 + event},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := start(t, setup{limit: "16Mi", more: test.limits, sources: standardIn("max_in_flight: 32") + `
  - {name: code, match: {path: /webhooks/github, method: POST}, provider: github, secrets: [{file: FOLDER/github}], mode: STORE, delivery: {url: "http://APP"}}`})
			x.app.down()
			kept, refused := 0, 0
			message := func(i int) message {
				return standard(t, "/webhooks/standard", fmt.Sprintf("msg_%d", i), bytes.Repeat([]byte{'x'}, event), time.Now(), standardSecret)
			}
			for i := 0; refused < 5; i++ {
				switch got := x.post(message(i)); {
				case got.is(http.StatusOK, "stored"):
					kept++
				case got.is(http.StatusServiceUnavailable, "unavailable") && got.header.Get("Retry-After") != "":
					refused++
					if x.event("standard", fmt.Sprintf("msg_%d", i)) != nil {
						t.Errorf("event %d was refused, and is in the inbox", i)
					}
				default:
					t.Fatalf("event %d got %v (Retry-After %q), want 200 stored or 503 unavailable", i, got, got.header.Get("Retry-After"))
				}
			}
			if bytes := kept * event; bytes < test.least || bytes > test.most {
				t.Errorf("%d bytes were kept before the store was full, want %d to %d", bytes, test.least, test.most)
			}
			beside := x.post(github("beside", []byte(`{}`), githubSecret))
			if share := test.most < 8<<20; share != beside.is(http.StatusOK, "stored") {
				t.Errorf("another source got %v", beside)
			}
			x.app.up(t)
			eventually(t, "all that was kept is delivered", func() bool {
				return len(x.app.all()) >= kept && x.stored("standard") == 0
			})
			eventually(t, "there is room again", func() bool {
				got := x.post(message(1000))
				return got.is(http.StatusOK, "stored") || got.is(http.StatusOK, "duplicate")
			})
			x.awaitState("standard", "msg_1000", done)
		})
	}
}

// stored is how many events of a source wait for the app.
func (x *stack) stored(source string) (n int64) {
	x.t.Helper()
	res, err := x.admin.Summarize(x.t.Context(), connect.NewRequest(&inboxv1.SummarizeRequest{Source: source}))
	if err != nil {
		x.t.Fatal(err)
	}
	for _, s := range res.Msg.GetSources() {
		for _, state := range s.GetStates() {
			if state.GetState() == storedState {
				n += state.GetCount()
			}
		}
	}
	return n
}
