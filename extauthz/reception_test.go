package extauthz

import (
	"context"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// receptionLimit is what all bodies may take in the tests below.
const receptionLimit = 1 << 20

// serveReception serves a gate with little room for bodies.
func serveReception(t *testing.T) (*gate, *grpc.ClientConn) {
	t.Helper()
	gate := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}), func(c *Config) { c.MaxBodiesInFlight = receptionLimit })
	g := NewGRPCServer(GRPCConfig{Server: gate.Server, Confirm: newTestConfirm(t, &settleRecorder{}, nil), MaxBodyBytes: receptionLimit})
	conn, stop := dialInMemory(t, g)
	t.Cleanup(stop)
	return gate, conn
}

// What has no room is refused before it is received: a flood of large bodies takes no memory. The client here never
// sends its message, and has its answer all the same.
func TestNoRoomIsToldBeforeReception(t *testing.T) {
	t.Parallel()
	gate, conn := serveReception(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, metadataBody, "600000")
	if !gate.bodies.take(receptionLimit - 599_999) {
		t.Fatal("no room in an empty gate")
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, authv3.Authorization_Check_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	var r authv3.CheckResponse
	if err := s.RecvMsg(&r); err != nil {
		t.Fatal(err)
	}
	if a := readAnswer(t, &r, nil); a.status != 503 || a.body != `{"status":"busy"}` || a.headers["retry-after"] != "1" {
		t.Errorf("answer %+v", a)
	}
	if n := gate.counter("sidehook_extauthz_checks_total", "source", unconfigured, "reason", "busy"); n != 1 {
		t.Errorf("counted %v times", n)
	}
	if log := gate.log.String(); !strings.Contains(log, `"reason":"busy"`) || !strings.Contains(log, `"url":""`) {
		t.Errorf("log %s", log)
	}
	gate.bodies.give(1)
	if _, err := authv3.NewAuthorizationClient(conn).Check(ctx, hook{}.check(true)); err != nil {
		t.Errorf("with room for it: %v", err)
	}
}

// What a client announces is no permission: the body that came is what counts.
func TestAnnouncedRoomIsNoPermission(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		announced []string
		body      int
		status    int // 0: passes
	}{
		{"nothing announced", nil, receptionLimit, 0},
		{"as it is", []string{"1048576"}, receptionLimit, 0},
		{"too little", []string{"1"}, receptionLimit, 0},
		{"all that there is, and no more came", []string{"1048576"}, 100, 0},
		{"more than any source takes", []string{"1048577"}, 100, 413},
		{"no number", []string{"-"}, receptionLimit, 0},
		{"less than nothing", []string{"-5"}, receptionLimit, 0},
		{"beyond all numbers", []string{"99999999999999999999"}, 100, 0},
		{"twice", []string{"1048577", "1048577"}, 100, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			gate, conn := serveReception(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for _, v := range tt.announced {
				ctx = metadata.AppendToOutgoingContext(ctx, metadataBody, v)
			}
			r, err := authv3.NewAuthorizationClient(conn).Check(ctx, hook{body: strings.Repeat("x", tt.body)}.check(true))
			if a := readAnswer(t, r, err); a.status != tt.status {
				t.Errorf("answer %+v, want %d", a, tt.status)
			}
			if n := gate.bodies.used.Load(); n != 0 {
				t.Errorf("%d bytes are in flight when all is answered", n)
			}
			// A body beyond the rest of the room is refused whatever was said of it.
			if !gate.bodies.take(receptionLimit - 50) {
				t.Fatal("no room in an empty gate")
			}
			if tt.announced == nil || tt.announced[0] == "1" {
				r, err := authv3.NewAuthorizationClient(conn).Check(ctx, hook{id: "evt_2", body: strings.Repeat("x", 100)}.check(true))
				if a := readAnswer(t, r, err); a.status != 503 {
					t.Errorf("a body that does not fit: %+v", a)
				}
			}
		})
	}
}
