package netguard

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxURLBytes bounds a URL; servers commonly take 8 KiB of request line and header fields together.
const maxURLBytes = 2048

// Check decides whether a URL may be an endpoint, without resolving anything. The error is a *Refusal.
//
// The URL is read strictly: what two programs could read differently is refused, and what remains net/url reads in the
// same way. Path and query are sent as they are written, so what would have to be encoded first is refused too.
func (f *Filter) Check(rawURL string) (Target, error) {
	t, refusal := parse(rawURL)
	if refusal == nil {
		refusal = f.judgeTarget(t)
	}
	if refusal != nil && !f.lifts(refusal.Verdict) {
		return Target{}, refusal
	}
	return t, nil
}

// judgeTarget judges all that is known of t before its name is resolved.
func (f *Filter) judgeTarget(t Target) *Refusal {
	if t.Scheme != "https" && !f.allowHTTP {
		return &Refusal{Verdict: VerdictScheme, Host: t.Host,
			Detail: "plain http can be read and changed on the way; use https, or set filter.allow_http"}
	}
	var port, host *Refusal
	if !slices.Contains(f.ports, t.Port) {
		port = &Refusal{Verdict: VerdictPort, Host: t.Host,
			Detail: fmt.Sprintf("%d is not among %v", t.Port, f.ports)}
	}
	if t.Addr.IsValid() {
		host = f.judgeLiteral(t.Addr)
	} else {
		host = f.judgeName(t.Host)
	}
	return f.graver(port, host)
}

// judgeLiteral judges the address a that stands in a URL for a name: no certificate names it and no list of names holds
// it, so that it passes only where Config.Allow has it.
func (f *Filter) judgeLiteral(a netip.Addr) *Refusal {
	v, listed := f.judge(a)
	switch {
	case listed:
		return nil
	case v == VerdictAllowed:
		return &Refusal{Verdict: VerdictIPLiteral, Host: a.String(),
			Detail: fmt.Sprintf("write a name, or add %s/%d to filter.allow", a, a.BitLen())}
	default:
		return &Refusal{Verdict: v, Host: a.String(), Addr: a}
	}
}

// parse takes a URL apart. What it refuses no Config permits.
func parse(raw string) (Target, *Refusal) {
	if refusal := checkBytes(raw); refusal != nil {
		return Target{}, refusal
	}
	scheme, rest, _ := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	if scheme != "https" && scheme != "http" {
		return Target{}, &Refusal{Verdict: VerdictScheme}
	}
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return Target{}, badURL("there is no // after the scheme")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority, requestURI := rest[:end], rest[end:]
	if strings.Contains(authority, "@") {
		return Target{}, &Refusal{Verdict: VerdictUserinfo,
			Detail: "it would be sent to whoever answers there; take it out, and send a header if the receiver needs one"}
	}
	if !isASCII(requestURI) {
		return Target{}, badURL("path or query hold other than ASCII characters; percent-encode them")
	}
	host, port, refusal := splitAuthority(authority, scheme)
	if refusal != nil {
		return Target{}, refusal
	}
	t := Target{Scheme: scheme, Port: port}
	if t.Host, t.Addr, refusal = readHost(host); refusal != nil {
		return Target{}, refusal
	}
	t.assemble(raw, requestURI)
	if refusal := t.checkNetURL(); refusal != nil {
		return Target{}, refusal
	}
	return t, nil
}

// checkBytes refuses what no URL has anywhere.
func checkBytes(raw string) *Refusal {
	if len(raw) > maxURLBytes {
		return badURL("it has %d bytes; it may have %d", len(raw), maxURLBytes)
	}
	for i := range len(raw) {
		switch c := raw[i]; {
		case c < 0x20 || c == 0x7f:
			return badURL("it holds the control character %#02x", c)
		case c == '#':
			return badURL("it has a fragment, which is never sent; take it out")
		case strings.IndexByte(" \"<>\\^`{|}", c) >= 0:
			return badURL("it holds %q; percent-encode it", c)
		}
	}
	return nil
}

// splitAuthority takes host, with brackets if it has any, and port apart.
func splitAuthority(authority, scheme string) (host string, port uint16, _ *Refusal) {
	port = 443
	if scheme == "http" {
		port = 80
	}
	// The colon of a port comes after the brackets of an IPv6 address.
	colon := strings.LastIndexByte(authority, ':')
	if colon < 0 || colon < strings.LastIndexByte(authority, ']') {
		return authority, port, nil
	}
	host, digits := authority[:colon], authority[colon+1:]
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || digits[0] == '0' || digits[0] == '+' {
		return "", 0, badURL("the port is no number of 1 to 65535 without leading zeros")
	}
	return host, uint16(n), nil
}

// readHost brings the host into its canonical form.
func readHost(host string) (string, netip.Addr, *Refusal) {
	if host == "" {
		return "", netip.Addr{}, badURL("there is no host")
	}
	inner, bracketed := strings.CutPrefix(host, "[")
	if !bracketed {
		name, addr, err := canonicalHost(host)
		if err != nil {
			return "", netip.Addr{}, &Refusal{Verdict: VerdictHostEncoding, Detail: err.Error()}
		}
		return name, addr, nil
	}
	inner, closed := strings.CutSuffix(inner, "]")
	if strings.Contains(inner, "%") {
		return "", netip.Addr{}, &Refusal{Verdict: VerdictZone, Detail: "it means another network on each host; take it out"}
	}
	a, err := netip.ParseAddr(inner)
	if !closed || err != nil || !a.Is6() {
		return "", netip.Addr{}, &Refusal{Verdict: VerdictHostEncoding, Detail: "brackets hold an IPv6 address and nothing else"}
	}
	if a.Is4In6() {
		return "", netip.Addr{}, &Refusal{Verdict: VerdictHostEncoding, Addr: a,
			Detail: fmt.Sprintf("it is the IPv4 address %s; write that", a.Unmap())}
	}
	return a.String(), a, nil
}

// assemble fills URL and RequestURI; it keeps raw where that is in canonical form already.
func (t *Target) assemble(raw, requestURI string) {
	t.RequestURI = requestURI
	if requestURI == "" || requestURI[0] == '?' {
		t.RequestURI = "/" + requestURI
	}
	prefix := t.Scheme + "://" + t.authority()
	if len(raw) == len(prefix)+len(t.RequestURI) && strings.HasPrefix(raw, prefix) {
		t.URL = raw
		return
	}
	t.URL = prefix + t.RequestURI
}

// authority is host and port as they stand in a URL and in Host: without the port that goes without saying.
func (t *Target) authority() string {
	host := t.Host
	if t.Addr.Is6() {
		host = "[" + host + "]"
	}
	if t.Scheme == "https" && t.Port == 443 || t.Scheme == "http" && t.Port == 80 {
		return host
	}
	return host + ":" + strconv.Itoa(int(t.Port))
}

// checkNetURL refuses t if net/url, by which net/http goes, reads its URL otherwise.
func (t *Target) checkNetURL() *Refusal {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != t.Scheme || u.Hostname() != t.Host || u.Host != t.authority() || u.User != nil ||
		u.Opaque != "" || u.Fragment != "" || u.RequestURI() != t.RequestURI {
		return badURL("path or query are not encoded as they are sent; a percent sign stands before two hexadecimal digits")
	}
	return nil
}

func badURL(format string, args ...any) *Refusal {
	return &Refusal{Verdict: VerdictBadURL, Detail: fmt.Sprintf(format, args...)}
}
