package egress

import (
	"testing"
	"testing/synctest"
	"time"
)

// A clock that jumps ahead for a while takes no key out of the store: the one before a rotation signs on when it is back.
func TestRegistryClockJump(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := openRegistry(t, folder, testSealer(t, sealKeyA))
		r.configure(t)
		first := r.add(t, "acme", specOf("https://acme.example/"))
		if _, _, err := r.Rotate(t.Context(), "acme", 0, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			name        string
			wait, ahead time.Duration
			kept        int
			signs       bool // the first, by the clock as it should be
		}{
			{"as it should be", 0, 0, 2, true},
			{"25 h ahead", time.Hour, 25 * time.Hour, 2, true},
			{"still", time.Hour, 25 * time.Hour, 2, true},
			{"back again", time.Hour, 0, 2, true},
			{"when its time is over", 22 * time.Hour, 0, 2, false}, // within a day of the jump nothing is sure
			{"a day after the jump", 3 * time.Hour, 0, 1, false},
		} {
			time.Sleep(step.wait)
			r.wall = func() time.Time { return time.Now().Add(step.ahead) }
			if next, err := r.tidy(t.Context()); err != nil || next < time.Minute {
				t.Errorf("%s: to be tidied again in %s, %v", step.name, next, err)
			}
			if g, _ := r.Get("acme"); len(g.Stored.GetKeys()) != step.kept {
				t.Errorf("%s: %d keys are kept, want %d", step.name, len(g.Stored.GetKeys()), step.kept)
			}
			if got := verifies(t, r.Endpoints().ByID("acme"), first, time.Now()); got != step.signs {
				t.Errorf("%s: the first key signs: %v, want %v", step.name, got, step.signs)
			}
		}
		r.close()
	})
}
