package sidecar

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/sidecar/config"
)

// Keys are fetched through the filter in force: none of loopback, until the configuration lets one through.
func TestKeysThroughFilter(t *testing.T) {
	t.Parallel()
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
	}))
	t.Cleanup(host.Close)
	folder := t.TempDir()
	ca := filepath.Join(folder, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: host.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(host.URL, "https://"), ":")
	for _, c := range []struct {
		name, egress string
		want         extauthz.KeyState
	}{
		{"without egress", "", extauthz.KeyAway},
		{"with its filter", "egress: {filter: {allow: [127.0.0.1/32], ports: [" + port + "], ca_file: " + ca + "}}\n", extauthz.KeyFetched},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := config.Parse("sidehook.yaml", []byte("store: {bolt: {path: "+folder+", volume: EPHEMERAL}}\n"+c.egress))
			if err != nil {
				t.Fatal(err)
			}
			s := &Sidecar{reg: prometheus.NewRegistry()}
			s.current.Store(&loaded{cfg, time.Now()})
			keys, err := s.newKeys()
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = keys.Run(t.Context()) }()
			if got := keys.Fetch(t.Context(), signature.KeyRequest{URL: host.URL + "/jwks.json"}); got != c.want {
				t.Errorf("Fetch = %d, want %d", got, c.want)
			}
		})
	}
}
