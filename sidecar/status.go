package sidecar

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// admin returns the handler of the admin listener.
func (s *Sidecar) admin() http.Handler {
	cfg := extauthz.ServiceConfig{Events: noGate{}, Sources: noGate{}, Status: s.status, Logger: s.log}
	if s.store != nil {
		cfg.Store, cfg.UntilFull = s.store, s.store.UntilFull
	}
	if s.gate != nil {
		cfg.Events, cfg.Sources, cfg.Stored = s.gate.inbox, s.gate.server, NewStoredRecords(s.gate.stored.records)
	}
	var outbound egressv1connect.EgressServiceHandler
	if s.outbound != nil {
		outbound = s.outbound.service
	}
	return NewAdmin(AdminConfig{
		Inbox:  extauthz.NewService(cfg),
		Egress: outbound,
		Token:  func() []byte { return s.current.Load().Admin.Token.Bytes() },
		Logger: s.log,
	})
}

// noGate stands behind the admin API where the configuration has no gate: no sources, no events.
type noGate struct{}

func (noGate) List(context.Context, extauthz.Filter, string, int) (extauthz.Page, error) {
	return extauthz.Page{}, nil
}
func (noGate) Get(extauthz.Key) (extauthz.Record, error) {
	return extauthz.Record{}, extauthz.ErrNotFound
}
func (noGate) Release(context.Context, extauthz.Key) error { return extauthz.ErrNotFound }
func (noGate) Discard(context.Context, extauthz.Key) error { return extauthz.ErrNotFound }
func (noGate) Summary() ([]extauthz.StateSummary, error)   { return nil, nil }
func (noGate) Configured() []*extauthz.Source              { return nil }
func (noGate) Paused(string) bool                          { return false }
func (noGate) Pause(string)                                {}
func (noGate) Resume(string)                               {}

// status describes the process for `sidehook status`.
func (s *Sidecar) status(context.Context) *inboxv1.GetStatusResponse {
	cfg := s.current.Load()
	st := &inboxv1.GetStatusResponse{
		Version:   s.version,
		StartTime: timestamppb.New(s.started),
		Uptime:    durationpb.New(time.Since(s.started)),
		Ready:     s.health.ready.Load() && !s.health.stopping.Load(),
		Problems:  s.problems(),
		Config:    &inboxv1.ConfigStatus{File: cfg.Path, LoadTime: timestamppb.New(cfg.at)},
	}
	if text := s.refused.Load(); text != nil {
		st.Config.ReloadError = *text
	}
	if s.store != nil {
		used, limit := s.store.Usage()
		st.Store = &inboxv1.StoreStatus{Path: cfg.Store.Path, UsedBytes: used, LimitBytes: limit}
	}
	return st
}
