package extauthz

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// unidentified are messages for rows whose vendors' examples no gate can take: they lack the event's id, or are for a URL
// without a path, which no HTTP request has. Their signature is made by the row.
var unidentified = map[string]*example{
	"coinbase-commerce": {secrets: []string{testSecret}, body: []byte(`{"event":{"id":"1","type":"charge:created"}}`)},
	"paddle":            {secrets: []string{testSecret}, now: time.Unix(1698796800, 0), body: []byte(`{"event_id":"evt_1","event_type":"a.b"}`)},
	"plivo-v2": {
		secrets: []string{testSecret}, url: "https://answer.url/a", body: []byte(`From=1`),
		header: [][2]string{{"x-plivo-signature-v2-nonce", "12345"}},
	},
}

// good returns the message of a row that passes, the vendor's own if one does.
func good(t *testing.T, p *signature.Provider, all map[string][]*example) *example {
	t.Helper()
	var got answer
	for _, e := range all[p.Name] {
		if got = e.ask(t); got.pass {
			return e
		}
	}
	e := unidentified[p.Name]
	if e == nil {
		t.Fatalf("no example of %d passes; the last: %+v", len(all[p.Name]), got)
	}
	e = e.clone()
	e.provider, e.method = p, "POST"
	v := e.verifier(t)
	keys, _ := e.keys(v)
	_, target := e.target()
	m := signature.Message{Method: e.method, Target: target, URL: e.url, Body: e.body}
	for _, f := range e.header {
		m.Header = append(m.Header, signature.Field{Name: f[0], Value: f[1]})
	}
	fields, err := v.Sign(&m, keys[0], "", e.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		e.header = append(e.header, [2]string{strings.ToLower(f.Name), f.Value})
	}
	if got := e.ask(t); !got.pass {
		t.Fatalf("signed by the row: %+v", got)
	}
	return e
}

// bad is a message that is spoiled in one way. some: not every one of its kind has to be refused, because the scheme does
// not cover all that there is; one has to.
type bad struct {
	what string
	e    *example
	some bool
}

// TestProviderMatrix: of every row one message passes, and each of the ways to spoil it is refused with the row's status and
// not a word about why beyond the code.
func TestProviderMatrix(t *testing.T) {
	t.Parallel()
	all := examples(t)
	var donors []*example
	for _, name := range []string{"stripe", "standard-webhooks", "slack", "shopify", "twilio", "discord", "gitlab", "vonage", "adyen"} {
		p, ok := signature.ProviderByName(name)
		if !ok {
			t.Fatalf("no provider %s", name)
		}
		donors = append(donors, good(t, p, all))
	}
	for _, p := range signature.Providers() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			e := good(t, p, all)
			for kind, spoil := range map[string]func(*testing.T, *example) []bad{
				"bit": bits, "secret": otherSecrets, "scheme": func(t *testing.T, e *example) []bad { return otherSchemes(t, e, donors) },
				"time": otherTimes, "missing": withoutSignature, "repeated": repeated, "odd": oddSignatures,
			} {
				list := spoil(t, e)
				if len(list) == 0 && (kind != "time" || e.verifier(t).SignsTime()) {
					t.Errorf("%s: nothing of the kind could be made of %s", kind, e.name)
				}
				refused := 0
				for _, b := range list {
					got := b.e.ask(t)
					if got.pass && b.some {
						continue
					}
					refused++
					if why := notRefused(p, got); why != "" {
						t.Errorf("%s: %s: %s: %+v", kind, b.what, why, got)
					}
				}
				if len(list) > 0 && refused == 0 {
					t.Errorf("%s: none of %d is refused", kind, len(list))
				}
			}
		})
	}
}

// notRefused says what is wrong with an answer to a forgery; empty: nothing.
func notRefused(p *signature.Provider, got answer) string {
	want := cmp.Or(p.RefusalStatus, 401)
	body := got.body
	code, ok := strings.CutPrefix(got.body, `{"status":"`)
	code, closed := strings.CutSuffix(code, `"}`)
	codes := []string{"missing_signature", "bad_signature", "malformed_signature", "too_old", "too_new", "bad_timestamp", "wrong_scheme"}
	switch {
	case got.pass:
		return "passed"
	case p.Handshake == "xero" && got.status == want && body == "":
		return ""
	case !ok || !closed:
		return "another body"
	case code == "missing_id" && got.status == 400:
		return ""
	case p.Native != "" && code == "key_unavailable" && got.status == 503: // the message names a key's URL where nothing is
		return ""
	case !slices.Contains(codes, code):
		return "another code"
	case got.status != want:
		return "another status than " + strconv.Itoa(want)
	case len(got.headers) != 1:
		return "more headers"
	}
	return ""
}

// uses are the headers of e that its row reads for something that is, by their place.
func (e *example) uses(t *testing.T, is func(signature.HeaderUse) bool) []int {
	t.Helper()
	v := e.verifier(t)
	var at []int
	for i, f := range e.header {
		if is(v.Header(f[0])) {
			at = append(at, i)
		}
	}
	return at
}

