package extauthz

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

// unsignedSources are sources whose challenges need no signature, or a header alone, with schemes like the senders'.
func unsignedSources(t testing.TB) *Sources {
	t.Helper()
	source := func(name string, handshake Handshake, secret string, spec signature.Spec, change ...func(*Source)) *Source {
		v, err := signature.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		preset := func(s *Source) { s.Handshake, s.RequireID = handshake, false }
		return sourceWith(t, name, v, []string{secret}, append([]func(*Source){preset}, change...)...)
	}
	hmac := func(header string, encoding signature.Encoding, prefix string) signature.Spec {
		return signature.Spec{Algorithm: signature.HMACSHA256, Signature: signature.SignatureSpec{
			ValueSpec: signature.ValueSpec{Header: header}, Encoding: encoding, Prefix: prefix,
		}}
	}
	token := signature.Spec{Algorithm: signature.Token, Signature: signature.SignatureSpec{ValueSpec: signature.ValueSpec{Header: "authorization"}}}
	return mustSources(t, []*Source{
		source("graph", HandshakeGraph, testSecret, token),
		source("dropbox", HandshakeDropbox, testSecret, hmac("x-dropbox-signature", signature.Hex, "")),
		source("asana", HandshakeAsana, testSecret, hmac("x-hook-signature", signature.Hex, "")),
		source("xero", HandshakeXero, testSecret, hmac("x-xero-signature", signature.Base64, "")),
		source("okta", HandshakeOkta, testSecret, token),
		source("twitter", HandshakeTwitter, consumerSecret, hmac("x-twitter-webhooks-signature", signature.Base64, "sha256=")),
		source("rotated", HandshakeTwitter, testSecret, hmac("x-twitter-webhooks-signature", signature.Base64, "sha256="), func(s *Source) {
			s.Keys[0].Until = time.Unix(1, 0)
			current, err := s.Verifier.ParseKey([]byte(consumerSecret))
			if err != nil {
				t.Fatal(err)
			}
			s.Keys = append(s.Keys, current)
		}),
		source("events", HandshakeCloudEvents, testSecret, token),
		source("monday", HandshakeMonday, testSecret, token),
		source("notion", HandshakeNotion, testSecret, hmac("x-notion-signature", signature.Hex, "sha256=")),
		source("trello", HandshakeHead, testSecret, hmac("x-trello-webhook", signature.Base64, "")),
		source("worldline", HandshakeWorldline, testSecret, hmac("x-gcs-signature", signature.Base64, "")),
		source("ebay", HandshakeEBay, testSecret, token, func(s *Source) {
			s.HandshakeToken, s.PublicURL = []byte("71745723-d031-455c-bfa5-f90d11b4f20a-verif"), "https://shop.example.com/"
		}),
		source("ebay-without", HandshakeEBay, testSecret, token, func(s *Source) { s.PublicURL = "https://shop.example.com" }),
	})
}

// The consumer secret of the example that X's developer advocate published, whose token and answer are below.
const consumerSecret = "z3ZX4v7mAAUGykl3EcmkqbartmuW8VFOOzCloLx9Q45P0hLrFu"

// bare is a request of a method, without signature and body.
func bare(method, target string, headers ...[2]string) hook {
	return hook{
		target: target, headers: headers,
		drop: []string{"webhook-id", "webhook-timestamp", "webhook-signature", "content-length", "x-envoy-auth-partial-body"},
		change: func(r *authv3.AttributeContext_HttpRequest) {
			r.Method, r.RawBody, r.Size = method, nil, 0
		},
	}
}

// unsignedPost is a request with a body that nobody signed.
func unsignedPost(target, body string) hook {
	return post(target, body, func(string) [][2]string { return nil })
}

func xeroPost(body, secret string) hook {
	return post("/hooks/xero", body, func(string) [][2]string {
		return [][2]string{{"x-xero-signature", base64.StdEncoding.EncodeToString(macOf(secret, body))}}
	})
}

