package extauthz

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/sidehook/sidehook/internal/signature"
)

const (
	// maxHandshakeBody is the longest body, and query, that is looked at for a handshake: all known are below 1 KiB.
	maxHandshakeBody = 16 << 10
	// maxChallenge is the longest challenge that is sent back.
	maxChallenge = 256
)

// handshake answers a handshake whose signature was verified with key, or, with a nil key, one that came without and
// that the source takes so: see unsignedTaken. ok is false where the request is none.
func (b *bound) handshake(req *request, key *signature.Key) (d decision, ok bool) {
	if b.source.Handshake == HandshakeNone || len(req.body) > maxHandshakeBody {
		return decision{}, false
	}
	switch b.source.Handshake {
	case HandshakeSlack:
		return slackHandshake(req)
	case HandshakeTwitch:
		return twitchHandshake(req)
	case HandshakeZoom:
		return zoomHandshake(req, key)
	case HandshakeDiscord:
		return discordHandshake(req)
	case HandshakeXero:
		return xeroHandshake(req)
	case HandshakeOkta:
		return oktaHandshake(req)
	default:
		return decision{}, false
	}
}

// readHandshake reads a JSON object that holds mark, which every handshake of its kind does: events are not parsed.
func readHandshake(body []byte, mark string, into any) bool {
	return len(body) <= maxHandshakeBody && bytes.Contains(body, []byte(mark)) && json.Unmarshal(body, into) == nil
}

// harmless reports whether a challenge may be sent back: short, and of characters that no reader takes for markup,
// whatever it makes of the content type.
func harmless(challenge string) bool {
	if challenge == "" || len(challenge) > maxChallenge {
		return false
	}
	for i := range len(challenge) {
		if c := challenge[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("<>&\"'`\\{}", c) >= 0 {
			return false
		}
	}
	return true
}

// harmlessWords is harmless for words with single blanks between them, as Microsoft Graph's tokens are.
func harmlessWords(challenge string) bool {
	if len(challenge) > maxChallenge {
		return false
	}
	for word := range strings.SplitSeq(challenge, " ") {
		if !harmless(word) {
			return false
		}
	}
	return true
}

// unsignedTaken reports whether a handshake that came without a signature is answered: Slack's where the source says
// so, and Okta's, whose page does not promise its header on the challenge.
func (b *bound) unsignedTaken() bool {
	return b.source.UnsignedHandshake || b.source.Handshake == HandshakeOkta
}

// textAnswer copies body, which may be a view into the request.
func textAnswer(body string) decision {
	return decision{reason: ReasonHandshake, contentType: contentTypeText, body: strings.Clone(body), nosniff: true}
}

func jsonAnswer(body string) decision {
	return decision{reason: ReasonHandshake, contentType: contentTypeJSON, body: body, nosniff: true}
}
