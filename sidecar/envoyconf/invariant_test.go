package envoyconf

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // the router's typed_config
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/sidehook/sidehook/extauthz"
)

const (
	authzName = "envoy.filters.http.ext_authz"
	procName  = "envoy.filters.http.ext_proc"
)

// each runs an assertion over every configuration, each as a whole Envoy.
func each(t *testing.T, assert func(*testing.T, Gate, whole)) {
	t.Helper()
	for name, gate := range gates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert(t, gate, takeApart(t, generate(t, gate, Options{Bootstrap: true, Admin: DefaultAdmin})))
		})
	}
}

// A gate that does not answer lets nothing pass, and no route goes round it (cases: "fail open" is Envoy's usual advice).
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ Gate, w whole) {
		if first := w.manager.GetHttpFilters()[0]; first.GetName() != authzName || first.GetDisabled() || first.GetIsOptional() {
			t.Errorf("the first filter is %v, want an enabled %s", first.GetName(), authzName)
		}
		authz := unpack[*authzv3.ExtAuthz](t, w.filter(authzName).GetTypedConfig())
		if authz.GetFailureModeAllow() {
			t.Error("failure_mode_allow is true")
		}
		if got := authz.GetStatusOnError().GetCode(); got != 503 {
			t.Errorf("status_on_error is %v, want 503: 403 makes senders give up", got)
		}
		if authz.GetFilterEnabled() != nil || authz.GetFilterEnabledMetadata() != nil || authz.GetShadowMode() {
			t.Error("the filter is on for a part of the requests only")
		}
		if authz.GetClearRouteCache() {
			t.Error("clear_route_cache lets our headers choose another route")
		}
		for _, r := range w.routes {
			if perRoute, ok := r.GetTypedPerFilterConfig()[authzName]; ok && unpack[*authzv3.ExtAuthzPerRoute](t, perRoute).GetDisabled() {
				t.Errorf("route %v is exempt from the gate", r.GetMatch())
			}
		}
	})
}

// What the gate sees is what the sender sent, or it is refused by Envoy.
func TestNothingIsChangedBeforeTheGate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ Gate, w whole) {
		m := w.manager
		if m.GetNormalizePath() == nil || m.GetNormalizePath().GetValue() || m.GetMergeSlashes() {
			t.Error("the path is normalised: a signed URL changes")
		}
		if got := m.GetPathWithEscapedSlashesAction(); got != hcmv3.HttpConnectionManager_REJECT_REQUEST {
			t.Errorf("path_with_escaped_slashes_action is %v, want REJECT_REQUEST", got)
		}
		if got := m.GetCommonHttpProtocolOptions().GetHeadersWithUnderscoresAction(); got != corev3.HttpProtocolOptions_REJECT_REQUEST {
			t.Errorf("headers_with_underscores_action is %v, want REJECT_REQUEST", got)
		}
		authz := unpack[*authzv3.ExtAuthz](t, w.filter(authzName).GetTypedConfig())
		if !authz.GetEncodeRawHeaders() {
			t.Error("encode_raw_headers is off: repeated headers are merged")
		}
		if authz.GetAllowedHeaders() != nil || authz.GetDisallowedHeaders() != nil {
			t.Error("some headers do not reach the gate")
		}
		if authz.GetEnableDynamicMetadataIngestion() == nil || !authz.GetEnableDynamicMetadataIngestion().GetValue() {
			t.Error("enable_dynamic_metadata_ingestion is off: no claim is ever confirmed")
		}
	})
}