func isSignature(u signature.HeaderUse) bool { return u.Signature }
func isRead(u signature.HeaderUse) bool      { return u.Read }

// bits are messages with one bit of the body another one, or of all that is read where the row signs no body.
func bits(t *testing.T, e *example) []bad {
	const most = 64
	some := !e.verifier(t).CoversBody()
	var list []bad
	for at := 0; at < len(e.body); at += 1 + len(e.body)/most {
		c := e.clone()
		c.body[at] ^= 1
		list = append(list, bad{"of byte " + strconv.Itoa(at) + " of the body", c, some})
	}
	if !some {
		c := e.clone()
		c.body = append(c.body, 'x')
		return append(list, bad{"a byte more", c, false})
	}
	for _, i := range e.uses(t, isRead) {
		value := e.header[i][1]
		for at := 0; at < len(value); at += 1 + len(value)/most {
			c := e.clone()
			b := []byte(value)
			b[at] ^= 1
			c.header[i][1] = string(b)
			list = append(list, bad{"of byte " + strconv.Itoa(at) + " of " + c.header[i][0], c, true})
		}
	}
	if _, query, ok := strings.Cut(e.url, "?"); ok {
		c := e.clone()
		c.url = strings.TrimSuffix(c.url, query) + query[:len(query)-1] + string(query[len(query)-1]^1)
		list = append(list, bad{"of the query", c, true})
	}
	return list
}

// otherSecrets are the message with a source that has another secret, or of which another key is published.
func otherSecrets(t *testing.T, e *example) []bad {
	v := e.verifier(t)
	keysOf := generatedKeys(t)
	var list []bad
	add := func(what string, c *example) {
		if _, ok := c.keys(v); ok {
			list = append(list, bad{what, c, false})
		}
	}
	if len(e.published) > 0 {
		c := e.clone()
		c.published = make(map[string]string)
		for at, document := range e.published {
			c.published[at] = republished(t, document)
		}
		list = append(list, bad{"another key is published", c, false})
	}
	if len(v.OwnKeys()) > 0 && len(e.published) == 0 {
		c := e.clone()
		c.body = resigned(t, c.body)
		list = append(list, bad{"signed with another key", c, false})
	}
	if len(e.secrets) > 0 {
		c := e.clone()
		for i, s := range c.secrets {
			b := []byte(s)
			b[len(b)-2] ^= 1
			c.secrets[i] = string(b)
		}
		add("one bit away", c)
		if before, document, ok := strings.Cut(e.secrets[0], "\n-----BEGIN CERTIFICATE-----"); ok { // Amazon's: a topic, and a certificate at hand
			c := e.clone()
			c.secrets[0] = before + "\n" + republished(t, "-----BEGIN CERTIFICATE-----"+document)
			add("another certificate", c)
			c = e.clone()
			topic, rest, _ := strings.Cut(e.secrets[0], "\n")
			c.secrets[0] = topic + "2\n" + rest
			add("another topic", c)
		}
		for what, key := range keysOf {
			c := e.clone()
			c.secrets = []string{key}
			add(what, c)
		}
	}
	return list
}

// otherSchemes are the message with the signatures of other senders, and with other hashes in its own header.
func otherSchemes(t *testing.T, e *example, donors []*example) []bad {
	own := e.uses(t, isSignature)
	var list []bad
	for _, d := range donors {
		if d.provider == e.provider || slices.Equal(d.secrets, e.secrets) { // a row of the same kin, under the same secret
			continue
		}
		c := e.clone()
		c.header = slices.DeleteFunc(c.header, func(f [2]string) bool { return e.verifier(t).Header(f[0]).Read })
		for _, f := range d.header {
			if !slices.ContainsFunc(c.header, func(have [2]string) bool { return have[0] == f[0] }) {
				c.header = append(c.header, f)
			}
		}
		if len(own) == 0 {
			c.body = d.body
		}
		list = append(list, bad{"signed as by " + d.provider.Name, c, false})
	}
	for _, i := range own {
		for name, newHash := range map[string]func() hash.Hash{"SHA-1": sha1.New, "SHA-256": sha256.New, "SHA-384": sha512.New384, "SHA-512": sha512.New} {
			plain := newHash()
			plain.Write(e.body)
			sums := map[string][]byte{"plain " + name: plain.Sum(nil)}
			for _, secret := range e.secrets {
				mac := hmac.New(newHash, []byte(secret))
				mac.Write(e.body)
				sums["HMAC of "+name] = mac.Sum(nil)
			}
			for what, sum := range sums {
				for _, text := range []string{hex.EncodeToString(sum), base64.StdEncoding.EncodeToString(sum)} {
					if strings.Contains(strings.ToLower(e.header[i][1]), strings.ToLower(text)) {
						continue // its own
					}
					c := e.clone()
					for _, j := range own {
						c.header[j][1] = text
					}
					list = append(list, bad{what + " as " + text, c, false})
				}
			}
		}
	}
	return list
}

