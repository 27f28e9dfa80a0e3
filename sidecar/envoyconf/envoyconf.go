package envoyconf

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/sidehook/sidehook/extauthz"
)

// Defaults of the addresses in Options.
const (
	DefaultListen = "127.0.0.1:10080"
	DefaultApp    = "127.0.0.1:8080"
	DefaultAdmin  = "127.0.0.1:9901"
)

// loopback is where a pod's containers find each other.
const loopback = "127.0.0.1"

// checkTimeout is what a Check may take beside the longest in_flight_wait: a claim is a commit, and a disk that is slow
// for a while should delay a webhook, not refuse it. It stays below the shortest time limit of a known sender (3s to 10s).
const checkTimeout = 5 * time.Second

// Gate is what the Envoy configuration is made for.
type Gate struct {
	// Listen is the gate's address, host:port or unix:/path.
	Listen string
	// Sources get a route for each of their matches, their own body limit and their confirm.
	Sources []*extauthz.Source
	// Open are the requests that need no signature. Envoy names a source only where the gate itself would have chosen it,
	// so the more exact ones of these get routes too.
	Open []extauthz.Match
}

// Options say what is written.
type Options struct {
	// Bootstrap asks for a whole Envoy that runs, instead of parts to be pasted into one.
	Bootstrap bool
	// Listen is where the whole Envoy takes requests, host:port. Empty: DefaultListen.
	Listen string
	// App is where the whole Envoy finds the app, host:port or unix:/path. Empty: DefaultApp.
	App string
	// Admin is the address of the whole Envoy's admin listener, host:port. Empty or "none": it has none.
	Admin string
}

//go:embed envoy.tmpl
var text string

// Generate returns the configuration as YAML. Without Bootstrap it is a document with the keys http_filters, access_log,
// clusters, typed_per_filter_config (by source) and hcm, each to be pasted under the same name.
func Generate(gate Gate, o Options) ([]byte, error) {
	d, err := newData(gate, o)
	if err != nil {
		return nil, err
	}
	t := template.New("envoy")
	t.Funcs(template.FuncMap{
		"quote":   quote,
		"seconds": seconds,
		// include is the built-in template with an indent: YAML needs every line moved to the right.
		"include": func(indent string, name string, data any) (string, error) {
			var out strings.Builder
			err := t.ExecuteTemplate(&out, name, data)
			return strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n"+indent), err
		},
	})
	if _, err := t.Parse(text); err != nil {
		return nil, fmt.Errorf("write Envoy's configuration: %w", err)
	}
	name := "parts"
	if o.Bootstrap {
		name = "bootstrap"
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, name, d); err != nil {
		return nil, fmt.Errorf("write Envoy's configuration: %w", err)
	}
	return out.Bytes(), nil
}

// data is what envoy.tmpl is given.
type data struct {
	Gate, Listen, App address
	Admin             *address // nil: none
	CheckTimeout      time.Duration
	Sources           []source
	ExtProc           bool  // at least one source confirms by it
	MaxBodyBytes      int64 // the largest of the sources; 0 without sources
	// PeerCertificate: a source asks for the client\'s certificate. RequestID: a sender signs x-request-id.
	PeerCertificate, RequestID bool
	Hosts                      []host
	Forged, Control            []string
}

// source is one configured source as Envoy sees it.
type source struct {
	Name         string
	MaxBodyBytes int64
	ExtProc      bool
	Timeout      time.Duration // of the app
}

// forged are the headers that only the gate sets: taken from every request before any filter runs. The gate takes every
// x-sidehook-* from what it lets through; this holds also for a route that somebody exempts from the gate.
var forged = []string{
	"x-sidehook-source",
	"x-sidehook-event-id",
	"x-sidehook-event-type",
	"x-sidehook-tenant",
	"x-sidehook-report",
}

// requestID is the header that Envoy replaces in what comes from outside.
const requestID = "x-request-id"

