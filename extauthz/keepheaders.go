package extauthz

import (
	"slices"
	"strings"

	"github.com/sidehook/sidehook/internal/signature"
)

// headerDelivery marks what we deliver to the app ourselves, so that a gate that meets it again knows a loop. It is not one of
// x-sidehook-*, which Envoy takes off everything that comes in.
const headerDelivery = "sidehook-delivery"

// Headers in lower case, with hyphens.
var (
	// connectionHeaders are about one connection or how a message is framed on it (RFC 9110, sections 7.6.1 and 11.7), or are
	// written anew in any case.
	connectionHeaders = []string{
		"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
		"upgrade", "http2-settings", "content-length", "host", "expect",
	}
	// privateHeaders are not kept unless store_headers names them: they let somebody in, or are the mesh's own.
	privateHeaders  = []string{"cookie", "cookie2", "set-cookie", "set-cookie2", "authorization", "x-forwarded-client-cert"}
	privatePrefixes = []string{"proxy-", "x-envoy-"}

	// secretWords are words of a name whose value lets somebody in; keyWords are that before "key". secretEndings are those that
	// are written together with what stands before them.
	secretWords   = []string{"authorization", "cookie", "credential", "credentials", "jwt", "passphrase", "passwd", "pwd", "secrets", "tokens"}
	secretEndings = []string{"token", "secret", "password", "apikey"}
	keyWords      = []string{"access", "account", "api", "app", "auth", "client", "encryption", "functions", "master", "private", "secret", "shared", "signing", "subscription"}
)

// KeptHeaders returns what is kept, of the headers of a request that was verified with keys, for the app: all but those that
// are about a connection, are ours or the mesh's, or bear a secret. What the source's scheme reads is kept unless it is a
// secret itself; StoreHeaders are kept as far as NeverKept and the secrets allow. Names are in lower case; the result is a
// slice of its own, in the same order.
func (s *Source) KeptHeaders(header []signature.Field, keys []signature.Key) []signature.Field {
	bearsSecret := func(value string) bool {
		return slices.ContainsFunc(keys, func(k signature.Key) bool { return k.Within(value) })
	}
	var named []string // by Connection
	for _, f := range header {
		if f.Name == "connection" {
			for name := range strings.SplitSeq(f.Value, ",") {
				named = append(named, strings.ToLower(strings.Trim(name, " \t")))
			}
		}
	}
	kept := make([]signature.Field, 0, len(header))
	for _, f := range header {
		if !slices.Contains(named, f.Name) && s.keeps(f.Name) && !bearsSecret(f.Value) {
			kept = append(kept, f)
		}
	}
	return kept
}

// keeps reports whether headers of that name are kept.
func (s *Source) keeps(name string) bool {
	var use signature.HeaderUse
	if s.Verifier != nil {
		use = s.Verifier.Header(name)
	}
	switch {
	case NeverKept(name) != "", use.Secret:
		return false
	case slices.Contains(s.StoreHeaders, name):
		return true
	}
	plain := strings.ReplaceAll(name, "_", "-")
	if slices.Contains(privateHeaders, plain) || slices.ContainsFunc(privatePrefixes, func(p string) bool { return strings.HasPrefix(plain, p) }) {
		return false
	}
	return use.Read || !namesSecret(plain)
}

// NeverKept says why a header of that name, in lower case, is kept of no event, whatever store_headers says; "" if it can be.
func NeverKept(name string) string {
	plain := strings.ReplaceAll(name, "_", "-")
	switch {
	case reserved(name), plain == headerDelivery:
		return "is set by sidehook itself"
	case slices.Contains(connectionHeaders, plain):
		return "is about one connection, and is written anew"
	case plain == headerGitHubSecret:
		return "bears the source's secret"
	}
	return ""
}

// namesSecret reports whether a header's name, in lower case with hyphens, says that its value is a secret.
func namesSecret(name string) bool {
	before := ""
	for word := range strings.SplitSeq(name, "-") {
		if slices.Contains(secretWords, word) || word == "key" && slices.Contains(keyWords, before) ||
			slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(word, end) }) {
			return true
		}
		before = word
	}
	return before == "auth"
}
