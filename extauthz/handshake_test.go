package extauthz

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

// providerSource is a source with the preset of a provider, under /hooks/PROVIDER.
func providerSource(t testing.TB, provider string, handshake Handshake, secret string, change ...func(*Source)) *Source {
	t.Helper()
	p, ok := signature.ProviderByName(provider)
	if !ok {
		t.Fatalf("no provider %s", provider)
	}
	preset := func(s *Source) { s.Handshake, s.RequireID = handshake, p.RequireID }
	return sourceWith(t, provider, p.Verifier(), []string{secret}, append([]func(*Source){preset}, change...)...)
}

// post is a signed request of a provider: sign makes its headers from the time, as a decimal number of seconds.
func post(target, body string, sign func(seconds string) [][2]string) hook {
	now := time.Now()
	return hook{
		target: target, body: body, at: now, drop: []string{"webhook-id", "webhook-timestamp", "webhook-signature"},
		headers: sign(fmt.Sprint(now.Unix())),
	}
}

func slackPost(body, secret string) hook {
	return post("/hooks/slack", body, func(at string) [][2]string {
		return [][2]string{{"x-slack-request-timestamp", at}, {"x-slack-signature", "v0=" + hex.EncodeToString(macOf(secret, "v0:"+at+":"+body))}}
	})
}

func zoomPost(body, secret string) hook {
	return post("/hooks/zoom", body, func(at string) [][2]string {
		return [][2]string{{"x-zm-request-timestamp", at}, {"x-zm-signature", "v0=" + hex.EncodeToString(macOf(secret, "v0:"+at+":"+body))}}
	})
}

func twitchPost(kind, body, secret string) hook {
	return post("/hooks/twitch", body, func(string) [][2]string {
		const id = "e76c6bd4-55c9-4987-8304-da1588d8988b"
		at := time.Now().UTC().Format(time.RFC3339Nano)
		return [][2]string{
			{"twitch-eventsub-message-id", id}, {"twitch-eventsub-message-timestamp", at}, {"twitch-eventsub-message-type", kind},
			{"twitch-eventsub-message-signature", "sha256=" + hex.EncodeToString(macOf(secret, id+at+body))},
		}
	})
}

// The key pair of Discord's test: RFC 8032, section 7.1, test 1.
var discordSeed, _ = hex.DecodeString("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")

const discordPublic = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"

func discordPost(body string, spoil byte) hook {
	return post("/hooks/discord", body, func(at string) [][2]string {
		sig := ed25519.Sign(ed25519.NewKeyFromSeed(discordSeed), []byte(at+body))
		sig[0] ^= spoil
		return [][2]string{{"x-signature-timestamp", at}, {"x-signature-ed25519", hex.EncodeToString(sig)}}
	})
}

func metaGet(query string) hook {
	return hook{target: "/hooks/meta" + query, drop: []string{"webhook-id", "webhook-timestamp", "webhook-signature", "content-length", "x-envoy-auth-partial-body"},
		change: func(r *authv3.AttributeContext_HttpRequest) { r.Method, r.RawBody, r.Size = "GET", nil, 0 }}
}

