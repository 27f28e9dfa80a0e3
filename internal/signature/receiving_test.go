package signature

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

var receivedAt = time.Unix(1700000000, 0)

// row is one message and what becomes of it.
type row struct {
	name    string
	message Message
	want    Reason
}

func runRows(t *testing.T, v *Verifier, keys []Key, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			wantReason(t, v.Verify(&r.message, keys, receivedAt, 5*time.Minute), r.want)
		})
	}
}

// with returns the header with some fields replaced or, for "name:", removed.
func with(fields []Field, lines ...string) []Field {
	out := append([]Field(nil), fields...)
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ":")
		value = strings.TrimPrefix(value, " ")
		kept := out[:0]
		for _, f := range out {
			if f.Name != name {
				kept = append(kept, f)
			}
		}
		if out = kept; value != "" {
			out = append(out, Field{name, value})
		}
	}
	return out
}

// TestStripeHeader is about a list in one header: which v1 counts, what is skipped, what is refused.
func TestStripeHeader(t *testing.T) {
	t.Parallel()
	v := provider(t, "stripe").Verifier()
	keys := parseKeys(t, v, testSecret)
	body := []byte(`{"id":"evt_1"}`)
	good := formulaMAC("hex256", testSecret, append([]byte("1700000000."), body...))
	bad := strings.Repeat("ab", 32)
	sig := func(s string) Message {
		return Message{Body: body, Header: []Field{{"stripe-signature", s}}}
	}
	many := func(n int) string { return strings.Repeat("v1="+bad+",", n) }
	pad := func(n int) string { // a good field of n bytes
		s := "t=1700000000,v1=" + good + ",v0="
		return s + strings.Repeat("a", n-len(s))
	}
	runRows(t, v, keys, []row{
		{"right one first", sig("t=1700000000,v1=" + good + ",v1=" + bad + ",v1=" + bad), ReasonOK},
		{"right one in the middle", sig("t=1700000000,v1=" + bad + ",v1=" + good + ",v1=" + bad), ReasonOK},
		{"right one last", sig("t=1700000000,v1=" + bad + ",v1=" + bad + ",v1=" + good), ReasonOK},
		{"time behind the signature", sig("v1=" + good + ",t=1700000000"), ReasonOK},
		{"upper-case hex", sig("t=1700000000,v1=" + strings.ToUpper(good)), ReasonOK},
		{"an older version beside", sig("t=1700000000,v1=" + good + ",v0=" + bad), ReasonOK},
		{"only an older version", sig("t=1700000000,v0=" + good), ReasonWrongScheme},
		{"no time", sig("v1=" + good), ReasonMalformedSignature},
		{"empty time", sig("t=,v1=" + good), ReasonBadTimestamp},
		{"no version", sig("v1,t=1"), ReasonMalformedSignature},
		{"two times, as when two fields were joined", sig("t=1700000000,v1=" + bad + ",t=1700000000,v1=" + good), ReasonMalformedSignature},
		{"blank after the comma", sig("t=1700000000, v1=" + good), ReasonMalformedSignature},
		{"empty", sig(""), ReasonMissingSignature},
		{"one character", sig("t=1700000000,v1=a"), ReasonMalformedSignature},
		{"63 characters", sig("t=1700000000,v1=" + good[1:]), ReasonMalformedSignature},
		{"65 characters", sig("t=1700000000,v1=" + good + "0"), ReasonMalformedSignature},
		{"66 characters", sig("t=1700000000,v1=" + good + "00"), ReasonMalformedSignature},
		{"a multibyte character", sig("t=1700000000,v1=" + good[:62] + "é"), ReasonMalformedSignature},
		{"base64 where hex is meant", sig("t=1700000000,v1=" + base64.StdEncoding.EncodeToString([]byte(good)[:32])), ReasonMalformedSignature},
		{"16 signatures", sig(many(15) + "v1=" + good + ",t=1700000000"), ReasonOK},
		{"17 signatures", sig(many(16) + "v1=" + good + ",t=1700000000"), ReasonMalformedSignature},
		{"60 KB", sig("t=1700000000,v1=" + strings.Repeat("a", 60<<10)), ReasonMalformedSignature},
		{"8 KiB", sig(pad(8 << 10)), ReasonOK},
		{"a byte more", sig(pad(8<<10 + 1)), ReasonMalformedSignature},
		{"twice, bad then good", Message{Body: body, Header: []Field{{"stripe-signature", "t=1700000000,v1=" + bad}, {"stripe-signature", "t=1700000000,v1=" + good}}}, ReasonMalformedSignature},
		{"twice, good then bad", Message{Body: body, Header: []Field{{"stripe-signature", "t=1700000000,v1=" + good}, {"stripe-signature", "t=1700000000,v1=" + bad}}}, ReasonMalformedSignature},
		{"twice under names of other case", Message{Body: body, Header: []Field{{"Stripe-Signature", "t=1700000000,v1=" + good}, {"stripe-signature", "t=1700000000,v1=" + good}}}, ReasonMalformedSignature},
		{"no header", Message{Body: body}, ReasonMissingSignature},
	})
}

