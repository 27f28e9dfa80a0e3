package sidecar

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/pb/sidehook/inbox/v1/inboxv1connect"
)

const (
	statusPath = inboxv1connect.InboxServiceGetStatusProcedure
	pausePath  = inboxv1connect.InboxServicePauseSourceProcedure
)

// oneSource is a gate with one source.
type oneSource struct{ paused bool }

func (s *oneSource) Configured() []*extauthz.Source {
	return []*extauthz.Source{{Name: "payments", Provider: "stripe", Enforce: extauthz.EnforceOn}}
}
func (s *oneSource) Paused(string) bool { return s.paused }
func (s *oneSource) Pause(string)       { s.paused = true }
func (s *oneSource) Resume(string)      { s.paused = false }

// newTestAdmin returns the admin handler over one source, and its log.
func newTestAdmin(token string) (h http.Handler, gate *oneSource, log *bytes.Buffer) {
	log, gate = new(bytes.Buffer), new(oneSource)
	logger := slog.New(slog.NewTextHandler(log, nil))
	return NewAdmin(AdminConfig{
		Inbox: extauthz.NewService(extauthz.ServiceConfig{
			Sources: gate,
			Status: func(context.Context) *inboxv1.GetStatusResponse {
				return &inboxv1.GetStatusResponse{Version: "v1.2.3", Ready: true}
			},
			Logger: logger,
		}),
		Token:  func() []byte { return []byte(token) },
		Logger: logger,
	}), gate, log
}

// post is a JSON call of the API, as curl makes it, changed by edit.
func post(path string, edit func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9393"+path, strings.NewReader(`{"source":"payments"}`))
	if strings.HasSuffix(path, "GetStatus") {
		r.Body = io.NopCloser(strings.NewReader("{}"))
	}
	r.Header.Set("Content-Type", "application/json")
	if edit != nil {
		edit(r)
	}
	return r
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func TestAdminGuard(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	for _, tc := range []struct {
		name  string
		token string
		edit  func(*http.Request)
		want  int
	}{
		{"plain", "", nil, 200},
		{"localhost", "", host("localhost:9393"), 200},
		{"localhost in capitals", "", host("LOCALHOST"), 200},
		{"any loopback address", "", host("127.8.8.8:1"), 200},
		{"IPv6 loopback", "", host("[::1]:9393"), 200},
		{"IPv6 loopback without port", "", host("[::1]"), 200},
		// A page whose own name now resolves to 127.0.0.1 still says its own name.
		{"rebound name", "", host("evil.example:9393"), 403},
		{"name that begins like ours", "", host("localhost.evil.example"), 403},
		{"name that ends like ours", "", host("evil.localhost"), 403},
		{"address that begins like ours", "", host("127.0.0.1.evil.example"), 403},
		{"pod address", "", host("10.0.0.7:9393"), 403},
		{"unspecified address", "", host("0.0.0.0:9393"), 403},
		{"no host", "", host(""), 403},
		{"origin of another site", "", header("Origin", "https://evil.example"), 403},
		{"origin of the app's own port", "", header("Origin", "http://127.0.0.1:8080"), 403},
		{"opaque origin", "", header("Origin", "null"), 403},
		{"own origin", "", header("Origin", "http://127.0.0.1:9393"), 200},
		{"cross-site fetch", "", header("Sec-Fetch-Site", "cross-site"), 403},
		{"same-site fetch, from another port", "", header("Sec-Fetch-Site", "same-site"), 403},
		{"typed by a person", "", header("Sec-Fetch-Site", "none"), 200},
		{"token", token, header("Authorization", "Bearer "+token), 200},
		{"scheme in lower case", token, header("Authorization", "bearer "+token), 200},
		{"no token", token, nil, 401},
		{"wrong token", token, header("Authorization", "Bearer correct-horse-batterz"), 401},
		{"beginning of the token", token, header("Authorization", "Bearer correct"), 401},
		{"token and more", token, header("Authorization", "Bearer "+token+" "), 401},
		{"empty token", token, header("Authorization", "Bearer "), 401},
		{"other scheme", token, header("Authorization", "Basic "+token), 401},
		{"two headers, one right", token, func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer x", "Bearer " + token}
		}, 401},
		{"token from another origin", token, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Origin", "https://evil.example")
		}, 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{statusPath, pausePath} {
				h, gate, log := newTestAdmin(tc.token)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, post(path, tc.edit))
				if w.Code != tc.want {
					t.Errorf("%s: status %d, want %d: %s", path, w.Code, tc.want, w.Body)
				}
				if got, want := gate.paused, tc.want == 200 && path == pausePath; got != want {
					t.Errorf("%s: paused %t, want %t", path, got, want)
				}
				if out := w.Body.String() + log.String(); strings.Contains(out, "horse") {
					t.Errorf("%s: the token shows: %s", path, out)
				}
				if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
					t.Errorf("%s: X-Content-Type-Options %q, want nosniff", path, got)
				}
			}
		})
	}
}

