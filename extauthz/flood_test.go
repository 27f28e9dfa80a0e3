package extauthz

import (
	"fmt"
	"sync"
	"testing"
)

// Case DUP 63: a cache of fixed size forgets an id when enough others come. The inbox forgets by time alone.
func TestFloodOfIDsForgetsNone(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}))
	h := func(i int) hook { return hook{id: fmt.Sprintf("evt_%d", i)} }
	each := func(f func(i int)) {
		var wg sync.WaitGroup
		for worker := range 64 {
			wg.Go(func() {
				for i := worker; i < 4096; i += 64 {
					f(i)
				}
			})
		}
		wg.Wait()
	}
	each(func(i int) {
		r, err := g.Check(t.Context(), h(i).check(true))
		if a := readAnswer(t, r, err); !a.pass {
			t.Errorf("evt_%d: %+v", i, a)
		} else if key, token, ok := parseRef(a.ref); !ok || g.inbox.Settle(t.Context(), key, token, EndDone, true) != nil {
			t.Errorf("evt_%d is not settled", i)
		}
	})
	each(func(i int) {
		r, err := g.Check(t.Context(), h(i).check(true))
		if a := readAnswer(t, r, err); a.pass || a.body != `{"status":"duplicate"}` {
			t.Errorf("evt_%d again: %+v", i, a)
		}
	})
}
