package signature

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// vector is a file of testdata/vectors: header lines, an empty line, and the body to the end.
type vector struct {
	name             string
	provider, scheme string // one of them
	secrets          []string
	now              time.Time // zero: no time is signed
	expect           string    // accept, reject, refuse-config
	source           string    // whose example, or whose verdict, it is; computed …: ours
	message          Message
	claims           Claims // what a source says of a token
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	files, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil || len(files) < 200 {
		t.Fatalf("found %d vectors: %v", len(files), err)
	}
	vectors := make([]vector, len(files))
	for i, f := range files {
		vectors[i] = readVector(t, f)
	}
	return vectors
}

func readVector(t testing.TB, file string) vector {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := bytes.Cut(data, []byte("\n\n"))
	if !ok {
		t.Fatalf("%s: no empty line", file)
	}
	v := vector{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
	v.message = Message{Method: "POST", Target: "/", Body: body}
	for line := range strings.SplitSeq(string(head), "\n") {
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("%s: line %q", file, line)
		}
		switch key {
		case "provider":
			v.provider = value
		case "scheme":
			v.scheme = value
		case "secret":
			s, err := strconv.Unquote(value)
			if err != nil {
				t.Fatalf("%s: secret: %v", file, err)
			}
			v.secrets = append(v.secrets, s)
		case "method":
			v.message.Method = value
		case "url":
			v.message.URL = value
			v.message.Target = targetOf(value)
		case "now":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatalf("%s: now: %v", file, err)
			}
			v.now = time.Unix(n, 0)
		case "expect":
			v.expect = value
		case "header":
			name, field, _ := strings.Cut(value, ":")
			v.message.Header = append(v.message.Header, Field{strings.ToLower(name), strings.TrimPrefix(field, " ")})
		case "source":
			v.source = value
		case "audience":
			v.claims.Audience = value
		case "issuer":
			v.claims.Issuer = value
		case "published":
			at, quoted, _ := strings.Cut(value, " ")
			document, err := strconv.Unquote(quoted)
			if err != nil {
				t.Fatalf("%s: published: %v", file, err)
			}
			v.message.Published = documents{at: published(t, document)}
		case "why":
		default:
			t.Fatalf("%s: unknown line %q", file, key)
		}
	}
	return v
}

// targetOf returns the request target of a URL: what stands behind the host.
func targetOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		return rest[i:]
	}
	return "/"
}

// readScheme compiles testdata/schemes/NAME.json: what a user writes in a config.
func readScheme(t testing.TB, name string) *Verifier {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/schemes", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var spec Spec
	if err := d.Decode(&spec); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return compileTest(t, spec)
}

// verifierOf returns the verifier and tolerance of a vector.
func verifierOf(t testing.TB, v vector) (*Verifier, time.Duration) {
	t.Helper()
	if v.scheme != "" {
		return readScheme(t, v.scheme), DefaultTolerance
	}
	p := provider(t, v.provider).Verifier()
	if v.claims != (Claims{}) {
		var err error
		if p, err = p.Expect(v.claims); err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
	}
	return p, provider(t, v.provider).Tolerance.Std()
}

func provider(t testing.TB, name string) *Provider {
	t.Helper()
	p, ok := ProviderByName(name)
	if !ok {
		t.Fatalf("no provider %q", name)
	}
	return p
}

func compileTest(t testing.TB, specs ...Spec) *Verifier {
	t.Helper()
	v, err := Compile(specs...)
	if err != nil {
		t.Fatalf("Compile: %v", err)
	}
	return v
}

func parseKeys(t testing.TB, v *Verifier, secrets ...string) []Key {
	t.Helper()
	keys := make([]Key, len(secrets))
	for i, s := range secrets {
		k, err := v.ParseKey([]byte(s))
		if err != nil {
			t.Fatalf("ParseKey of secret %d: %v", i, err)
		}
		keys[i] = k
	}
	return keys
}

// headers makes fields of "name: value" lines.
func headers(lines ...string) []Field {
	fields := make([]Field, len(lines))
	for i, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		fields[i] = Field{name, value}
	}
	return fields
}

// signed returns m with its signature under the first key.
func signed(t testing.TB, v *Verifier, m Message, k Key, id string, now time.Time) Message {
	t.Helper()
	fields, err := v.Sign(&m, k, id, now)
	if err != nil {
		t.Fatalf("Sign: %v", err)
	}
	m.Header = append(append([]Field(nil), m.Header...), fields...)
	return m
}

// formulaMAC is HMAC in the encoding named: hex1, hex256 or base64 (of SHA-256).
func formulaMAC(kind, secret string, content []byte) string {
	newHash := sha256.New
	if kind == "hex1" {
		newHash = sha1.New
	}
	h := hmac.New(newHash, []byte(secret))
	h.Write(content)
	if kind == "base64" {
		return base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// twilioMAC is Twilio's formula over content that is put together already.
func twilioMAC(token, content string) string {
	h := hmac.New(sha1.New, []byte(token))
	h.Write([]byte(content))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// standardLookup finds paths with encoding/json, and reports whether that could read the document without doubt: valid,
// within our depth, and of one name in each object.
func standardLookup(body []byte, paths []jsonPath) (string, bool) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if !json.Valid(body) || bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) > maxJSONDepth {
		return "", false
	}
	var values []string
	for _, path := range paths {
		raw := json.RawMessage(body)
		for _, name := range path {
			var object map[string]json.RawMessage
			var array []json.RawMessage
			if json.Unmarshal(raw, &object) == nil && object != nil {
				if bytes.Count(raw, []byte(`:`)) != len(object) {
					return "", false // nested, or a name twice: which one counts is a matter of taste
				}
				raw = object[name]
			} else if i, err := strconv.Atoi(name); json.Unmarshal(raw, &array) == nil && err == nil && i >= 0 && i < len(array) {
				raw = array[i]
			} else {
				return "", true
			}
		}
		raw = bytes.TrimSpace(raw)
		var text string
		switch {
		case len(raw) == 0, raw[0] == '{', raw[0] == '[', raw[0] == 'n':
			return "", true
		case raw[0] == '"':
			if !bytes.Contains(raw, []byte(`\`)) {
				text = string(raw[1 : len(raw)-1])
			} else if json.Unmarshal(raw, &text) != nil {
				return "", false
			}
			if text == "" {
				return "", true
			}
		default:
			text = string(raw)
		}
		values = append(values, text)
	}
	return strings.Join(values, "."), true
}
