package egress

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sidehook/sidehook/internal/signature"
)

// Request is a request as SenderConfig.Request makes it: one of somebody else's, handed on as it came. Its body is the event's.
type Request struct {
	Method string
	// Target is the request target as it is sent: path and query, neither decoded nor normalised. Only blanks and control
	// characters, which would end the request line, are percent-encoded.
	Target string
	// Host is the Host header. Empty: the endpoint's own.
	Host string
	// Header are all other headers, with names as they are written. Fields of one name keep their order, names among each
	// other do not. Those that frame the body or are about a connection are left out: we have our own.
	Header []signature.Field
	// Secrets are those of Header that bear a secret. What the answer repeats of them is not kept.
	Secrets []signature.Field
}

// ownHeaders are about the body's framing or a connection, in lower case: passing on those of another connection would let
// two readers of the request see two different bodies.
var ownHeaders = []string{
	"host", "content-length", "transfer-encoding", "trailer", "connection", "proxy-connection", "keep-alive", "te", "upgrade",
	"http2-settings", "expect",
}

// prepare makes what exchange.prepare returns.
func (r *Request) prepare(body []byte) (func(*url.URL) *http.Request, error) {
	if !isToken(r.Method) {
		return nil, fmt.Errorf("the method %.32q cannot be sent", r.Method)
	}
	header := make(http.Header, len(r.Header)+1)
	header["User-Agent"] = []string{""} // or net/http says that it is the client
	for _, f := range r.Header {
		name := f.Name
		switch {
		case slices.ContainsFunc(ownHeaders, func(own string) bool { return strings.EqualFold(own, name) }):
			continue
		case strings.EqualFold(name, "user-agent"):
			if name = "User-Agent"; header[name][0] == "" {
				header[name] = []string{f.Value}
				continue
			}
		}
		header[name] = append(header[name], f.Value)
	}
	return func(base *url.URL) *http.Request {
		host := r.Host
		if host == "" {
			host = base.Host
		}
		return newRequest(r.Method, targetURL(base, r.Target), host, header, body)
	}, nil
}

// targetURL is the URL that net/http writes as that request target, byte for byte.
func targetURL(base *url.URL, target string) *url.URL {
	target = writable(target)
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Opaque: target}
	if !strings.HasPrefix(target, "//") {
		return u
	}
	// It would write the scheme before an opaque part that begins like this one. As a path it is written as it stands, unless
	// it has characters that no path has; then the absolute form (RFC 9112, section 3.2.2) says the same.
	path, query, _ := strings.Cut(target, "?")
	if plain, err := url.PathUnescape(path); err == nil {
		p := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: plain, RawPath: path, RawQuery: query, ForceQuery: len(path) < len(target)}
		if p.RequestURI() == target {
			return p
		}
	}
	u.Opaque = base.Scheme + "://" + base.Host + target
	return u
}

// writable encodes what cannot stand in a request line.
func writable(target string) string {
	breaks := func(c byte) bool { return c <= ' ' || c == 0x7f }
	n := 0
	for i := range len(target) {
		if breaks(target[i]) {
			n++
		}
	}
	if n == 0 && target != "" {
		return target
	}
	var b strings.Builder
	b.Grow(len(target) + 2*n)
	for i := range len(target) {
		if c := target[i]; breaks(c) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}
