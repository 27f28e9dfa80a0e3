package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/sidehook/sidehook/internal/signature"
)

// anyTime is a tolerance that no signed time is outside of: a wrong time is a refusal of its own, with its own reason.
const anyTime = 100 * 365 * 24 * time.Hour

// cause is an accident after which the signature would have matched.
type cause struct {
	text string
	// signed is the body that the sender signed; nil where it is the one at hand.
	signed []byte
}

// likelyCauses returns, for a message whose signature does not match, every common accident after which it would have
// matched. It tries them out: what it names is the cause, unless somebody can forge signatures. Nothing of that is
// ever accepted by the gate.
func likelyCauses(s *signed) []cause {
	var causes []cause
	add := func(text string, body []byte) {
		if !slices.ContainsFunc(causes, func(c cause) bool { return c.text == text }) {
			causes = append(causes, cause{text, body})
		}
	}
	tried := [][]byte{s.message.Body}
	for _, c := range bodyChanges {
		body := c.undo(s.message.Body)
		if body == nil || slices.ContainsFunc(tried, func(b []byte) bool { return bytes.Equal(b, body) }) {
			continue // cannot have happened, or comes to the same as a simpler change
		}
		tried = append(tried, body)
		if s.matches(body, s.message.URL) {
			add(c.cause, body)
		}
	}
	for _, url := range otherURLs(s.message.URL) {
		if s.matches(s.message.Body, url) {
			add("the sender signed another form of the URL: "+url, nil)
		}
	}
	for _, text := range endCauses(s) {
		add(text, nil)
	}
	for _, change := range specChanges(s.specs) {
		v, err := signature.Compile(change.spec)
		if err == nil && accepts(v, parseKeys(v, s.secrets), &s.message, s.now) {
			add(change.cause, nil)
		}
	}
	return causes
}

// partedBytes are shown of each of two bodies from where they part, with half as many before that.
const partedBytes = 24

// parted says where the body at hand and the one that was signed part.
func parted(have, signed []byte) string {
	at := 0
	for at < min(len(have), len(signed)) && have[at] == signed[at] {
		at++
	}
	show := func(b []byte) string {
		if at == len(b) {
			return fmt.Sprintf("ends there, after %q", b[max(0, at-partedBytes/2):])
		}
		return fmt.Sprintf("goes on %q (hex % x)", b[at:min(len(b), at+partedBytes)], b[at:min(len(b), at+partedBytes/3)])
	}
	return fmt.Sprintf("they part at byte %d: the body at hand %s; the signed one %s", at, show(have), show(signed))
}

// matches reports whether the signature would match for another body and public URL.
func (s *signed) matches(body []byte, url string) bool {
	m := s.message
	m.Body, m.URL = body, url
	return accepts(s.verifier, s.keys, &m, s.now)
}

// accepts reports whether the signature of m matches, whatever its time.
func accepts(v *signature.Verifier, keys []signature.Key, m *signature.Message, now time.Time) bool {
	switch v.Verify(m, keys, now, anyTime).Reason {
	case signature.ReasonOK, signature.ReasonMissingID, signature.ReasonTooOld, signature.ReasonTooNew:
		return true
	default:
		return false
	}
}