// Bodies are held back where a source needs them and nowhere else: another route may take an upload of any size.
func TestBodiesOnSourceRoutesOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, gate Gate, w whole) {
		// Envoy 1.40 takes pack_as_bytes from the filter alone, the rest from the route.
		filter := unpack[*authzv3.ExtAuthz](t, w.filter(authzName).GetTypedConfig()).GetWithRequestBody()
		if len(gate.Sources) > 0 && (!filter.GetPackAsBytes() || filter.GetAllowPartialMessage()) {
			t.Errorf("the filter's with_request_body is %v, want whole bytes", filter)
		}
		metadata := unpack[*authzv3.ExtAuthz](t, w.filter(authzName).GetTypedConfig()).GetGrpcService().GetInitialMetadata()
		if len(metadata) != 1 || metadata[0].GetKey() != "x-sidehook-body-bytes" || metadata[0].GetValue() != "%BYTES_RECEIVED%" {
			t.Errorf("initial_metadata is %v: the gate cannot refuse a body before it receives it", metadata)
		}
		named := map[string]int{}
		for _, r := range w.routes {
			settings := unpack[*authzv3.ExtAuthzPerRoute](t, r.GetTypedPerFilterConfig()[authzName]).GetCheckSettings()
			name := settings.GetContextExtensions()["source"]
			if name == "" {
				if !settings.GetDisableRequestBodyBuffering() {
					t.Errorf("route %v is no source's and holds back bodies", r.GetMatch())
				}
				continue
			}
			i := slices.IndexFunc(gate.Sources, func(s *extauthz.Source) bool { return s.Name == name })
			if i < 0 {
				t.Fatalf("route %v names source %q", r.GetMatch(), name)
			}
			named[name]++
			body := settings.GetWithRequestBody()
			if int64(body.GetMaxRequestBytes()) != gate.Sources[i].MaxBodyBytes || body.GetAllowPartialMessage() || !body.GetPackAsBytes() {
				t.Errorf("source %s: with_request_body is %v, want up to %d whole bytes", name, body, gate.Sources[i].MaxBodyBytes)
			}
		}
		for _, s := range gate.Sources {
			if named[s.Name] < len(s.Matches) {
				t.Errorf("source %s has %d routes for %d matches", s.Name, named[s.Name], len(s.Matches))
			}
		}
	})
}

// One Check, one call of the app, and an end that the claim lives to see.
func TestOneCallPerCheck(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, gate Gate, w whole) {
		leases := map[string]time.Duration{}
		var wait time.Duration
		for _, s := range gate.Sources {
			leases[s.Name] = s.Lease
			wait = max(wait, s.InFlightWait)
		}
		if w.manager.GetRouteConfig().GetRequestMirrorPolicies() != nil {
			t.Error("requests are mirrored")
		}
		for _, h := range w.manager.GetRouteConfig().GetVirtualHosts() {
			if h.GetRetryPolicy() != nil || h.GetHedgePolicy() != nil || h.GetRequestMirrorPolicies() != nil {
				t.Errorf("virtual host %s calls the app more than once", h.GetName())
			}
		}
		for _, r := range w.routes {
			action := r.GetRoute()
			if action.GetHedgePolicy() != nil || action.GetRequestMirrorPolicies() != nil {
				t.Errorf("route %v calls the app more than once", r.GetMatch())
			}
			name := sourceOf(t, r)
			if name == "" {
				continue
			}
			if retry := action.GetRetryPolicy(); retry.GetRetryOn() != "" || retry.GetNumRetries() == nil || retry.GetNumRetries().GetValue() != 0 {
				t.Errorf("source %s: the route's retry policy is %v, want none at all", name, retry)
			}
			if got := action.GetTimeout().AsDuration(); got <= 0 || got >= leases[name] {
				t.Errorf("source %s: the app has %v with a lease of %v", name, got, leases[name])
			}
		}
		authz := unpack[*authzv3.ExtAuthz](t, w.filter(authzName).GetTypedConfig())
		if got := authz.GetGrpcService().GetTimeout().AsDuration(); got < wait+time.Second {
			t.Errorf("the gate has %v to answer, with an in_flight_wait of %v", got, wait)
		}
		if authz.GetGrpcService().GetRetryPolicy() != nil {
			t.Error("a Check is retried")
		}
		removed := removedHeaders(t, w)
		for _, name := range []string{"x-envoy-retry-on", "x-envoy-retry-grpc-on", "x-envoy-max-retries", "x-envoy-hedge-on-per-try-timeout", "x-envoy-upstream-rq-timeout-ms"} {
			if !slices.Contains(removed, name) {
				t.Errorf("a client's %s reaches the router", name)
			}
		}
	})
}

func TestForgedHeadersAreRemovedEarly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ Gate, w whole) {
		removed := removedHeaders(t, w)
		for _, name := range []string{"x-sidehook-source", "x-sidehook-event-id", "x-sidehook-event-type", "x-sidehook-report"} {
			if !slices.Contains(removed, name) {
				t.Errorf("a client's %s is not removed", name)
			}
		}
	})
}