// The exact answers that the providers want, and what must not be answered, in both modes. The bodies are those of their pages.
func TestHandshake(t *testing.T) {
	t.Parallel()
	const (
		slackBody  = `{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}`
		slackWants = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"
		twitchBody = `{"challenge":"pogchamp-kappa-360noscope-vohiyo","subscription":{"id":"f1c2a387-161a-49f9-a165-0f21d7a4e1c4","status":"webhook_callback_verification_pending","type":"channel.follow","version":"1"}}`
		zoomBody   = `{"payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"},"event_ts":1654503849680,"event":"endpoint.url_validation"}`
		// printf qgg8vlvZRS6UYooatFL8Aw | openssl dgst -sha256 -hmac 'correct horse battery staple'
		zoomWants = `{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":"7d2c08c7fae9c1c8613a22d702d023e8378c18e68045f330003e109352b6b9c8"}`
		verify    = "meatyhamhock"
	)
	tables := make(map[Mode]*Sources)
	for _, mode := range []Mode{ModePass, ModeStore} {
		in := func(s *Source) { s.Mode = mode }
		tables[mode] = mustSources(t, []*Source{
			providerSource(t, "slack", HandshakeSlack, testSecret, in),
			providerSource(t, "twitch", HandshakeTwitch, testSecret, in, func(s *Source) { s.RefusalStatus = 403 }),
			providerSource(t, "zoom", HandshakeZoom, testSecret, in),
			providerSource(t, "discord", HandshakeDiscord, discordPublic, in),
			providerSource(t, "meta", HandshakeMeta, testSecret, in, func(s *Source) { s.HandshakeToken = []byte(verify) }),
		})
	}
	text := func(body string) answer {
		return answer{status: 200, body: body, headers: map[string]string{"content-type": "text/plain", "x-content-type-options": "nosniff"}}
	}
	json := func(status int, body string) answer {
		return answer{status: status, body: body, headers: map[string]string{"content-type": "application/json", "x-content-type-options": "nosniff"}}
	}
	refused := func(status int, code string) answer {
		return answer{status: status, body: `{"status":"` + code + `"}`, headers: map[string]string{"content-type": "application/json"}}
	}
	pass := answer{pass: true}
	for _, tt := range []struct {
		name string
		h    hook
		want answer
	}{
		{"slack", slackPost(slackBody, testSecret), text(slackWants)},
		{"slack, escaped in JSON", slackPost(`{"type":"url_verification","challenge":"abc\u0064"}`, testSecret), text("abcd")},
		{"slack, forged", slackPost(slackBody, "guess"), refused(401, "bad_signature")},
		{"slack, unsigned", post("/hooks/slack", slackBody, func(string) [][2]string { return nil }), refused(401, "missing_signature")},
		{"slack, an event that mentions it", slackPost(`{"type":"event_callback","event_id":"Ev1","event":{"type":"message","text":"\"url_verification\""}}`, testSecret), pass},
		{"slack, markup", slackPost(`{"type":"url_verification","challenge":"<script>"}`, testSecret), pass},
		{"slack, too long", slackPost(`{"type":"url_verification","challenge":"`+strings.Repeat("a", 257)+`"}`, testSecret), pass},
		{"twitch", twitchPost("webhook_callback_verification", twitchBody, testSecret), text("pogchamp-kappa-360noscope-vohiyo")},
		{"twitch, forged", twitchPost("webhook_callback_verification", twitchBody, "guess of a guess"), refused(403, "bad_signature")},
		// The header that names the kind is not signed: whoever changes it gets nothing back.
		{"twitch, notification", twitchPost("notification", twitchBody, testSecret), pass},
		{"twitch, notification made a challenge", twitchPost("webhook_callback_verification", `{"subscription":{"type":"channel.follow"},"event":{}}`, testSecret), pass},
		{"twitch, revocation", twitchPost("revocation", `{"subscription":{"status":"authorization_revoked"}}`, testSecret), pass},
		{"zoom", zoomPost(zoomBody, testSecret), json(200, zoomWants)},
		{"zoom, forged", zoomPost(zoomBody, "guess"), refused(401, "bad_signature")},
		{"zoom, markup", zoomPost(`{"event":"endpoint.url_validation","payload":{"plainToken":"\"}"}}`, testSecret), pass},
		{"zoom, event", zoomPost(`{"event":"meeting.started","payload":{"plainToken":"abc"}}`, testSecret), pass},
		{"discord interaction ping", discordPost(`{"application_id":"1","id":"2","token":"t","type":1,"version":1}`, 0), json(200, `{"type":1}`)},
		{"discord event ping", discordPost(`{"version":1,"application_id":"1234560123453231555","type":0}`, 0), json(204, "")},
		{"discord event", discordPost(`{"version":1,"application_id":"1","type":1,"event":{"type":"APPLICATION_AUTHORIZED"}}`, 0), pass},
		{"discord command", discordPost(`{"id":"3","type":2,"token":"t"}`, 0), pass},
		// Discord sends these on purpose.
		{"discord ping, forged", discordPost(`{"type":1}`, 1), refused(401, "bad_signature")},
		{"meta", metaGet("?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=" + verify), text("1158201444")},
		{"meta, escaped", metaGet("?hub.mode=subscribe&hub.challenge=a%2Bb&hub.verify_token=meaty%68amhock"), text("a+b")},
		{"meta, wrong token", metaGet("?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=ham"), refused(401, "bad_signature")},
		{"meta, no token", metaGet("?hub.mode=subscribe&hub.challenge=1158201444"), refused(401, "bad_signature")},
		{"meta, markup", metaGet("?hub.mode=subscribe&hub.challenge=%3Cb%3E&hub.verify_token=" + verify), refused(401, "bad_signature")},
		{"meta, other mode", metaGet("?hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=" + verify), refused(401, "bad_signature")},
		{"meta, GET without handshake", metaGet("?x=1"), refused(401, "missing_signature")},
	} {
		for mode, table := range tables {
			t.Run(fmt.Sprintf("%s/STORE=%v", tt.name, mode == ModeStore), func(t *testing.T) {
				t.Parallel()
				g := newGate(t, table)
				g.inbox.keeper = newFakeKeeper()
				got := g.ask(tt.h)
				if tt.want.pass {
					if got.pass != (mode == ModePass) || !got.pass && got.body != `{"status":"stored"}` {
						t.Errorf("answer %+v, want it to be taken for an event", got)
					}
					return
				}
				if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(answer{})); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
				if page, err := g.inbox.List(t.Context(), Filter{}, "", 10); err != nil || len(page.Records) != 0 {
					t.Errorf("inbox holds %+v, %v", page.Records, err)
				}
			})
		}
	}
}