// GET reads, and changes nothing.
func TestAdminGet(t *testing.T) {
	t.Parallel()
	query := func(message string) string { return "?encoding=json&connect=v1&message=" + url.QueryEscape(message) }
	for _, tc := range []struct {
		name, path string
		edit       func(*http.Request)
		want       int
	}{
		{"status", statusPath + query(`{}`), nil, 200},
		{"pause", pausePath + query(`{"source":"payments"}`), nil, 405},
		{"pause as HEAD", pausePath + query(`{"source":"payments"}`), func(r *http.Request) { r.Method = http.MethodHead }, 405},
		{"status from another site", statusPath + query(`{}`), header("Sec-Fetch-Site", "cross-site"), 403},
		{"profile index", "/debug/pprof/", nil, 200},
		{"heap profile", "/debug/pprof/heap", nil, 200},
		{"profile from another site", "/debug/pprof/heap", header("Sec-Fetch-Site", "cross-site"), 403},
		{"command line", "/debug/pprof/cmdline", nil, 404},
		{"root", "/", nil, 404},
		{"metrics, which are the health listener's", "/metrics", nil, 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h, gate, _ := newTestAdmin("")
			r := httptest.NewRequest(http.MethodGet, "http://localhost:9393"+tc.path, nil)
			if tc.edit != nil {
				tc.edit(r)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.want {
				t.Errorf("status %d, want %d: %s", w.Code, tc.want, w.Body)
			}
			if gate.paused {
				t.Error("the source is paused by a GET")
			}
		})
	}
}

func TestAdminBodyLimit(t *testing.T) {
	t.Parallel()
	h, gate, _ := newTestAdmin("")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, post(pausePath, func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader(`{"source":"payments"}` + strings.Repeat(" ", adminMaxBytes)))
	}))
	if w.Code == http.StatusOK || gate.paused {
		t.Errorf("status %d, paused %t; want a refusal", w.Code, gate.paused)
	}
}

// The listener as it is: a socket file, our server limits, and all three protocols.
func TestAdminOverUnixSocket(t *testing.T) {
	t.Parallel()
	h, gate, log := newTestAdmin("")
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	s := httpServer(h, true, slog.New(slog.DiscardHandler))
	s.ConnContext = withPeer
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
	})
	for _, tc := range []struct {
		name  string
		http2 bool
		opts  []connect.ClientOption
	}{
		{"connect", false, nil},
		{"json over GET", false, []connect.ClientOption{connect.WithProtoJSON(), connect.WithHTTPGet()}},
		{"grpc", true, []connect.ClientOption{connect.WithGRPC()}},
		{"grpc-web", false, []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p http.Protocols
			p.SetHTTP1(!tc.http2)
			p.SetUnencryptedHTTP2(tc.http2)
			tr := &http.Transport{Protocols: &p, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			}}
			defer tr.CloseIdleConnections()
			c := inboxv1connect.NewInboxServiceClient(&http.Client{Transport: tr}, "http://localhost", tc.opts...)
			got, err := c.GetStatus(t.Context(), connect.NewRequest(&inboxv1.GetStatusRequest{}))
			if err != nil || got.Msg.GetVersion() != "v1.2.3" {
				t.Fatalf("status: %v, %v; want version v1.2.3", got, err)
			}
			gate.paused = false
			if _, err := c.PauseSource(t.Context(), connect.NewRequest(&inboxv1.PauseSourceRequest{Source: "payments"})); err != nil || !gate.paused {
				t.Fatalf("pause: %v, paused %t", err, gate.paused)
			}
			// The caller is this very process.
			want := fmt.Sprintf(`audit.who="unix uid=%d gid=%d pid=%d" audit.what="source pause"`, os.Getuid(), os.Getgid(), os.Getpid())
			if runtime.GOOS != "linux" {
				want = `audit.who=unix audit.what="source pause"`
			}
			if !strings.Contains(log.String(), want) {
				t.Errorf("no audit line with %s in:\n%s", want, log)
			}
			// A refusal is readable in the protocol of the caller.
			_, err = inboxv1connect.NewInboxServiceClient(&http.Client{Transport: tr}, "http://evil.example", tc.opts...).
				GetStatus(t.Context(), connect.NewRequest(&inboxv1.GetStatusRequest{}))
			if connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("foreign host: %v, want PERMISSION_DENIED", err)
			}
		})
	}
}