// TestPrefixedHeader is about one signature behind a prefix.
func TestPrefixedHeader(t *testing.T) {
	t.Parallel()
	v := provider(t, "github").Verifier()
	keys := parseKeys(t, v, testSecret)
	body := []byte(`{}`)
	good := formulaMAC("hex256", testSecret, body)
	sig := func(lines ...string) Message {
		return Message{Body: body, Header: append(headers("x-github-delivery: d", "x-github-event: push"), headers(lines...)...)}
	}
	runRows(t, v, keys, []row{
		{"right", sig("x-hub-signature-256: sha256=" + good), ReasonOK},
		{"blank behind the prefix", sig("x-hub-signature-256: sha256= " + good), ReasonMalformedSignature},
		{"no prefix", sig("x-hub-signature-256: " + good), ReasonMalformedSignature},
		{"another prefix", sig("x-hub-signature-256: sha1=" + good), ReasonWrongScheme},
		{"two joined", sig("x-hub-signature-256: sha256=" + good + ",sha256=" + good), ReasonMalformedSignature},
		{"only SHA-1", sig("x-hub-signature: sha1=" + good[:40]), ReasonWrongScheme},
		{"id twice", sig("x-hub-signature-256: sha256="+good, "x-github-delivery: e"), ReasonMalformedSignature},
		{"id joined", Message{Body: body, Header: headers("x-hub-signature-256: sha256="+good, "x-github-delivery: d,e")}, ReasonMalformedSignature},
		{"type twice", sig("x-hub-signature-256: sha256="+good, "x-github-event: ping"), ReasonMalformedSignature},
	})
}

// TestCanonicalBase64: the same bytes have one text.
func TestCanonicalBase64(t *testing.T) {
	t.Parallel()
	v := provider(t, "shopify").Verifier()
	keys := parseKeys(t, v, testSecret)
	// The body is one whose MAC holds both + and / in base64.
	body, good := []byte("{}"), ""
	for !strings.Contains(good, "+") || !strings.Contains(good, "/") {
		body = append(body, ' ')
		good = formulaMAC("base64", testSecret, body)
	}
	sig := func(s string) Message {
		return Message{Body: body, Header: append(headers("x-shopify-webhook-id: d"), Field{"x-shopify-hmac-sha256", s})}
	}
	last := good[len(good)-2]
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	other := string(alphabet[strings.IndexByte(alphabet, last)^1])
	runRows(t, v, keys, []row{
		{"canonical", sig(good), ReasonOK},
		{"base64url", sig(strings.NewReplacer("+", "-", "/", "_").Replace(good)), ReasonMalformedSignature},
		{"no padding", sig(strings.TrimRight(good, "=")), ReasonMalformedSignature},
		{"loose bits at the end", sig(good[:len(good)-2] + other + "="), ReasonMalformedSignature},
		{"line break within", sig(good[:10] + "\n" + good[10:]), ReasonMalformedSignature},
		{"hex", sig(formulaMAC("hex256", testSecret, body)), ReasonMalformedSignature},
	})
}