// control are the headers by which a client tells Envoy's router to try again or to give up sooner, and the one by which
// Envoy tells the gate that a body is cut off.
var control = []string{
	"x-envoy-retry-on",
	"x-envoy-retry-grpc-on",
	"x-envoy-max-retries",
	"x-envoy-retriable-status-codes",
	"x-envoy-retriable-header-names",
	"x-envoy-hedge-on-per-try-timeout",
	"x-envoy-upstream-rq-timeout-ms",
	"x-envoy-upstream-rq-per-try-timeout-ms",
	"x-envoy-upstream-rq-timeout-alt-response",
	"x-envoy-auth-partial-body",
}

func newData(gate Gate, o Options) (*data, error) {
	d := &data{CheckTimeout: checkTimeout, Forged: forged, Control: control}
	byName := make(map[string]source, len(gate.Sources))
	var wait time.Duration
	for _, s := range gate.Sources {
		compiled := source{
			Name:         s.Name,
			MaxBodyBytes: s.MaxBodyBytes,
			ExtProc:      s.Confirm == extauthz.ConfirmExtProc,
			Timeout:      appTimeout(s.Lease),
		}
		d.Sources = append(d.Sources, compiled)
		byName[s.Name] = compiled
		d.ExtProc = d.ExtProc || compiled.ExtProc
		d.MaxBodyBytes = max(d.MaxBodyBytes, s.MaxBodyBytes)
		wait = max(wait, s.InFlightWait)
		if v := s.Verifier; v != nil {
			d.PeerCertificate = d.PeerCertificate || v.WantsPeer()
			d.RequestID = d.RequestID || v.Reads(requestID)
		}
	}
	d.CheckTimeout += wait
	d.Hosts = hosts(gate, byName)

	var err error
	if d.Gate, err = parseAddress(gate.Listen, loopback); err != nil {
		return nil, fmt.Errorf("extauthz.listen: %w", err)
	}
	if !o.Bootstrap {
		return d, nil
	}
	if d.Listen, err = parseAddress(cmp.Or(o.Listen, DefaultListen), "0.0.0.0"); err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if d.App, err = parseAddress(cmp.Or(o.App, DefaultApp), loopback); err != nil {
		return nil, fmt.Errorf("--app: %w", err)
	}
	if o.Admin != "" && o.Admin != "none" {
		admin, err := parseAddress(o.Admin, loopback)
		if err != nil {
			return nil, fmt.Errorf("--envoy-admin: %w", err)
		}
		d.Admin = &admin
	}
	return d, nil
}

// appTimeout is how long the app has for an event: three quarters of the claim's lease. What is left is for the request
// to come from the gate to the app, and for the news of the app's answer to come back.
func appTimeout(lease time.Duration) time.Duration { return lease / 4 * 3 }

// address is a host and port, or the path of a Unix socket.
type address struct {
	Path string // of a Unix socket; then the others are unset
	Host string
	Port uint16
	IP   bool // Host needs no name resolution
}

// parseAddress reads host:port or unix:/path; a host that is left out is what anyHost says.
func parseAddress(s, anyHost string) (address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return address{}, fmt.Errorf("%q names no socket", s)
		}
		return address{Path: path}, nil
	}
	name, portText, err := net.SplitHostPort(s)
	if err != nil {
		return address{}, fmt.Errorf("%q is neither host:port nor unix:/path", s)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return address{}, fmt.Errorf("%q: the port is not a number from 0 to 65535", s)
	}
	a := address{Host: cmp.Or(name, anyHost), Port: uint16(port)}
	if name == "localhost" {
		a.Host = loopback
	}
	_, err = netip.ParseAddr(a.Host)
	a.IP = err == nil
	return a, nil
}

// quote writes a string as YAML: every JSON string is one.
func quote(s string) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(s)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// seconds writes a duration as protobuf's JSON has it: 0.02s.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