// slowStore writes its content in two halves, with a pause between them.
type slowStore struct {
	content []byte
	pause   time.Duration
	err     error
}

func (s slowStore) WriteTo(ctx context.Context, w io.Writer) error {
	half := len(s.content) / 2
	if _, err := w.Write(s.content[:half]); err != nil {
		return err
	}
	select {
	case <-time.After(s.pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.err != nil {
		return s.err
	}
	_, err := w.Write(s.content[half:])
	return err
}

// A backup takes longer than the server gives any other answer, and one that breaks off is no backup.
func TestAdminBackUpStore(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	for _, tc := range []struct {
		name  string
		store extauthz.StoreCopier
		want  connect.Code // 0: whole
	}{
		{"whole", slowStore{content: content}, 0},
		{"slower than the server's limits", slowStore{content: content, pause: 300 * time.Millisecond}, 0},
		{"store fails half way", slowStore{content: content, err: extauthz.ErrUnavailable}, connect.CodeUnavailable},
		{"no store", nil, connect.CodeFailedPrecondition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewUnstartedServer(NewAdmin(AdminConfig{
				Inbox: extauthz.NewService(extauthz.ServiceConfig{Sources: new(oneSource), Store: tc.store}),
			}))
			s.Config.ReadTimeout, s.Config.WriteTimeout = 100*time.Millisecond, 100*time.Millisecond
			s.Start()
			t.Cleanup(s.Close)
			stream, err := inboxv1connect.NewInboxServiceClient(s.Client(), s.URL).
				BackUpStore(t.Context(), connect.NewRequest(&inboxv1.BackUpStoreRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			for stream.Receive() {
				got = append(got, stream.Msg().GetData()...)
			}
			if err := stream.Close(); err != nil {
				t.Fatal(err)
			}
			if tc.want == 0 && (stream.Err() != nil || !bytes.Equal(got, content)) {
				t.Errorf("got %d bytes and %v, want the %d of the store", len(got), stream.Err(), len(content))
			}
			if tc.want != 0 && connect.CodeOf(stream.Err()) != tc.want {
				t.Errorf("got %v, want %v", stream.Err(), tc.want)
			}
		})
	}
}

// The API of a half that is not there is not there either; where it is, the same guard stands before it.
func TestAdminEgress(t *testing.T) {
	t.Parallel()
	const path = egressv1connect.EgressServiceListEndpointsProcedure
	for _, tt := range []struct {
		name   string
		half   egressv1connect.EgressServiceHandler
		edit   func(*http.Request)
		status int
	}{
		{"not there", nil, func(*http.Request) {}, http.StatusNotFound},
		{"there", egressv1connect.UnimplementedEgressServiceHandler{}, func(*http.Request) {}, http.StatusNotImplemented},
		{"there, by another name", egressv1connect.UnimplementedEgressServiceHandler{},
			func(r *http.Request) { r.Host = "evil.example" }, http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := NewAdmin(AdminConfig{Inbox: inboxv1connect.UnimplementedInboxServiceHandler{}, Egress: tt.half})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, post(path, tt.edit))
			if w.Code != tt.status {
				t.Errorf("got %d, want %d: %s", w.Code, tt.status, w.Body)
			}
		})
	}
}
