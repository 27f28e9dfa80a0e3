package extauthz

import "testing"

// The rows are what Envoy 1.40 reported, each case provoked by hand.
func TestReportEnd(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		in   report
		want End // 0: says nothing
	}{
		{"app answers 200", report{200, "via_upstream", 1}, EndDone},
		{"app answers 204", report{204, "via_upstream", 1}, EndDone},
		{"app answers 299", report{299, "via_upstream", 1}, EndDone},
		{"app answers 200 to the third attempt", report{200, "via_upstream", 3}, EndDone},
		{"hedged: an answer while the other attempt runs", report{200, "via_upstream", 2}, EndDone},
		{"app redirects", report{302, "via_upstream", 1}, EndReleased},
		{"app answers 300", report{300, "via_upstream", 1}, EndReleased},
		{"app answers 404", report{404, "via_upstream", 1}, EndReleased},
		{"app answers 500", report{500, "via_upstream", 1}, EndReleased},
		{"app answers 599", report{599, "via_upstream", 1}, EndReleased},
		{"app answers 500 to all retries", report{500, "via_upstream", 3}, EndReleased},
		{"app switches protocols", report{101, "via_upstream", 1}, EndUnknown},
		{"an odd status", report{600, "via_upstream", 1}, EndUnknown},
		{"app's answer without an attempt is a contradiction", report{200, "via_upstream", 0}, EndUnknown},
		{"app closes before headers", report{503, "upstream_reset_before_response_started{connection_termination}", 1}, EndUnknown},
		{"app breaks off after headers", report{200, "upstream_reset_after_response_started{protocol_error}", 1}, EndUnknown},
		{"route's time limit", report{504, "response_timeout", 1}, EndUnknown},
		{"try's time limit, retried", report{504, "upstream_per_try_timeout", 2}, EndUnknown},
		{"sender hangs up while the app works", report{0, "downstream_remote_disconnect", 1}, EndUnknown},
		{"Envoy stops while the app works", report{0, "downstream_local_disconnect(drain_close)", 1}, EndUnknown},
		{"websocket refused by the app", report{200, "websocket_handshake_unsuccessful", 1}, EndUnknown},
		{"Envoy tells no details", report{200, "", 1}, EndUnknown},
		{"Envoy tells nothing", report{}, EndUnknown},
		{"sender hangs up before the app is asked", report{0, "downstream_remote_disconnect", 0}, EndReleased},
		{"a later filter refuses", report{403, "rbac_access_denied_matched_policy[none]", 0}, EndReleased},
		{"route answers itself", report{200, "direct_response", 0}, EndReleased},
		{"cluster not configured", report{503, "cluster_not_found", 0}, EndReleased},
		// Envoy counts an attempt in the next four, although no connection to the app came about.
		{"no endpoint", report{503, "no_healthy_upstream", 1}, EndReleased},
		{"nobody listens", report{503, "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused}", 1}, EndReleased},
		{"no way to connect", report{503, "upstream_reset_before_response_started{local_connection_failure}", 1}, EndReleased},
		{"circuit breaker open", report{503, "upstream_reset_before_response_started{overflow}", 1}, EndReleased},
		{"nobody listens any more at the retry", report{503, "upstream_reset_before_response_started{remote_connection_failure}", 2}, EndUnknown},
		{"no endpoint any more at the retry", report{503, "no_healthy_upstream", 2}, EndUnknown},
		{"our own 200", report{200, "ext_authz_denied", 0}, 0},
		{"our own refusal", report{401, "ext_authz_denied", 0}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			end, ok := row.in.end()
			if end != row.want || ok != (row.want != 0) {
				t.Errorf("end() = %v, %v, want %v", end, ok, row.want)
			}
		})
	}
}
