package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
)

// signer signs one message after another by the rules of Standard Webhooks. It is for one goroutine.
type signer struct {
	mac  hash.Hash
	body []byte
}

func newSigner() *signer { return &signer{mac: hmac.New(sha256.New, hookKey), body: hookBody()} }

// signed is a message's id, time and signature as their headers hold them.
type signed struct{ id, seconds, signature string }

// sign signs the body under a fresh id at now.
func (s *signer) sign(now time.Time) signed {
	m := signed{id: freshID(), seconds: strconv.FormatInt(now.Unix(), 10)}
	s.mac.Reset()
	s.mac.Write([]byte(m.id + "." + m.seconds + "."))
	s.mac.Write(s.body)
	m.signature = "v1," + base64.StdEncoding.EncodeToString(s.mac.Sum(nil))
	return m
}

// checkRequest is what Envoy asks about such a message, in the shape of our Envoy configuration: raw headers and a
// body in bytes.
func (s *signer) checkRequest(now time.Time) *auth.CheckRequest {
	m := s.sign(now)
	headers := []*core.HeaderValue{
		raw(":authority", "127.0.0.1"), raw(":method", "POST"), raw(":path", hookPath), raw(":scheme", "http"),
		raw("content-type", "application/json"), raw("content-length", strconv.Itoa(len(s.body))),
		raw("webhook-id", m.id), raw("webhook-timestamp", m.seconds), raw("webhook-signature", m.signature),
		raw("x-envoy-auth-partial-body", "false"),
	}
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
			Id: m.id, Method: "POST", Path: hookPath, Host: "127.0.0.1", Scheme: "http", Protocol: "HTTP/1.1",
			Size: int64(len(s.body)), RawBody: s.body, HeaderMap: &core.HeaderMap{Headers: headers},
		}},
	}}
}

func raw(name, value string) *core.HeaderValue {
	return &core.HeaderValue{Key: name, RawValue: []byte(value)}
}
