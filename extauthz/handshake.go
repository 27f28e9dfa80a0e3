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
	case HandshakeMonday:
		return mondayHandshake(req)
	case HandshakeNotion:
		return notionHandshake(req)
	default:
		return decision{}, false
	}
}

// readHandshake reads a JSON object that holds mark, which every handshake of its kind does: events are not parsed.
func readHandshake(body []byte, mark string, into any) bool {
	return len(body) <= maxHandshakeBody && bytes.Contains(body, []byte(mark)) && json.Unmarshal(body, into) == nil
}

// onlyMember returns the text that is the one member of a JSON object, and its name is name; empty: it is something else.
func onlyMember(body []byte, name string) string {
	var members map[string]json.RawMessage
	var text string
	if !readHandshake(body, `"`+name+`"`, &members) || len(members) != 1 || json.Unmarshal(members[name], &text) != nil {
		return ""
	}
	return text
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
// so, and those of senders whose pages do not promise one on it: Okta, monday.com, Notion.
func (b *bound) unsignedTaken() bool {
	switch b.source.Handshake {
	case HandshakeOkta, HandshakeMonday, HandshakeNotion:
		return true
	default:
		return b.source.UnsignedHandshake
	}
}

// textAnswer copies body, which may be a view into the request.
func textAnswer(body string) decision {
	return decision{reason: ReasonHandshake, contentType: contentTypeText, body: strings.Clone(body), nosniff: true}
}

func jsonAnswer(body string) decision {
	return decision{reason: ReasonHandshake, contentType: contentTypeJSON, body: body, nosniff: true}
}