// The exact answers that the providers want, in status, headers and body, and what must not be answered.
func TestHandshakeUnsignedAnswers(t *testing.T) {
	t.Parallel()
	table := unsignedSources(t)
	with := func(status int, contentType, body string, more ...string) answer {
		a := answer{status: status, body: body, headers: map[string]string{"content-type": contentType, "x-content-type-options": "nosniff"}}
		for i := 0; i < len(more); i += 2 {
			a.headers[more[i]] = more[i+1]
		}
		return a
	}
	text := func(body string, more ...string) answer { return with(200, "text/plain", body, more...) }
	json := func(body string) answer { return with(200, "application/json", body) }
	refused := func(code string) answer {
		return answer{status: 401, body: `{"status":"` + code + `"}`, headers: map[string]string{"content-type": "application/json"}}
	}
	missing := refused("missing_signature")
	const (
		graphToken = "Validation: Testing client application reachability for subscription Request-Id: 522a8e7e-096a-494c-aaf1-ac0dcfca45b7"
		itr        = `{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3r4Nd0mt3xt"}`
		asanaKey   = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81" // Asana, "Establish a webhook"
		crcToken   = "9b4507b3-9040-4669-9ca3-6b94edb50553"
		// printf CRCTOKEN | openssl dgst -sha256 -hmac CONSUMERSECRET -binary | base64
		crcWants = `{"response_token":"sha256=Cytd4Sq+NvEcV3MMrXxWJGJx5A+y/lXzzU2Maartkx8="}`
	)
	const (
		mondayBody = `{"challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}`        // monday.com, "Webhooks"
		notionBody = `{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}` // Notion, "Webhooks"
	)
	const (
		ebayCode = "a8628072-3d33-45ee-9004-bee86830a22d"
		// printf %s CODE TOKEN https://shop.example.com/hooks/ebay | sha256sum
		ebayWants = `{"challengeResponse":"4df80d839f3373f03fcd36c3e285e9831026fc1df9b30b2fbab4d55c104cf5d6"}`
	)
	origin := [2]string{"webhook-request-origin", "eventemitter.example.com"}
	consent := func(rate string) answer {
		return text("", "allow", "POST", "webhook-allowed-origin", "eventemitter.example.com", "webhook-allowed-rate", rate)
	}
	for _, tt := range []struct {
		name string
		h    hook
		want answer
	}{
		{"graph", bare("POST", "/hooks/graph?validationToken=Validation%3a+Testing+client+application+reachability+for+subscription+Request-Id%3a+522a8e7e-096a-494c-aaf1-ac0dcfca45b7"), text(graphToken)},
		{"graph, blanks escaped", bare("POST", "/hooks/graph?a=b&validationToken=Validation%3A%20Testing"), text("Validation: Testing")},
		{"graph, by GET", bare("GET", "/hooks/graph?validationToken=abc"), missing},
		{"graph, twice", bare("POST", "/hooks/graph?validationToken=abc&validationToken=abd"), missing},
		{"graph, markup", bare("POST", "/hooks/graph?validationToken=%3Cscript%3E"), missing},
		{"graph, blanks around", bare("POST", "/hooks/graph?validationToken=+a+"), missing},
		{"graph, a line break", bare("POST", "/hooks/graph?validationToken=a%0Ab"), missing},
		{"graph, too long", bare("POST", "/hooks/graph?validationToken="+strings.Repeat("a+", 128)+"a"), missing},
		{"graph, with a body", post("/hooks/graph?validationToken=abc", `{"value":[]}`, func(string) [][2]string { return nil }), missing},
		{"dropbox", bare("GET", "/hooks/dropbox?challenge=abc_-123"), text("abc_-123")},
		{"dropbox, by POST", bare("POST", "/hooks/dropbox?challenge=abc"), missing},
		{"dropbox, markup", bare("GET", "/hooks/dropbox?challenge=%3Cb%3E"), missing},
		{"dropbox, none", bare("GET", "/hooks/dropbox?challenge="), missing},
		{"asana", bare("POST", "/hooks/asana", [2]string{"x-hook-secret", asanaKey}), text("", "x-hook-secret", asanaKey)},
		{"asana, two secrets", bare("POST", "/hooks/asana", [2]string{"x-hook-secret", "abc"}, [2]string{"x-hook-secret", "abd"}), missing},
		{"asana, a header within", bare("POST", "/hooks/asana", [2]string{"x-hook-secret", "abc set-cookie: a"}), missing},
		{"asana, signed wrongly", post("/hooks/asana", `{"events":[]}`, func(string) [][2]string {
			return [][2]string{{"x-hook-secret", "abc"}, {"x-hook-signature", strings.Repeat("0", 64)}}
		}), refused("bad_signature")},
		{"xero", xeroPost(itr, testSecret), text("")},
		{"xero, forged", xeroPost(itr, "guess"), answer{status: 401, headers: map[string]string{"content-type": "text/plain"}}},
		{"xero, events", xeroPost(`{"events":[{"resourceId":"1"}]}`, testSecret), answer{pass: true}},
		{"xero, no array", xeroPost(`{"events":null}`, testSecret), answer{pass: true}},
		{"okta", bare("GET", "/hooks/okta", [2]string{"x-okta-verification-challenge", "my_verification-challenge"}), json(`{"verification":"my_verification-challenge"}`)},
		{"okta, authorised", bare("GET", "/hooks/okta", [2]string{"authorization", testSecret}, [2]string{"x-okta-verification-challenge", "abc"}), json(`{"verification":"abc"}`)},
		{"okta, wrongly authorised", bare("GET", "/hooks/okta", [2]string{"authorization", "guess"}, [2]string{"x-okta-verification-challenge", "abc"}), refused("bad_signature")},
		{"okta, by POST", bare("POST", "/hooks/okta", [2]string{"x-okta-verification-challenge", "abc"}), missing},
		{"okta, ends the string", bare("GET", "/hooks/okta", [2]string{"x-okta-verification-challenge", `a","b":"c`}), missing},
		{"okta, none", bare("GET", "/hooks/okta"), missing},
		{"twitter", bare("GET", "/hooks/twitter?crc_token="+crcToken+"&nonce=abc"), json(crcWants)},
		{"twitter, after a rotation", bare("GET", "/hooks/rotated?crc_token="+crcToken), json(crcWants)},
		// The answer would sign an event for whoever asks.
		{"twitter, an event for a token", bare("GET", "/hooks/twitter?crc_token=%7B%22for_user_id%22%3A%221%22%7D"), missing},
		{"twitter, an array", bare("GET", "/hooks/twitter?crc_token=%5B1%5D"), missing},
		{"twitter, a form", bare("GET", "/hooks/twitter?crc_token=a%3Db"), missing},
		{"twitter, nothing", bare("GET", "/hooks/twitter?crc_token="), missing},
		{"twitter, padding alone", bare("GET", "/hooks/twitter?crc_token=%3D"), missing},
		{"cloudevents", bare("OPTIONS", "/hooks/events", origin), consent("*")},
		{"cloudevents, at a rate", bare("OPTIONS", "/hooks/events", origin, [2]string{"webhook-request-rate", "120"}), consent("120")},
		{"cloudevents, a callback", bare("OPTIONS", "/hooks/events", origin, [2]string{"webhook-request-callback", "https://example.com/confirm?id=12345"}), consent("*")},
		{"cloudevents, rate 0", bare("OPTIONS", "/hooks/events", origin, [2]string{"webhook-request-rate", "0"}), missing},
		{"cloudevents, rate of words", bare("OPTIONS", "/hooks/events", origin, [2]string{"webhook-request-rate", "1 a"}), missing},
		{"cloudevents, two rates", bare("OPTIONS", "/hooks/events", origin, [2]string{"webhook-request-rate", "1"}, [2]string{"webhook-request-rate", "2"}), missing},
		{"cloudevents, no origin", bare("OPTIONS", "/hooks/events"), missing},
		{"cloudevents, an origin that is none", bare("OPTIONS", "/hooks/events", [2]string{"webhook-request-origin", "a b"}), missing},
		{"cloudevents, by GET", bare("GET", "/hooks/events", origin), missing},
		{"monday", unsignedPost("/hooks/monday", mondayBody), json(mondayBody)},
		{"monday, with its token", post("/hooks/monday", mondayBody, func(string) [][2]string { return [][2]string{{"authorization", testSecret}} }), json(mondayBody)},
		{"monday, with blanks", unsignedPost("/hooks/monday", `{ "challenge" : "abc" }`+"\n"), json(`{"challenge":"abc"}`)},
		{"monday, with another's token", post("/hooks/monday", mondayBody, func(string) [][2]string { return [][2]string{{"authorization", "guess"}} }), refused("bad_signature")},
		{"monday, an event beside it", unsignedPost("/hooks/monday", `{"challenge":"abc","event":{}}`), missing},
		{"monday, no text", unsignedPost("/hooks/monday", `{"challenge":1}`), missing},
		{"monday, an event", unsignedPost("/hooks/monday", `{"event":{"challenge":"abc"}}`), missing},
		{"monday, markup", unsignedPost("/hooks/monday", `{"challenge":"<script>"}`), missing},
		{"monday, ends the string", unsignedPost("/hooks/monday", `{"challenge":"a\",\"b\":\"c"}`), missing},
		{"monday, 64 KiB", unsignedPost("/hooks/monday", `{"challenge":"`+strings.Repeat("a", 64<<10)+`"}`), missing},
		{"notion", unsignedPost("/hooks/notion", notionBody), text("")},
		{"notion, signed", post("/hooks/notion", notionBody, func(string) [][2]string {
			return [][2]string{{"x-notion-signature", "sha256=" + hex.EncodeToString(macOf(testSecret, notionBody))}}
		}), text("")},
		{"notion, forged", post("/hooks/notion", notionBody, func(string) [][2]string {
			return [][2]string{{"x-notion-signature", "sha256=" + hex.EncodeToString(macOf("guess", notionBody))}}
		}), refused("bad_signature")},
		{"notion, an event", unsignedPost("/hooks/notion", `{"id":"1","verification_token":"secret_a"}`), missing},
		{"notion, no token", unsignedPost("/hooks/notion", `{"verification_token":""}`), missing},
		{"trello", bare("HEAD", "/hooks/trello"), text("")},
		{"trello, by GET", bare("GET", "/hooks/trello"), missing},
		{"worldline", bare("GET", "/hooks/worldline", [2]string{"x-gcs-webhooks-endpoint-verification", "e8c4f1d2-1b7a"}), text("e8c4f1d2-1b7a")},
		{"worldline, by POST", bare("POST", "/hooks/worldline", [2]string{"x-gcs-webhooks-endpoint-verification", "a"}), missing},
		{"worldline, two", bare("GET", "/hooks/worldline", [2]string{"x-gcs-webhooks-endpoint-verification", "a"}, [2]string{"x-gcs-webhooks-endpoint-verification", "b"}), missing},
		{"worldline, markup", bare("GET", "/hooks/worldline", [2]string{"x-gcs-webhooks-endpoint-verification", "<b>"}), missing},
		{"worldline, none", bare("GET", "/hooks/worldline"), missing},
		{"ebay", bare("GET", "/hooks/ebay?challenge_code="+ebayCode), json(ebayWants)},
		{"ebay, by POST", bare("POST", "/hooks/ebay?challenge_code="+ebayCode), missing},
		{"ebay, twice", bare("GET", "/hooks/ebay?challenge_code=a&challenge_code=b"), missing},
		{"ebay, markup", bare("GET", "/hooks/ebay?challenge_code=%3Cb%3E"), missing},
		{"ebay, none", bare("GET", "/hooks/ebay"), missing},
		{"ebay, without its token", bare("GET", "/hooks/ebay-without?challenge_code="+ebayCode), missing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, table)
			got := g.ask(tt.h)
			if tt.want.pass {
				if !got.pass {
					t.Errorf("answer %+v, want a pass", got)
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

// One a second for each source; those that prove the secret are not held back.
func TestHandshakeUnsignedPace(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, unsignedSources(t))
		okta := [2]string{"x-okta-verification-challenge", "abc"}
		for range 2 {
			for name, h := range map[string]hook{
				"graph":   bare(http.MethodPost, "/hooks/graph?validationToken=abc"),
				"dropbox": bare(http.MethodGet, "/hooks/dropbox?challenge=abc"),
				"asana":   bare(http.MethodPost, "/hooks/asana", [2]string{"x-hook-secret", "abc"}),
				"okta":    bare(http.MethodGet, "/hooks/okta", okta),
				"twitter": bare(http.MethodGet, "/hooks/twitter?crc_token=abc"),
				"events":  bare(http.MethodOptions, "/hooks/events", [2]string{"webhook-request-origin", "example.com"}),
				"monday":  unsignedPost("/hooks/monday", `{"challenge":"abc"}`),
				"notion":  unsignedPost("/hooks/notion", `{"verification_token":"abc"}`),
				"trello":  bare(http.MethodHead, "/hooks/trello"),
				"ebay":    bare(http.MethodGet, "/hooks/ebay?challenge_code=abc"),

				"worldline": bare(http.MethodGet, "/hooks/worldline", [2]string{"x-gcs-webhooks-endpoint-verification", "abc"}),
			} {
				if a := g.ask(h); a.status != 200 {
					t.Errorf("%s, first of the second: %+v", name, a)
				}
				if a := g.ask(h); a.status != 503 || a.headers["retry-after"] != "1" || len(a.headers) != 2 {
					t.Errorf("%s, second of the second: %+v", name, a)
				}
			}
			time.Sleep(time.Second)
		}
		for range 3 {
			if a := g.ask(bare(http.MethodGet, "/hooks/okta", okta, [2]string{"authorization", testSecret})); a.status != 200 {
				t.Errorf("authorised: %+v", a)
			}
		}
	})
}

// Whatever a token of X's check is, its answer signs no JSON object or array: those are what X sends.
func FuzzBase64Text(f *testing.F) {
	for _, seed := range []string{"abc", "a=b", "=", `{"a":1}`, "[1]", " ", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if isBase64Text(s) && (len(s) > maxChallenge || strings.ContainsAny(s, "{}[]\"\\ \t\r\n&") || strings.ToValidUTF8(s, "") != s || strings.Contains(strings.TrimRight(s, "="), "=")) {
			t.Errorf("%q would be signed", s)
		}
	})
}
