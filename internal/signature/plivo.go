package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/url"
	"slices"
	"strings"
	"time"
)

// plivoScheme is version 3 of Plivo's: the URL without its query, the parameters of query and form sorted, and a nonce. What
// is no form is not signed, and so not taken.
type plivoScheme struct{}

// plivoKind is the kind of the key: the auth token of the account or subaccount.
var plivoKind = kind{algorithm: HMACSHA256, format: KeyText}

func (plivoScheme) keyKind() kind { return plivoKind }

func (plivoScheme) needsURL() bool  { return true }
func (plivoScheme) signsTime() bool { return false }
func (plivoScheme) hasType() bool   { return false }

// String describes the scheme as the one of a Spec is described.
func (plivoScheme) String() string {
	return "HMAC_SHA256 over URL, parameters and nonce (key TEXT) in header x-plivo-signature-v3"
}

func (plivoScheme) verify(m *Message, keys []Key, now time.Time, _ time.Duration, trace *Explanation) Verdict {
	refuse := func(reason Reason, why string) Verdict {
		trace.note("%s", why)
		return Verdict{Reason: reason, Key: -1}
	}
	list, found := m.field("x-plivo-signature-v3")
	nonce, haveNonce := m.field("x-plivo-signature-v3-nonce")
	switch {
	case found == absent, haveNonce == absent:
		return refuse(ReasonMissingSignature, "header x-plivo-signature-v3 or its nonce is missing")
	case found == repeated, haveNonce == repeated, len(list) > maxSignatureBytes, strings.ContainsAny(nonce, ",."):
		return refuse(ReasonMalformedSignature, "header x-plivo-signature-v3 or its nonce came more than once")
	}
	content, ok := plivoContent(m, nonce)
	if !ok {
		return refuse(ReasonBadSignature, "no public URL is configured, or nothing signs this body or query")
	}
	if trace != nil {
		trace.Signed = [][]byte{[]byte(content)}
	}
	elements := strings.Split(list, ",")
	if len(elements) > maxSignatures {
		return refuse(ReasonMalformedSignature, "too many signatures")
	}
	index, tried := -1, 0
	for i := range keys {
		k := &keys[i]
		if !k.live(now) || k.m.kind != plivoKind || tried == maxKeys {
			continue
		}
		tried++
		h := hmac.New(sha256.New, k.m.text)
		h.Write([]byte(content))
		sum := h.Sum(nil)
		for _, e := range elements {
			if sig, ok := decode(nil, e, Base64); ok && hmac.Equal(sig, sum) && index < 0 {
				index = i
			}
		}
	}
	trace.note("tried %d keys with %d signatures", tried, len(elements))
	if index < 0 {
		return Verdict{Reason: ReasonBadSignature, Key: -1}
	}
	// A retry is no repeat of the same call: every request has a nonce of its own, which is signed.
	sum := sha256.Sum256([]byte(content))
	id := "sha256:" + encode(sum[:], Hex)
	return Verdict{Reason: ReasonOK, Key: index, ID: id, IDSigned: true, ContentHash: sha256.Sum256([]byte(id))}
}

// plivoContent puts together what is signed, as Plivo's library does: the query as k=v joined by &, the form's fields glued.
func plivoContent(m *Message, nonce string) (string, bool) {
	at, rawQuery, _ := strings.Cut(m.URL, "?")
	query, err := url.ParseQuery(rawQuery)
	if m.URL == "" || err != nil {
		return "", false
	}
	content := at
	sorted := plivoSorted(query, "=", "&")
	if strings.EqualFold(m.Method, "GET") || len(m.Body) == 0 {
		if sorted != "" {
			content += "?" + sorted
		}
		return content + "." + nonce, len(m.Body) == 0
	}
	form, err := url.ParseQuery(string(m.Body))
	if err != nil || !m.isForm() {
		return "", false
	}
	content += "?" + sorted
	if sorted != "" {
		content += "."
	}
	return content + plivoSorted(form, "", "") + "." + nonce, true
}

// plivoSorted writes parameters in order of their names, and of their values.
func plivoSorted(values url.Values, between, after string) string {
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var parts []string
	for _, name := range names {
		all := slices.Clone(values[name])
		slices.Sort(all)
		for _, v := range all {
			parts = append(parts, name+between+v)
		}
	}
	return strings.Join(parts, after)
}