// parseKeys returns the keys that v reads from secrets; those that it cannot read are left out.
func parseKeys(v *signature.Verifier, secrets [][]byte) []signature.Key {
	var keys []signature.Key
	for _, raw := range secrets {
		if k, err := v.ParseKey(raw); err == nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// bodyChanges are what stands between senders and receivers does to bodies. undo returns the body as it may have been,
// or nil where this cannot have happened. Of several that come to the same body the first is named.
var bodyChanges = []struct {
	cause string
	undo  func([]byte) []byte
}{
	{"the body has lost the newline at its end", func(b []byte) []byte { return append(slices.Clone(b), '\n') }},
	{"the body has lost the CR LF at its end", func(b []byte) []byte { return append(slices.Clone(b), "\r\n"...) }},
	{"the body has got a newline at its end (an editor's, or echo's)", func(b []byte) []byte { return bytes.TrimRight(b, "\r\n") }},
	{"the line ends of the body were changed from CR LF to LF", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) }},
	{"the line ends of the body were changed from LF to CR LF", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")) }},
	{"the body has got a byte order mark at its beginning", func(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\ufeff")) }},
	{"the body has lost the byte order mark at its beginning", func(b []byte) []byte { return append([]byte("\ufeff"), b...) }},
	{"the body's JSON was written anew: the sender signed it without blanks", compactJSON},
	{"the body's JSON was written anew: the sender signed it without blanks and with a newline", func(b []byte) []byte {
		if c := compactJSON(b); c != nil {
			return append(c, '\n')
		}
		return nil
	}},
	{"the body's JSON was written anew: the sender signed it indented by 2", func(b []byte) []byte { return indentJSON(b, "  ") }},
	{"the body's JSON was written anew: the sender signed it indented by 4", func(b []byte) []byte { return indentJSON(b, "    ") }},
	{"the body's JSON was written anew: the sender signed it with a blank after each comma and colon", func(b []byte) []byte { return spaced(compactJSON(b)) }},
	{"the body's JSON was written anew: the sender signed it with a blank after each comma and colon, and in ASCII", func(b []byte) []byte { return spaced(escapedJSON(b)) }},
	{`the body's JSON was written anew: the sender signed / as \/`, func(b []byte) []byte {
		if c := compactJSON(b); c != nil {
			return bytes.ReplaceAll(c, []byte("/"), []byte(`\/`))
		}
		return nil
	}},
	{"the body's JSON was written anew: the sender signed other characters than ASCII as \\u escapes", escapedJSON},
	{"the body is the text of the body once more in JSON (a quoted string)", func(b []byte) []byte {
		var inner string
		if json.Unmarshal(b, &inner) != nil {
			return nil
		}
		return []byte(inner)
	}},
}

func compactJSON(b []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return nil
	}
	return out.Bytes()
}

func indentJSON(b []byte, by string) []byte {
	var out bytes.Buffer
	if json.Indent(&out, bytes.TrimSpace(b), "", by) != nil {
		return nil
	}
	return out.Bytes()
}

// spaced lays JSON without blanks out as Python's json.dumps does.
func spaced(c []byte) []byte {
	var out []byte
	inString, escaped := false, false
	for _, ch := range c {
		out = append(out, ch)
		switch {
		case escaped:
			escaped = false
		case inString && ch == '\\':
			escaped = true
		case ch == '"':
			inString = !inString
		case !inString && (ch == ',' || ch == ':'):
			out = append(out, ' ')
		}
	}
	return out
}

// escapedJSON writes b without blanks and in ASCII, as PHP's json_encode does.
func escapedJSON(b []byte) []byte {
	var out []byte
	for _, r := range string(compactJSON(b)) {
		if r < 0x80 {
			out = append(out, byte(r))
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, "\\u%04x", unit)
		}
	}
	return out
}

// otherURLs are the forms of a public URL that proxies make of one another.
func otherURLs(url string) []string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil
	}
	host, target := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, target = rest[:i], rest[i:]
	}
	path, query, hasQuery := strings.Cut(target, "?")
	if hasQuery {
		query = "?" + query
	}
	slashed := strings.TrimSuffix(path, "/")
	if slashed == path {
		slashed += "/"
	}
	bare, _, _ := strings.Cut(host, ":")
	var all []string
	for _, s := range []string{"https", "http"} {
		for _, h := range []string{host, bare, bare + ":443", bare + ":80"} {
			for _, p := range []string{path + query, slashed + query, path} {
				if u := s + "://" + h + p; u != scheme+"://"+rest && !slices.Contains(all, u) {
					all = append(all, u)
				}
			}
		}
	}
	return all
}

// specChange is a scheme that people take for another one.
type specChange struct {
	cause string
	spec  signature.Spec
}

// specChanges are the specs with one word changed.
func specChanges(specs []signature.Spec) []specChange {
	var all []specChange
	for _, spec := range specs {
		for _, f := range []signature.KeyFormat{signature.KeyText, signature.KeyBase64, signature.KeyHex, signature.KeyWhsec} {
			changed := spec
			changed.Key = f
			all = append(all, specChange{"the secret is of another kind: the sender reads it as " + string(f), changed})
		}
		for _, e := range []signature.Encoding{signature.Hex, signature.Base64, signature.Base64URL} {
			changed := spec
			changed.Signature.Encoding = e
			all = append(all, specChange{"the signature is written in " + string(e), changed})
		}
		if prefix := spec.Signature.Prefix; prefix != "" {
			changed := spec
			changed.Signature.Prefix = ""
			all = append(all, specChange{fmt.Sprintf("the signature comes without %q before it", prefix), changed})
		}
		for _, a := range []signature.Algorithm{signature.HMACSHA1, signature.HMACSHA256, signature.HMACSHA384, signature.HMACSHA512} {
			changed := spec
			changed.Algorithm = a
			all = append(all, specChange{"the signature is made with " + string(a), changed})
		}
		form := specChange{"the sender signs the body before it is zipped (body: DECODED)", spec}
		if form.spec.Body = signature.Decoded; spec.Body == signature.Decoded {
			form.cause, form.spec.Body = "the sender signs the body as it is sent, zipped (body: WIRE)", signature.Wire
		}
		all = append(all, form)
		if spec.Signed != "{body}" {
			changed := spec
			changed.Signed, changed.Timestamp = "{body}", nil // a time that is not signed is refused in a scheme
			all = append(all, specChange{"the sender signs the body alone", changed})
		}
		if spec.Timestamp != nil {
			for _, between := range []string{"", ".", ":", "|", "-", "_", "\n"} {
				changed := spec
				changed.Signed = "{timestamp}" + between + "{body}"
				all = append(all, specChange{"the sender signs " + strconv.Quote(changed.Signed), changed})
			}
		}
	}
	return all
}
