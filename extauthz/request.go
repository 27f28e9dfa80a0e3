package extauthz

import (
	"context"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/metadata"

	"github.com/sidehook/sidehook/internal/signature"
)

const (
	// extensionSource is the key under which a route names its source in context_extensions.
	extensionSource = "source"
	// metadataSource is the key under which an ext_authz filter names its source in initial_metadata.
	metadataSource = "x-sidehook-source"
	// metadataBody is the key under which our Envoy config announces how many bytes of body a Check carries.
	metadataBody = "x-sidehook-body-bytes"

	headerPartialBody   = "x-envoy-auth-partial-body"
	headerContentLength = "content-length"
	headerUpgrade       = "upgrade"
	// headerGitHubSecret bore the webhook's secret for months of 2026, by GitHub's mistake: no app needs it, and some
	// log every header.
	headerGitHubSecret = "x-github-encoded-secret"
	reservedPrefix     = "x-sidehook-"
)

// Lengths that a message does not announce, or announces in a way that no number can be read from.
const (
	lengthAbsent     = -1
	lengthUnreadable = -2
)

// request is one Check in plain terms. Whoever decodes the message fills the fields up to size and hands every
// header to add, in order; the rest follows from them. Its strings and its body may be views into the received
// message: they are good until the Check returns, and nobody keeps them.
type request struct {
	id     string // Envoy's stream id, the same again when Envoy repeats the Check; empty: unknown
	method string
	target string // path and query as received
	host   string
	scheme string // what Envoy believes; for the log only

	routeSource string // context_extensions.source
	grpcSource  string // gRPC metadata x-sidehook-source

	// peer is the client as Envoy's attributes tell it, which no client can write.
	peer signature.Peer

	body []byte
	// room is how much of the bodies' budget was taken for the body before it was received.
	room int64
	// text: the body came in the field that Envoy cleans to UTF-8, so that its bytes are not the sender's.
	text bool
	size int64 // bytes of body that Envoy had received; negative: unknown

	// What add keeps: all headers but pseudo headers, Envoy's mark, and those that the app must not get.
	header        []signature.Field
	reserved      []string // x-sidehook-* names that the client sent, as it wrote them, and leaked secrets
	contentLength int64    // lengthAbsent, lengthUnreadable, or the number
	partial       bool     // Envoy cut the body
	buffered      bool     // Envoy says that it buffered the body, whole or cut
	upgrade       bool
}

// reset makes r an empty request that keeps its slices.
func (r *request) reset() {
	clear(r.header)
	clear(r.reserved)
	*r = request{header: r.header[:0], reserved: r.reserved[:0], contentLength: lengthAbsent, size: -1}
}

// add takes one header field as received; name is lower case, as Envoy gives it. In the merged shape of a
// CheckRequest (encode_raw_headers off) a field that came twice is one value joined by commas: its verifier
// refuses it as malformed unless the scheme's own grammar has commas, which is why our Envoy config asks for the raw shape.
func (r *request) add(name, value string) {
	if name == "" || name[0] == ':' {
		return
	}
	switch name {
	case headerPartialBody:
		r.buffered = true
		r.partial = r.partial || value != "false"
		return
	case headerContentLength:
		r.contentLength = addLength(r.contentLength, value)
	case headerUpgrade:
		r.upgrade = true
	}
	if reserved(name) || name == headerGitHubSecret {
		r.reserved = append(r.reserved, name)
		return
	}
	r.header = append(r.header, signature.Field{Name: name, Value: value})
}

// addLength reads a content-length beside what an earlier one said.
func addLength(before int64, value string) int64 {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil || before != lengthAbsent && before != int64(n) {
		return lengthUnreadable
	}
	return int64(n)
}