// TestCanonicalBase64URL: padding may be left out, and nothing else is free.
func TestCanonicalBase64URL(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}, Encoding: Base64URL}})
	keys := parseKeys(t, v, testSecret)
	body, std := []byte("{}"), ""
	for !strings.Contains(std, "+") || !strings.Contains(std, "/") {
		body = append(body, ' ')
		std = formulaMAC("base64", testSecret, body)
	}
	good := strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(std, "="))
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	loose := good[:len(good)-1] + string(alphabet[strings.IndexByte(alphabet, good[len(good)-1])^1])
	sig := func(s string) Message { return Message{Body: body, Header: []Field{{"s", s}}} }
	runRows(t, v, keys, []row{
		{"without padding", sig(good), ReasonOK},
		{"padded", sig(good + "="), ReasonOK},
		{"padded twice", sig(good + "=="), ReasonMalformedSignature},
		{"the other alphabet", sig(std), ReasonMalformedSignature},
		{"loose bits at the end", sig(loose), ReasonMalformedSignature},
		{"loose bits before the padding", sig(loose + "="), ReasonMalformedSignature},
		{"line break within", sig(good[:10] + "\r\n" + good[10:]), ReasonMalformedSignature},
	})
}

// TestHeaderSets is about the two names of one scheme, svix-* and webhook-*, and versions in one header.
func TestHeaderSets(t *testing.T) {
	t.Parallel()
	p := provider(t, "svix")
	v := p.Verifier()
	keys := parseKeys(t, v, testSecret)
	body := []byte(`{"type":"a"}`)
	svixSet := signed(t, v, Message{Body: body}, keys[0], "msg_1", receivedAt).Header
	webhookSet := make([]Field, len(svixSet))
	for i, f := range svixSet {
		webhookSet[i] = Field{strings.Replace(f.Name, "svix-", "webhook-", 1), f.Value}
	}
	both := append(append([]Field(nil), svixSet...), webhookSet...)
	sig := svixSet[len(svixSet)-1].Value
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(testSecret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	emptyID := []Field{{"svix-id", ""}, {"svix-timestamp", "1700000000"},
		{"svix-signature", "v1," + formulaMAC("base64", string(secret), []byte(".1700000000."+string(body)))}}
	msg := func(h []Field) Message { return Message{Body: body, Header: h} }
	runRows(t, v, keys, []row{
		{"svix", msg(svixSet), ReasonOK},
		{"webhook", msg(webhookSet), ReasonOK},
		{"both, the same", msg(both), ReasonOK},
		{"both, another id", msg(with(both, "webhook-id: msg_2")), ReasonMalformedSignature},
		{"both, another time", msg(with(both, "webhook-timestamp: 1700000001")), ReasonMalformedSignature},
		{"a mix: id of the other", msg(with(svixSet, "svix-id:", "webhook-id: msg_1")), ReasonMalformedSignature},
		{"whole svix and a part of webhook", msg(with(both, "webhook-signature:")), ReasonMalformedSignature},
		{"whole webhook and a part of svix", msg(with(both, "svix-timestamp:")), ReasonMalformedSignature},
		{"id twice", msg(append(with(svixSet), Field{"svix-id", "msg_2"})), ReasonMalformedSignature},
		{"id joined", msg(with(svixSet, "svix-id: msg_1,msg_1")), ReasonMalformedSignature},
		{"time twice", msg(append(with(svixSet), Field{"svix-timestamp", "1700000000"})), ReasonMalformedSignature},
		{"time joined", msg(with(svixSet, "svix-timestamp: 1700000000,1700000000")), ReasonMalformedSignature},
		{"signature joined", msg(with(svixSet, "svix-signature: "+sig+","+sig)), ReasonMalformedSignature},
		{"no signature", msg(with(svixSet, "svix-signature:")), ReasonMissingSignature},
		{"no id", msg(with(svixSet, "svix-id:")), ReasonMissingSignature},
		{"empty id, signed", msg(emptyID), ReasonMissingSignature},
		{"no time", msg(with(svixSet, "svix-timestamp:")), ReasonBadTimestamp},
		{"an unknown version before", msg(with(svixSet, "svix-signature: v9,xyz "+sig)), ReasonOK},
		{"v1a beside", msg(with(svixSet, "svix-signature: v1a,AAAA "+sig)), ReasonOK},
		{"only v2", msg(with(svixSet, "svix-signature: v2,"+sig[3:])), ReasonWrongScheme},
	})
}

// TestGitLabKinds: the secret's own form says which of the two schemes counts.
func TestGitLabKinds(t *testing.T) {
	t.Parallel()
	v := provider(t, "gitlab").Verifier()
	token, signing := parseKeys(t, v, "classic-secret-token"), parseKeys(t, v, testSecret)
	bySignature := signed(t, v, Message{Body: []byte("{}")}, signing[0], "id_1", receivedAt)
	byToken := Message{Body: []byte("{}"), Header: headers("x-gitlab-token: classic-secret-token", "idempotency-key: id_1")}
	bySecretAsToken := Message{Body: []byte("{}"), Header: headers("x-gitlab-token: " + testSecret)}
	both := Message{Body: []byte("{}"), Header: append(append([]Field(nil), bySignature.Header...), byToken.Header...)}
	badSignature := Message{Body: []byte("{ }"), Header: both.Header}
	for _, c := range []struct {
		name string
		m    Message
		keys []Key
		want Reason
	}{
		{"signature with its key", bySignature, signing, ReasonOK},
		{"token with its key", byToken, token, ReasonOK},
		{"signature with the token's key", bySignature, token, ReasonWrongScheme},
		{"token with the signing key", byToken, signing, ReasonWrongScheme},
		{"the signing secret sent as a token", bySecretAsToken, signing, ReasonWrongScheme},
		{"both with the token's key", both, token, ReasonOK},
		{"both with the signing key", both, signing, ReasonOK},
		{"both with both keys", both, append(token[:1:1], signing...), ReasonOK},
		{"a bad signature is not made good by the token", badSignature, append(token[:1:1], signing...), ReasonBadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := v.Verify(&c.m, c.keys, receivedAt, time.Minute)
			wantReason(t, got, c.want)
		})
	}
}