// The confirms reach the gate: every claim's access log entry, and ext_proc where the source asks for it.
func TestConfirms(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, gate Gate, w whole) {
		if n := len(w.manager.GetAccessLog()); n != 1 {
			t.Fatalf("%d access logs, want 1", n)
		}
		log := w.manager.GetAccessLog()[0]
		matcher := log.GetFilter().GetMetadataFilter()
		if matcher.GetMatcher().GetFilter() != authzName || !matcher.GetMatcher().GetValue().GetPresentMatch() ||
			len(matcher.GetMatcher().GetPath()) != 1 || matcher.GetMatcher().GetPath()[0].GetKey() != "sidehook" {
			t.Errorf("the access log's filter is %v, want: our metadata is there", log.GetFilter())
		}
		common := unpack[*grpclogv3.HttpGrpcAccessLogConfig](t, log.GetTypedConfig()).GetCommonConfig()
		if got := common.GetGrpcService().GetEnvoyGrpc().GetClusterName(); got != "sidehook" {
			t.Errorf("the access log goes to %q", got)
		}
		if got := common.GetBufferFlushInterval().AsDuration(); got <= 0 || got > 100*time.Millisecond {
			t.Errorf("access log entries wait for %v", got)
		}

		wanted := slices.ContainsFunc(gate.Sources, func(s *extauthz.Source) bool { return s.Confirm == extauthz.ConfirmExtProc })
		filter := w.filter(procName)
		if filter == nil {
			if wanted {
				t.Error("a source confirms by ext_proc and there is no such filter")
			}
			return
		}
		if !wanted {
			t.Error("there is an ext_proc filter that nobody asked for")
		}
		proc := unpack[*procv3.ExternalProcessor](t, filter.GetTypedConfig())
		if !filter.GetDisabled() {
			t.Error("ext_proc is on for every route")
		}
		// The app has acted by the time of its answer: an error made here would have it act again.
		if !proc.GetFailureModeAllow() || proc.GetMessageTimeout().AsDuration() < time.Second {
			t.Errorf("ext_proc turns the app's answer into an error: %v", proc)
		}
		if got := proc.GetMetadataOptions().GetForwardingNamespaces().GetUntyped(); !slices.Contains(got, authzName) {
			t.Errorf("ext_proc is given the namespaces %v", got)
		}
		for _, attribute := range []string{"response.code_details", "upstream.request_attempt_count"} {
			if !slices.Contains(proc.GetResponseAttributes(), attribute) {
				t.Errorf("ext_proc is not given %s: the app's answer cannot be told from Envoy's", attribute)
			}
		}
		mode := proc.GetProcessingMode()
		if mode.GetResponseHeaderMode() != procv3.ProcessingMode_SEND || mode.GetRequestBodyMode() != procv3.ProcessingMode_NONE || mode.GetResponseBodyMode() != procv3.ProcessingMode_NONE {
			t.Errorf("ext_proc's mode is %v, want response headers and no bodies", mode)
		}
		for _, r := range w.routes {
			name := sourceOf(t, r)
			i := slices.IndexFunc(gate.Sources, func(s *extauthz.Source) bool { return s.Name == name })
			_, on := r.GetTypedPerFilterConfig()[procName]
			if want := i >= 0 && gate.Sources[i].Confirm == extauthz.ConfirmExtProc; on != want {
				t.Errorf("ext_proc on the route of source %q: %v, want %v", name, on, want)
			}
		}
	})
}

func TestClusters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, gate Gate, w whole) {
		c := w.clusters["sidehook"]
		options := unpack[*upstreamv3.HttpProtocolOptions](t, c.GetTypedExtensionProtocolOptions()["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"])
		if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil {
			t.Error("the gate is not spoken to in HTTP/2")
		}
		endpoint := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress()
		if path, ok := strings.CutPrefix(gate.Listen, "unix:"); ok {
			if endpoint.GetPipe().GetPath() != path {
				t.Errorf("the gate is at %v, want the socket %s", endpoint, path)
			}
		} else if endpoint.GetSocketAddress().GetPortValue() != 9191 {
			t.Errorf("the gate is at %v, want port 9191", endpoint)
		}
		limits := c.GetCircuitBreakers().GetThresholds()[0]
		if limits.GetMaxRequests().GetValue() <= 1024 || limits.GetMaxPendingRequests().GetValue() <= 1024 {
			t.Errorf("circuit breakers %v, want above Envoy's 1024", limits)
		}
	})
}

// sourceOf returns the source that a route names, or "".
func sourceOf(t *testing.T, r *routev3.Route) string {
	t.Helper()
	packed, ok := r.GetTypedPerFilterConfig()[authzName]
	if !ok {
		return ""
	}
	return unpack[*authzv3.ExtAuthzPerRoute](t, packed).GetCheckSettings().GetContextExtensions()["source"]
}

// removedHeaders lists what is taken from a request before any filter runs.
func removedHeaders(t *testing.T, w whole) []string {
	t.Helper()
	var names []string
	for _, e := range w.manager.GetEarlyHeaderMutationExtensions() {
		for _, m := range unpack[*headerv3.HeaderMutation](t, e.GetTypedConfig()).GetMutations() {
			names = append(names, m.GetRemove())
		}
	}
	return names
}