// Without a verify token nobody is answered: an empty one would fit an empty parameter.
func TestHandshakeMetaWithoutToken(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{providerSource(t, "meta", HandshakeMeta, testSecret)}))
	if a := g.ask(metaGet("?hub.mode=subscribe&hub.challenge=1&hub.verify_token=")); a.status != 401 {
		t.Errorf("answer %+v", a)
	}
}

// Unsigned ones are answered once a second, and only where the source says so; what is refused takes no turn.
func TestHandshakeUnsigned(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{
			providerSource(t, "slack", HandshakeSlack, testSecret, func(s *Source) { s.UnsignedHandshake = true }),
			providerSource(t, "meta", HandshakeMeta, testSecret, func(s *Source) { s.HandshakeToken = []byte("tok") }),
		}))
		slack := func(body string) hook {
			return post("/hooks/slack", body, func(string) [][2]string { return nil })
		}
		good := slack(`{"type":"url_verification","challenge":"abc"}`)
		meta := metaGet("?hub.mode=subscribe&hub.challenge=abc&hub.verify_token=tok")
		for _, h := range []hook{
			slack(`{"type":"url_verification","challenge":"<b>"}`),
			slack(`{"type":"url_verification","challenge":"` + strings.Repeat("a", 64<<10) + `"}`),
			slack(`{"type":"url_verification","challenge":"a","pad":"` + strings.Repeat("a", 64<<10) + `"}`),
			slack(`{"type":"event_callback"}`),
			slackPost(`{"type":"url_verification","challenge":"abc"}`, "guess"), // signed, and wrong
			metaGet("?hub.mode=subscribe&hub.challenge=abc&hub.verify_token=x"),
		} {
			if a := g.ask(h); a.status != 401 {
				t.Errorf("answer to %s: %+v", h.body, a)
			}
		}
		for range 2 {
			for name, h := range map[string]hook{"slack": good, "meta": meta} {
				if a := g.ask(h); a.status != 200 || a.body != "abc" {
					t.Errorf("%s, first of the second: %+v", name, a)
				}
				if a := g.ask(h); a.status != 503 || a.body != `{"status":"busy"}` || a.headers["retry-after"] != "1" {
					t.Errorf("%s, second of the second: %+v", name, a)
				}
			}
			time.Sleep(time.Second)
		}
		// Signed ones are not held back.
		for range 3 {
			if a := g.ask(slackPost(`{"type":"url_verification","challenge":"abc"}`, testSecret)); a.status != 200 {
				t.Errorf("signed: %+v", a)
			}
		}
	})
}

// A source that only reports leaves the answer to the app, which has answered so far.
func TestHandshakeReported(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{providerSource(t, "slack", HandshakeSlack, testSecret, func(s *Source) { s.Enforce = EnforceReport })}))
	if a := g.ask(slackPost(`{"type":"url_verification","challenge":"abc"}`, testSecret)); !a.pass || len(a.headers) != 0 {
		t.Errorf("answer %+v", a)
	}
	if n := g.counter("sidehook_extauthz_reports_total", "source", "slack", "reason", "handshake"); n != 1 {
		t.Errorf("counted %v times", n)
	}
}

// Nothing that a sender chooses can make a challenge that is more than a short word.
func FuzzHarmless(f *testing.F) {
	for _, seed := range []string{"abc", "<script>", "a b", "é", "", "a\x00b", `{"a":1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if harmless(s) && (s == "" || len(s) > maxChallenge || strings.ContainsAny(s, "<>&\"'`\\{} \t\r\n\x00") || strings.ToValidUTF8(s, "") != s) {
			t.Errorf("%q would be sent back", s)
		}
	})
}