// TestWindow holds both sides of both borders.
func TestWindow(t *testing.T) {
	t.Parallel()
	v := provider(t, "standard-webhooks").Verifier()
	keys := parseKeys(t, v, testSecret)
	m := signed(t, v, Message{Body: []byte("{}")}, keys[0], "msg_1", receivedAt)
	past := compileTest(t, Spec{Algorithm: HMACSHA256, Signed: "{timestamp}.{body}", Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}},
		Timestamp: &TimestampSpec{ValueSpec: ValueSpec{Header: "t"}, Window: Past}})
	pastKeys := parseKeys(t, past, testSecret)
	pastMessage := signed(t, past, Message{Body: []byte("{}")}, pastKeys[0], "", receivedAt)
	for _, c := range []struct {
		name       string
		now        time.Time
		want, past Reason
	}{
		{"at once", receivedAt, ReasonOK, ReasonOK},
		{"300 s old", receivedAt.Add(300 * time.Second), ReasonOK, ReasonOK},
		{"300.999 s old: the resolution is a second", receivedAt.Add(300*time.Second + 999*time.Millisecond), ReasonOK, ReasonOK},
		{"301 s old", receivedAt.Add(301 * time.Second), ReasonTooOld, ReasonTooOld},
		{"300 s ahead", receivedAt.Add(-300 * time.Second), ReasonOK, ReasonOK},
		{"301 s ahead", receivedAt.Add(-301 * time.Second), ReasonTooNew, ReasonOK},
		{"an hour ahead", receivedAt.Add(-time.Hour), ReasonTooNew, ReasonOK},
		{"a clock at the epoch", time.Unix(0, 0), ReasonTooNew, ReasonOK},
	} {
		got := v.Verify(&m, keys, c.now, 5*time.Minute)
		if got.Reason != c.want || got.Key != 0 {
			t.Errorf("%s: %s by key %d, want %s by key 0", c.name, got.Reason, got.Key, c.want)
		}
		if got := past.Verify(&pastMessage, pastKeys, c.now, 5*time.Minute); got.Reason != c.past {
			t.Errorf("%s, past only: %s, want %s", c.name, got.Reason, c.past)
		}
	}
}

