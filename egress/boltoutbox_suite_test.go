package egress_test

import (
	"context"
	"testing"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/outboxtest"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

func TestBoltOutbox(t *testing.T) {
	t.Parallel()
	testBoltOutbox(t, "")
}

func TestBoltOutboxInASpace(t *testing.T) {
	t.Parallel()
	testBoltOutbox(t, egress.StoredSpace)
}

func testBoltOutbox(t *testing.T, space string) {
	outboxtest.Run(t, func(t testing.TB, folder string) (outboxtest.Outbox, egress.Records, func()) {
		s, err := store.Open(context.Background(), store.Options{Folder: folder, Limit: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		outbox, err := egress.NewBoltOutbox(egress.BoltOutboxConfig{
			Store: s, Space: space, EndpointDeliveries: outboxtest.EndpointDeliveries,
		})
		if err != nil {
			t.Fatal(err)
		}
		records, err := egress.NewBoltRecords(egress.BoltRecordsConfig{Outbox: outbox})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		return outbox, records, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			storetest.CheckFile(t, s.Path(), store.RowsIn(space, new(egress.RowCheck)))
		}
	})
}
