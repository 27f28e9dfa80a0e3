package sidecar

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidehook/sidehook/internal/store"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// A start that finds no room for its pid is ready and delivers all the same.
func TestStartWithoutRoomForThePID(t *testing.T) {
	p := newOutPlace(t)
	r := newReceiver(t, nil)
	p.config(t, r.filter()+"\nendpoints:\n"+p.endpoint("acme", r.URL), "")
	if err := os.MkdirAll(p.store, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(p.store, store.PIDName+".new")); err != nil { // which has no room
		t.Fatal(err)
	}
	var log lockedBuffer
	_, stop := start(t, p.place, logTo(&log))
	if ready, code, err := p.readyz(t); err != nil || code != http.StatusOK || !ready.Ready {
		t.Errorf("readyz: %d %+v %v", code, ready, err)
	}
	id := p.accepted(t, `{"type":"a","data":1}`)
	eventually(t, func() error {
		if s := deliveryState(t, p, id); s != egressv1.DeliveryState_DELIVERY_STATE_DELIVERED {
			return fmt.Errorf("the delivery is %v", s)
		}
		return nil
	})
	if !strings.Contains(log.String(), "no room for the pid file") {
		t.Errorf("the log does not say what is missing: %s", log.String())
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}