// TestDecodedBody: signed before compression or after it, and a bomb.
func TestDecodedBody(t *testing.T) {
	t.Parallel()
	spec := Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}, ID: &IDSpec{ValueSpec: ValueSpec{JSON: "id"}}}
	wire := compileTest(t, spec)
	spec.Body = Decoded
	decoded := compileTest(t, spec)
	key := parseKeys(t, wire, testSecret)
	plain := []byte(`{"id":"evt_1"}`)
	zipped := zip(t, bytes.NewReader(plain))
	bomb := zip(t, &zeros{left: 64 << 20})
	over := bytes.Repeat([]byte("x"), 1<<20+1)
	full := over[:1<<20]
	msg := func(body, signed []byte, lines ...string) Message {
		return Message{Body: body, Header: append(headers(lines...), Field{"s", formulaMAC("hex256", testSecret, signed)}), MaxBody: 1 << 20}
	}
	const gz = "content-encoding: gzip"
	for _, c := range []struct {
		name string
		v    *Verifier
		m    Message
		want Reason
		id   string
	}{
		{"wire: as it is", wire, msg(zipped, zipped, gz), ReasonOK, ""},
		{"wire: unzipped is something else", wire, msg(zipped, plain, gz), ReasonBadSignature, ""},
		{"decoded", decoded, msg(zipped, plain, gz), ReasonOK, "evt_1"},
		{"decoded, old name of gzip", decoded, msg(zipped, plain, "content-encoding: X-GZIP"), ReasonOK, "evt_1"},
		{"decoded, but not zipped", decoded, msg(plain, plain), ReasonOK, "evt_1"},
		{"decoded: as it is, is something else", decoded, msg(zipped, zipped, gz), ReasonBadSignature, ""},
		{"decoded: cut off", decoded, msg(zipped[:len(zipped)-4], plain, gz), ReasonBadSignature, ""},
		{"decoded: something behind", decoded, msg(append(bytes.Clone(zipped), "x"...), plain, gz), ReasonBadSignature, ""},
		{"decoded: another coding", decoded, msg(plain, plain, "content-encoding: br"), ReasonBadSignature, ""},
		{"decoded: two codings", decoded, msg(zipped, plain, gz, gz), ReasonMalformedSignature, ""},
		{"decoded: as much as may come out", decoded, msg(zip(t, bytes.NewReader(full)), full, gz), ReasonOK, ""},
		{"decoded: one byte more", decoded, msg(zip(t, bytes.NewReader(over)), over, gz), ReasonTooLarge, ""},
		{"decoded: cut off early", decoded, msg(zip(t, bytes.NewReader(full))[:100], full, gz), ReasonBadSignature, ""},
		{"decoded: a bomb", decoded, msg(bomb, bomb, gz), ReasonTooLarge, ""},
	} {
		got := c.v.Verify(&c.m, key, receivedAt, time.Minute)
		if got.Reason != c.want || c.id != "" && got.ID != c.id {
			t.Errorf("%s: %s id %q, want %s %q", c.name, got.Reason, got.ID, c.want, c.id)
		}
	}
}

// TestBombTakesLittleMemory is not parallel: it counts what the process allocates.
func TestBombTakesLittleMemory(t *testing.T) {
	v := compileTest(t, Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}, Body: Decoded})
	keys := parseKeys(t, v, testSecret)
	m := Message{Body: zip(t, &zeros{left: 64 << 20}), MaxBody: 1 << 20,
		Header: headers("content-encoding: gzip", "s: "+strings.Repeat("ab", 32))}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonTooLarge)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
		t.Errorf("a bomb of 64 MiB takes %d bytes, of which 1 MiB may come out", got)
	}
}

func zip(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := io.Copy(z, r); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// zeros reads as many zero bytes as are left.
type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(z.left, len(p))
	clear(p[:n])
	z.left -= n
	return n, nil
}
