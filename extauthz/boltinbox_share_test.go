package extauthz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// fillSource claims fresh ids of source until the inbox refuses, and returns how many it took.
func (b *boltBench) fillSource(t *testing.T, source string) (claims []ClaimRequest, tokens []Token) {
	t.Helper()
	for i := range 100_000 {
		r := boltRequest(fmt.Sprintf("%d-%s", i, strings.Repeat("x", 200)))
		r.Key.Source = source
		c, err := b.Claim(context.Background(), r)
		if errors.Is(err, ErrFull) {
			return claims, tokens
		}
		if err != nil {
			t.Fatal(err)
		}
		claims, tokens = append(claims, r), append(tokens, c.Token)
	}
	t.Fatal("the source never fills its share")
	return nil, nil
}

// TestShare: one source cannot take the room of another.
func TestShare(t *testing.T) {
	t.Parallel()
	b := openBolt(t, t.TempDir(), 4*store.MinLimit)
	b.shares.percent = 40
	greedy, tokens := b.fillSource(t, "greedy")
	used, limit := b.store.Usage()
	if share := float64(used) / float64(limit); share < 0.40 || share > 0.45 {
		t.Errorf("a source with a share of 40%% was stopped at %.0f%%", 100*share)
	}
	modest := boltRequest("modest")
	modest.Key.Source = "modest"
	b.mustClaim(t, modest, Claimed)
	if full, err := b.FullSources(); err != nil || !slices.Equal(full, []string{"greedy"}) {
		t.Errorf("FullSources() = %q, %v; want the greedy one", full, err)
	}

	// What it holds is settled all the same, and room that it gives up is its own again.
	for i, r := range greedy {
		if err := b.Settle(context.Background(), r.Key, tokens[i], EndReleased, i == len(greedy)-1); err != nil {
			t.Fatal(err)
		}
	}
	again := boltRequest("again")
	again.Key.Source = "greedy"
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, err := b.Claim(context.Background(), again)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrFull) || time.Now().After(deadline) {
			t.Fatalf("after all was released: %v", err)
		}
	}
	if full, err := b.FullSources(); err != nil || len(full) > 0 {
		t.Errorf("FullSources() = %q, %v, after all was released", full, err)
	}
}
