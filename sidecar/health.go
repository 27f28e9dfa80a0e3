package sidecar

import (
	"encoding/json"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// health answers the kubelet and Prometheus: /healthz, /readyz, /metrics and nothing else.
// Ready means: the store is open, a configuration is loaded, and we are not stopping. Faults of webhooks (a full
// disk, missing confirms, a refused new configuration) are details: they never take the app out of its Service.
type health struct {
	ready    atomic.Bool
	stopping atomic.Bool
	// detail gives what is wrong without making us unready; keys are stable codes.
	detail func() map[string]string
	reg    *prometheus.Registry
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready bool `json:"ready"`
	// Details are faults that do not make the sidecar unready, by code.
	Details map[string]string `json:"details,omitempty"`
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, struct {
			Alive bool `json:"alive"`
		}{true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := readiness{Ready: h.ready.Load() && !h.stopping.Load(), Details: h.detail()}
		code := http.StatusOK
		if !r.Ready {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, r)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.reg, promhttp.HandlerOpts{}))
	return mux
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the prober has gone; there is nobody to tell
}
