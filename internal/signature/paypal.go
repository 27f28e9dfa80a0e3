package signature

import (
	"crypto/sha256"
	"hash/crc32"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// payPalScheme is that of PayPal: RSA over a line of four fields, one of which is the body's CRC-32, by a certificate that
// PayPal publishes at a URL. All customers' events are signed by the same certificates; the key of a source is the id of its
// webhook, which is signed.
type payPalScheme struct {
	host string // where the certificates are
	name string // that they are for
}

// payPalKind is the kind of the key: a webhook's id, which is no secret.
var payPalKind = kind{algorithm: "PAYPAL", format: KeyText}

func (payPalScheme) keyKind() kind { return payPalKind }

func (payPalScheme) needsURL() bool { return false }

// signsTime is false: a repeat bears the time of the first try, as far as PayPal's page tells.
func (payPalScheme) signsTime() bool { return false }
func (payPalScheme) hasType() bool   { return true }

// String describes the scheme as the one of a Spec is described.
func (payPalScheme) String() string {
	return "PAYPAL (key: webhook id) in header paypal-transmission-sig"
}

// publishes reports whether a certificate at that URL can be PayPal's own.
func (s payPalScheme) publishes(at string) bool {
	u, err := url.Parse(at)
	return err == nil && len(at) <= maxKeyURL && u.Scheme == "https" && u.Host == s.host && u.User == nil && u.Opaque == "" &&
		!strings.ContainsAny(at, "?#%") && path.Clean(u.Path) == u.Path && strings.HasPrefix(u.Path, "/v1/notifications/certs/")
}

func (s payPalScheme) verify(m *Message, keys []Key, now time.Time, _ time.Duration, trace *Explanation) Verdict {
	refuse := func(reason Reason, format string, args ...any) Verdict {
		trace.note(format, args...)
		return Verdict{Reason: reason, Key: -1}
	}
	var field [5]string
	for i, name := range [...]string{"paypal-transmission-sig", "paypal-transmission-id", "paypal-transmission-time", "paypal-cert-url", "paypal-auth-algo"} {
		value, found := m.field(name)
		switch {
		case found == absent:
			return refuse(ReasonMissingSignature, "header %s is missing", name)
		case found == repeated, len(value) > maxSignatureBytes, strings.ContainsAny(value, ",|"):
			return refuse(ReasonMalformedSignature, "header %s came more than once, or holds what PayPal never writes", name)
		}
		field[i] = value
	}
	signature, ok := decode(nil, field[0], Base64)
	switch {
	case !ok:
		return refuse(ReasonMalformedSignature, "header paypal-transmission-sig is no base64")
	case field[4] != "SHA256withRSA":
		return refuse(ReasonWrongScheme, "header paypal-auth-algo is not SHA256withRSA")
	case !s.publishes(field[3]):
		return refuse(ReasonBadSignature, "header paypal-cert-url is not at https://%s", s.host)
	}
	document := m.publishedBy(field[3])
	if document == nil {
		trace.note("the certificate of %q is not at hand", field[3])
		return Verdict{Reason: ReasonKeyUnavailable, Key: -1, Want: KeyRequest{URL: field[3]}}
	}
	public := document.certificate(now, func(name string) bool { return name == s.name })
	if public == nil || fits(public, RSAPKCS1SHA256) != nil {
		return refuse(ReasonBadSignature, "the certificate is not one of %s that is valid now", s.name)
	}
	line := func(webhook string) string {
		return strings.Join([]string{field[1], field[2], webhook, strconv.FormatUint(uint64(crc32.ChecksumIEEE(m.Body)), 10)}, "|")
	}
	if trace != nil {
		trace.Signed = [][]byte{[]byte(line(redacted))}
	}
	found, tried := -1, 0
	for i := range keys {
		k := &keys[i]
		if !k.live(now) || k.m.kind != payPalKind || tried == maxKeys {
			continue
		}
		tried++
		sum := sha256.Sum256([]byte(line(string(k.m.text))))
		if checkRSA(public, RSAPKCS1SHA256.hash(), sum[:], signature) && found < 0 {
			found = i
		}
	}
	trace.note("tried %d webhook ids", tried)
	if found < 0 {
		return Verdict{Reason: ReasonBadSignature, Key: -1}
	}
	v := Verdict{Reason: ReasonOK, Key: found, ContentHash: sha256.Sum256([]byte(field[1]))}
	v.ID, _ = lookupJSON(m.Body, []jsonPath{{"id"}})
	v.Type, _ = lookupJSON(m.Body, []jsonPath{{"event_type"}})
	v.Time, _ = parseTime(field[2], RFC3339)
	return v
}