// reserved reports whether a header name is ours to set: x-sidehook-*, with any of its hyphens written as
// underscores too, since CGI and WSGI apps read both as one.
func reserved(name string) bool {
	if len(name) < len(reservedPrefix) {
		return false
	}
	for i := range len(reservedPrefix) {
		c := name[i]
		switch {
		case c == '_':
			c = '-'
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		if c != reservedPrefix[i] {
			return false
		}
	}
	return true
}

// source returns the name that the route, or failing that the filter, gives to the request's source.
func (r *request) source() string {
	if r.routeSource != "" {
		return r.routeSource
	}
	return r.grpcSource
}

// path returns the target without its query.
func (r *request) path() string {
	if i := strings.IndexAny(r.target, "?#"); i >= 0 {
		return r.target[:i]
	}
	return r.target
}

// get returns the value of the first header called name.
func (r *request) get(name string) string {
	for i := range r.header {
		if r.header[i].Name == name {
			return r.header[i].Value
		}
	}
	return ""
}

// same reports whether r and o are the same request as far as an answer depends on it. Envoy's id alone would do
// with one Envoy; two that share a gate could meet on one.
func (r *request) same(o *request) bool {
	if r.peer != o.peer || r.method != o.method || r.target != o.target || r.host != o.host || r.source() != o.source() ||
		len(r.header) != len(o.header) || string(r.body) != string(o.body) {
		return false
	}
	for i := range r.header {
		if r.header[i] != o.header[i] {
			return r.sameFields(o)
		}
	}
	return true
}

// sameFields compares headers in any order: the merged shape is a map.
func (r *request) sameFields(o *request) bool {
	left := make(map[signature.Field]int, len(r.header))
	for _, f := range r.header {
		left[f]++
	}
	for _, f := range o.header {
		if left[f] == 0 {
			return false
		}
		left[f]--
	}
	return true
}

// message returns what a signature can cover. publicURL is the configured origin, or empty.
func (r *request) message(publicURL string) signature.Message {
	m := signature.Message{Method: r.method, Target: r.target, Header: r.header, Body: r.body, Peer: r.peer}
	if publicURL != "" {
		m.URL = publicURL + r.target
	}
	return m
}

// fill reads a CheckRequest as Envoy's generated code decodes it. Absent parts read as empty ones, and so
// lead to a refusal: nothing of a message is required to be there.
func (r *request) fill(ctx context.Context, in *authv3.CheckRequest) {
	attributes := in.GetAttributes()
	h := attributes.GetRequest().GetHttp()
	r.id, r.method, r.target, r.host, r.scheme = h.GetId(), h.GetMethod(), h.GetPath(), h.GetHost(), h.GetScheme()
	r.size = h.GetSize()
	r.body = h.GetRawBody()
	if len(r.body) == 0 && h.GetBody() != "" {
		r.text = true
	}
	r.peer = signature.Peer{Principal: attributes.GetSource().GetPrincipal(), Certificate: attributes.GetSource().GetCertificate()}
	r.routeSource = attributes.GetContextExtensions()[extensionSource]
	r.grpcSource = sourceFromMetadata(ctx)

	for _, f := range h.GetHeaderMap().GetHeaders() {
		r.add(f.GetKey(), fieldValue(f))
	}
	if len(h.GetHeaderMap().GetHeaders()) == 0 {
		for name, value := range h.GetHeaders() {
			r.add(name, value)
		}
	}
}

// fieldValue returns the bytes of a header of the raw shape: Envoy sets raw_value there, older ones value.
func fieldValue(f *corev3.HeaderValue) string {
	if raw := f.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return f.GetValue()
}

// sourceFromMetadata returns the source that the filter's initial_metadata names. Two of them are one name
// that no configuration has.
func sourceFromMetadata(ctx context.Context) string {
	names := metadata.ValueFromIncomingContext(ctx, metadataSource)
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names, ",")
}

// announcedBody returns the bytes of body that the gRPC metadata announce; 0 where they do not. What they say is only
// used to refuse early: the body is counted again as it came.
func announcedBody(ctx context.Context) int64 {
	if v := metadata.ValueFromIncomingContext(ctx, metadataBody); len(v) == 1 {
		return max(0, addLength(lengthAbsent, v[0]))
	}
	return 0
}
