package extauthz_test

import (
	"context"
	"testing"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/extauthz/inboxtest"
	"github.com/sidehook/sidehook/internal/store"
)

func TestBoltInbox(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t testing.TB, folder string) (extauthz.Inbox, func()) {
		s, err := store.Open(context.Background(), store.Options{Folder: folder, Limit: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		inbox, err := extauthz.NewBoltInbox(extauthz.BoltInboxConfig{Store: s})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		return inbox, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			report, err := store.Check(context.Background(), s.Path(), &extauthz.RowCheck{})
			if err != nil {
				t.Errorf("check: %v", err)
			}
			for _, p := range report.Problems {
				t.Errorf("check: %v", p)
			}
		}
	})
}
