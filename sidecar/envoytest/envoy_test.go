package envoytest

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	t.Parallel()
	Need(t)
	for _, end := range []struct {
		name string
		call func(*Envoy) error
	}{{"stop", (*Envoy).Stop}, {"kill", (*Envoy).Kill}} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			e, err := Start(t.Context(), Options{Bootstrap: []byte(teapot)})
			if err != nil {
				t.Fatal(err)
			}
			addr, err := e.Addr(t.Context(), "inbound")
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.Get("http://" + addr)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusTeapot {
				t.Errorf("the listener answers %d, want 418", res.StatusCode)
			}
			if err := errors.Join(end.call(e), end.call(e)); err != nil {
				t.Errorf("ending it twice: %v", err)
			}
			select {
			case <-e.Done():
			default:
				t.Error("it still runs")
			}
			if _, err := os.Stat(e.Log); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its temporary folder is still there: %v", err)
			}
		})
	}
}

func TestStartKeepsFolder(t *testing.T) {
	t.Parallel()
	Need(t)
	folder := t.TempDir()
	for range 2 { // the second start must not read the first one's admin address
		e, err := Start(t.Context(), Options{Bootstrap: []byte(teapot), Folder: folder, LogLevel: "info"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.ReadFile(filepath.Join(folder, "envoy.log"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(log), "starting main dispatch loop"); got != 2 {
		t.Errorf("the log tells of %d starts, want 2", got)
	}
}

func TestStartRefused(t *testing.T) {
	t.Parallel()
	Need(t)
	_, err := Start(t.Context(), Options{Bootstrap: []byte("static_resources: {listenners: []}")})
	if err == nil || !strings.Contains(err.Error(), "listenners") {
		t.Fatalf("Start = %v, want Envoy's own words", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	Need(t)
	if err := Validate(t.Context(), []byte(teapot)); err != nil {
		t.Error(err)
	}
	bad := strings.Replace(teapot, "status: 418", "status: 4180", 1)
	if err := Validate(t.Context(), []byte(bad)); err == nil || !strings.Contains(err.Error(), "Status") {
		t.Errorf("Validate = %v, want Envoy's own words", err)
	}
}
