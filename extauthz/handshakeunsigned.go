package extauthz

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// unsignedHandshake answers what a provider asks without a signature because it has no other way. ok is false where
// the request is no such handshake; the reason of the decision is a refusal where it is one and is wrong.
func (b *bound) unsignedHandshake(req *request, from sender, now time.Time) (d decision, ok bool) {
	switch b.source.Handshake {
	case HandshakeMeta:
		return b.metaHandshake(req)
	case HandshakeGraph:
		return graphHandshake(req)
	case HandshakeDropbox:
		return dropboxHandshake(req)
	case HandshakeAsana:
		return asanaHandshake(req)
	case HandshakeTwitter:
		return twitterHandshake(req, from, now)
	case HandshakeCloudEvents:
		return cloudEventsHandshake(req)
	case HandshakeWorldline:
		return worldlineHandshake(req)
	case HandshakeEBay:
		return b.ebayHandshake(req)
	case HandshakeHead:
		// Trello, "Webhooks": "a HEAD request to the callbackURL", which wants 200. Mandrill and Intercom do the same.
		if req.method == http.MethodHead {
			return textAnswer(""), true
		}
	}
	return decision{}, false
}

// metaHandshake: Meta, "Webhooks: Getting Started": hub.mode is subscribe; compare hub.verify_token, answer
// hub.challenge.
func (b *bound) metaHandshake(req *request) (d decision, ok bool) {
	if req.method != http.MethodGet {
		return decision{}, false
	}
	values := req.challenges("hub.")
	if !values.Has("hub.mode") {
		return decision{}, false
	}
	challenge := values.Get("hub.challenge")
	if values.Get("hub.mode") != "subscribe" || !b.verifyToken(values.Get("hub.verify_token")) || !harmless(challenge) {
		return decision{reason: ReasonBadSignature}, true
	}
	return textAnswer(challenge), true
}

// verifyToken compares Meta's verify token in constant time. A source without one has no token that fits.
func (b *bound) verifyToken(token string) bool {
	if len(b.source.HandshakeToken) == 0 {
		return false
	}
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256(b.source.HandshakeToken)
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// graphHandshake: Microsoft Graph, "Receive change notifications through webhooks", notificationUrl validation: a POST
// without a body, whose validationToken is sent back, URL-decoded, as plain text.
func graphHandshake(req *request) (d decision, ok bool) {
	if req.method != http.MethodPost || len(req.body) > 0 {
		return decision{}, false
	}
	token := req.challenge("validationToken")
	if !harmlessWords(token) {
		return decision{}, false
	}
	return textAnswer(token), true
}

// dropboxHandshake: Dropbox, "Webhooks", the verification request: the challenge of a GET as plain text, with nosniff.
func dropboxHandshake(req *request) (d decision, ok bool) {
	if req.method != http.MethodGet {
		return decision{}, false
	}
	challenge := req.challenge("challenge")
	if !harmless(challenge) {
		return decision{}, false
	}
	return textAnswer(challenge), true
}

// asanaHandshake: Asana, "Establish a webhook": a POST with the new secret in X-Hook-Secret, which has to come back in
// the same header. It is sent back and forgotten: what is verified is verified with the secrets of the configuration.
func asanaHandshake(req *request) (d decision, ok bool) {
	secret := req.only("x-hook-secret")
	if req.method != http.MethodPost || !harmless(secret) || req.get("x-hook-signature") != "" {
		return decision{}, false
	}
	d = textAnswer("")
	d.set[0] = headerValue{"x-hook-secret", strings.Clone(secret)}
	return d, true
}

// twitterHandshake: X, "Webhooks", the challenge-response check: the HMAC of crc_token under the consumer secret. The
// same secret signs events, so whoever asks must not be able to have one signed: only tokens of base64 are taken,
// which no event is.
func twitterHandshake(req *request, from sender, now time.Time) (d decision, ok bool) {
	if req.method != http.MethodGet {
		return decision{}, false
	}
	token := req.challenge("crc_token")
	if !isBase64Text(token) {
		return decision{}, false
	}
	for i := range from.keys {
		k := &from.keys[i]
		if !k.Until.IsZero() && !now.Before(k.Until) {
			continue
		}
		if sum, ok := k.MAC([]byte(token)); ok {
			return jsonAnswer(`{"response_token":"sha256=` + base64.StdEncoding.EncodeToString(sum) + `"}`), true
		}
	}
	return decision{}, false
}

// isBase64Text reports whether s is short and of the characters of either base64 alphabet, with padding at its end.
func isBase64Text(s string) bool {
	if len(s) > maxChallenge {
		return false
	}
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if digit := '0' <= c && c <= '9'; !letter && !digit && strings.IndexByte("+/-_", c) < 0 {
			return false
		}
	}
	return s != ""
}