// otherTimes are the message long after and long before it was signed.
func otherTimes(t *testing.T, e *example) []bad {
	if !e.verifier(t).SignsTime() {
		return nil
	}
	var list []bad
	for what, by := range map[string]time.Duration{"late": 1, "early": -1} {
		c := e.clone()
		c.now = c.now.Add(by * (e.provider.Tolerance.Std() + 24*time.Hour))
		list = append(list, bad{what, c, false})
	}
	return list
}

// withoutSignature is the message without what stands for its signature.
func withoutSignature(t *testing.T, e *example) []bad {
	c := e.clone()
	if own := e.uses(t, isSignature); len(own) == 0 {
		c.body = []byte("{}")
		c.url, _, _ = strings.Cut(c.url, "?")
	}
	v := e.verifier(t)
	c.header = slices.DeleteFunc(c.header, func(f [2]string) bool { return v.Header(f[0]).Signature })
	return []bad{{"", c, false}}
}

// repeated are the message with a header twice, as two fields and as one. Where the signature stands in the body or the query,
// that is what comes twice.
func repeated(t *testing.T, e *example) []bad {
	var list []bad
	for _, i := range e.uses(t, isRead) {
		name, value := e.header[i][0], e.header[i][1]
		for _, other := range []string{value, "x", ""} {
			for _, pair := range [][2]string{{value, other}, {other, value}} {
				c := e.clone()
				c.header[i][1] = pair[0]
				c.header = append(c.header, [2]string{name, pair[1]})
				list = append(list, bad{name + " as two", c, false})
				// As one it is another value: refused where anything vouches for it.
				if e.lists(name) && other != "" || e.oneOfTwo(name) || !e.vouched(t, name) {
					continue
				}
				c = e.clone()
				c.header[i][1] = pair[0] + "," + pair[1]
				list = append(list, bad{name + " joined", c, false})
			}
		}
	}
	if len(e.uses(t, isSignature)) > 0 {
		return list
	}
	if path, query, ok := strings.Cut(e.url, "?"); ok {
		c := e.clone()
		c.url = path + "?" + query + "&" + query
		list = append(list, bad{"query", c, false})
	}
	c := e.clone()
	if at := e.tokenInBody(); at != "" {
		name := []byte(`"` + at + `":`)
		c.body = bytes.Replace(c.body, name, slices.Concat(name, []byte(`"x",`), name), 1)
	} else if inner, ok := bytes.CutPrefix(bytes.TrimSpace(c.body), []byte("{")); ok {
		inner = inner[:len(inner)-1]
		c.body = slices.Concat([]byte("{"), inner, []byte(","), inner, []byte("}"))
	} else {
		c.body = slices.Concat(c.body, []byte("&"), c.body)
	}
	return append(list, bad{"body", c, false})
}

// tokenInBody is the member of the body that is the whole proof; empty: there is none.
func (e *example) tokenInBody() string {
	for _, s := range e.provider.Specs {
		if s.Algorithm == signature.Token && s.Signature.JSON != "" {
			return s.Signature.JSON
		}
	}
	return ""
}

// oneOfTwo reports whether another header may hold the signature in its place.
func (e *example) oneOfTwo(name string) bool {
	return slices.ContainsFunc(e.provider.Specs, func(s signature.Spec) bool { return slices.Contains(s.Signature.Also, name) })
}

// vouched reports whether a header holds the signature, or is covered by it.
func (e *example) vouched(t *testing.T, name string) bool {
	v := e.verifier(t)
	mac := !slices.ContainsFunc(e.provider.Specs, func(s signature.Spec) bool { return s.Algorithm == signature.Token })
	return v.Header(name).Signature || mac && v.CoversHeader(name)
}

// lists reports whether a header is a list with commas to the row.
func (e *example) lists(name string) bool {
	return slices.ContainsFunc(e.provider.Specs, func(s signature.Spec) bool {
		return strings.EqualFold(s.Signature.Header, name) && s.Signature.List == ","
	})
}

// oddSignatures are the message with what is no signature at all.
func oddSignatures(t *testing.T, e *example) []bad {
	own := e.uses(t, isSignature)
	var list []bad
	for what, value := range map[string]string{
		"empty": "", "one character": "a", "odd length": "abc", "not ASCII": "\u00fc\u00e9", "not UTF-8": "\xff\xfe", "a zero byte": "a\x00b",
		"60 KiB": strings.Repeat("A", 60<<10), "60 KiB of commas": strings.Repeat(",", 60<<10), "full stops": strings.Repeat(".", 60<<10),
	} {
		c := e.clone()
		if len(own) == 0 {
			c.body = []byte(`{"` + value + `"}`)
		}
		for _, i := range own {
			c.header[i][1] = value
		}
		list = append(list, bad{what, c, false})
	}
	return list
}
