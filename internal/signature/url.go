package signature

import (
	"slices"
	"strings"
)

// urlForms appends the forms in which the sender may have signed a URL, the one given first. A fragment (Twilio's
// connection overrides, "#rc=2") is never sent and never signed.
func urlForms(dst []string, url string, form URLForm) []string {
	url, _, _ = strings.Cut(url, "#")
	dst = append(dst, url)
	switch form {
	case URLTwilio:
		for _, u := range []string{withPort(url), withoutPort(url)} {
			dst = appendNew(dst, u)
			dst = appendNew(dst, reencodeQuery(u))
		}
	case URLHubSpot:
		dst = appendNew(dst, hubSpotEscapes.Replace(url))
	}
	return dst
}

func appendNew(dst []string, u string) []string {
	if slices.Contains(dst, u) {
		return dst
	}
	return append(dst, u)
}

// hubSpotEscapes are those that HubSpot's page "Validating requests" wants decoded before hashing.
var hubSpotEscapes = strings.NewReplacer(
	"%3A", ":", "%2F", "/", "%3F", "?", "%40", "@", "%21", "!", "%24", "$", "%27", "'", "%28", "(", "%29", ")",
	"%2A", "*", "%2C", ",", "%3B", ";",
	"%3a", ":", "%2f", "/", "%3f", "?", "%2a", "*", "%2c", ",", "%3b", ";",
)

// splitHost cuts a URL into what stands before the host, the host with its port, and the rest.
func splitHost(url string) (before, host, after string, ok bool) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return "", "", "", false
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	start := strings.LastIndexByte(rest[:end], '@') + 1
	return scheme + "://" + rest[:start], rest[start:end], rest[end:], true
}

// portAt returns the index of the colon before a port, or -1.
func portAt(host string) int {
	i := strings.LastIndexByte(host, ':')
	if strings.IndexByte(host, '[') == 0 && i < strings.IndexByte(host, ']') {
		return -1
	}
	return i
}

func withPort(url string) string {
	before, host, after, ok := splitHost(url)
	if !ok || portAt(host) >= 0 {
		return url
	}
	port := ":80"
	if len(before) >= 6 && strings.EqualFold(before[:6], "https:") {
		port = ":443"
	}
	return before + host + port + after
}

func withoutPort(url string) string {
	before, host, after, ok := splitHost(url)
	if i := portAt(host); ok && i >= 0 {
		return before + host[:i] + after
	}
	return url
}

// reencodeQuery writes the query as twilio-node's legacy form does: decoded, and encoded anew as encodeURIComponent
// would, with "+" for a blank.
func reencodeQuery(url string) string {
	head, query, ok := strings.Cut(url, "?")
	if !ok || query == "" {
		return url
	}
	b := append(make([]byte, 0, len(url)+16), head...)
	sep := byte('?')
	for query != "" {
		var name, value string
		name, value, query = nextPair(query)
		n, ok1 := unescape(name)
		v, ok2 := unescape(value)
		if !ok1 || !ok2 {
			return url
		}
		b = append(b, sep)
		b = appendComponent(b, n)
		b = append(b, '=')
		b = appendComponent(b, v)
		sep = '&'
	}
	return string(b)
}

// appendComponent escapes all but the unreserved characters of JavaScript's querystring.escape.
func appendComponent(dst []byte, s string) []byte {
	const hexDigits = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.!~*'()", c) >= 0:
			dst = append(dst, c)
		default:
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return dst
}