// cloudEventsHandshake: CloudEvents, "HTTP 1.1 Web Hooks for Event Delivery", section 4: an OPTIONS request asks for an
// origin's permission to send, at a rate if it names one. Who may send is decided by the token of each request, not
// here; a callback, which the sender may offer instead, is never called.
func cloudEventsHandshake(req *request) (d decision, ok bool) {
	if req.method != http.MethodOptions {
		return decision{}, false
	}
	origin, rate := req.only("webhook-request-origin"), "*"
	if !isHost(origin) {
		return decision{}, false
	}
	if asked := req.get("webhook-request-rate"); asked != "" {
		n, err := strconv.ParseUint(req.only("webhook-request-rate"), 10, 31)
		if err != nil || n == 0 {
			return decision{}, false
		}
		rate = strconv.FormatUint(n, 10)
	}
	d = textAnswer("")
	d.set = headerValues{{"allow", http.MethodPost}, {"webhook-allowed-origin", strings.Clone(origin)}, {"webhook-allowed-rate", rate}}
	return d, true
}

// worldlineHandshake: Worldline Connect, "Webhooks", and its plugins for shops: a GET with a text in a header, which is the body
// of the answer.
func worldlineHandshake(req *request) (d decision, ok bool) {
	text := req.only("x-gcs-webhooks-endpoint-verification")
	if req.method != http.MethodGet || !harmless(text) {
		return decision{}, false
	}
	return textAnswer(text), true
}

// ebayHandshake: eBay, "Marketplace user account deletion", challenge code: the answer to a GET is the SHA-256 of the code, the
// verification token and the URL, as both stand in the form. A source without the token answers nothing.
func (b *bound) ebayHandshake(req *request) (d decision, ok bool) {
	if req.method != http.MethodGet || len(b.source.HandshakeToken) == 0 || b.origin == "" {
		return decision{}, false
	}
	code := req.challenge("challenge_code")
	if !harmless(code) {
		return decision{}, false
	}
	sum := sha256.Sum256(slices.Concat([]byte(code), b.source.HandshakeToken, []byte(b.origin), []byte(req.path())))
	return jsonAnswer(`{"challengeResponse":"` + hex.EncodeToString(sum[:]) + `"}`), true
}

// isHost reports whether s has the characters and the length of a DNS name.
func isHost(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if digit := '0' <= c && c <= '9'; !letter && !digit && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// challenges returns the parameters of the query if it is short and holds mark: other queries are not parsed.
func (r *request) challenges(mark string) url.Values {
	_, query, _ := strings.Cut(r.target, "?")
	if len(query) > maxHandshakeBody || !strings.Contains(query, mark) {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil
	}
	return values
}

// challenge returns a parameter of the query, decoded, that is there once; empty: it is not.
func (r *request) challenge(name string) string {
	if values := r.challenges(name)[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// only returns the value of the one header called name; empty where there is none, or several.
func (r *request) only(name string) string {
	value, n := "", 0
	for i := range r.header {
		if r.header[i].Name == name {
			value, n = r.header[i].Value, n+1
		}
	}
	if n != 1 {
		return ""
	}
	return value
}
