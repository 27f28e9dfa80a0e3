package egress

import (
	"crypto/sha256"
	"encoding/binary"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

const (
	maxIDBytes          = 256
	maxEventTypeBytes   = 256
	maxTenantBytes      = 128
	maxContentTypeBytes = 256
)

// timestampFormat of the body sent: RFC 3339, UTC, milliseconds.
const timestampFormat = "2006-01-02T15:04:05.000Z"

// form is how an event was posted. It is part of the event's content: the same bytes in another form are another event.
// The values are on disk in hashes and never change.
type form byte

const (
	formJSON       form = 1
	formRaw        form = 2
	formBinary     form = 3
	formStructured form = 4
)

// post is what the app said, read and checked, in whatever form it came.
type post struct {
	form              form
	id                string // "": the outbox makes one
	eventType, tenant string
	endpoint          string // "": all that want the type
	byPath            bool   // endpoint stands in the path, and its tenant is the event's
	contentType       string
	headers           []signature.Field
	data              []byte // of a JSON event its data, which is copied; else the body, which is kept
}

// event makes the event that is stored. It is accepted at now.
func (p *post) event(now time.Time) *Event {
	now = now.UTC().Truncate(time.Millisecond)
	e := &Event{ID: p.id, Tenant: p.tenant, Type: p.eventType, ContentType: p.contentType, Headers: p.headers,
		Body: p.data, Content: p.content(), Accepted: now}
	if p.form == formJSON {
		const around = len(`{"type":"","timestamp":"","data":}`) + len(timestampFormat)
		body := make([]byte, 0, around+len(p.eventType)+len(p.data))
		body = append(body, `{"type":"`...)
		body = append(body, p.eventType...) // its characters stand for themselves in JSON, see ValidEventType
		body = append(body, `","timestamp":"`...)
		body = now.AppendFormat(body, timestampFormat)
		body = append(body, `","data":`...)
		body = append(body, p.data...)
		e.Body = append(body, '}')
	}
	return e
}

// content hashes all that the app said but the id. Each part is preceded by its length, so that no two posts run into
// one.
func (p *post) content() (sum [sha256.Size]byte) {
	h := sha256.New()
	head := make([]byte, 0, 512)
	part := func(s string) {
		head = binary.AppendUvarint(head, uint64(len(s)))
		head = append(head, s...)
	}
	head = append(head, byte(p.form))
	part(p.eventType)
	part(p.endpoint)
	part(p.tenant)
	part(p.contentType)
	head = binary.AppendUvarint(head, uint64(len(p.headers)))
	for _, f := range p.headers {
		part(f.Name)
		part(f.Value)
	}
	h.Write(head)
	h.Write(p.data) // the last part: what is left
	h.Sum(sum[:0])
	return sum
}

// identify settles the event's id from where it may stand: in the body, in Idempotency-Key, or, for a raw post, in
// Webhook-Id. In more than one of these it has to be the same.
func (p *post) identify(h http.Header, field string) *problem {
	key, refusal := header(h, "Idempotency-Key")
	if refusal != nil {
		return refusal
	}
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1] // as draft-ietf-httpapi-idempotency-key-header writes it
	}
	switch {
	case key == "":
	case p.id == "":
		p.id, field = key, "Idempotency-Key"
	case p.id != key:
		return newProblem(problemInvalidEvent, field+" and Idempotency-Key differ: send one of them")
	}
	if p.id != "" && !validEventID(p.id) {
		return newProblem(problemInvalidEvent, field+" is 1 to 256 printable ASCII characters without blank, comma and full stop")
	}
	return nil
}

// check judges type and tenant.
func (p *post) check(typeField string) *problem {
	if !ValidEventType(p.eventType) {
		return newProblem(problemInvalidEvent, typeField+` is 1 to 256 printable ASCII characters such as invoice.paid, without blank, comma, `+
			`quotation mark, backslash and *, and nothing is empty between its full stops`)
	}
	if p.tenant != "" && !ValidTenant(p.tenant) {
		return newProblem(problemInvalidEvent, "tenant is 1 to 128 of A-Z, a-z, 0-9, full stop, _ and -")
	}
	return nil
}

// validEventID reports whether s may be an event's id: a receiver signs id.timestamp.body, hence no full stop; ids are
// listed, hence no comma.
func validEventID(s string) bool {
	if s == "" || len(s) > maxIDBytes {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == ',' || c == '.' {
			return false
		}
	}
	return true
}

// ValidEventType reports whether s may be the type of an event: 1 to 256 printable ASCII characters in segments between
// full stops, none of them empty. Standard Webhooks recommends letters, digits and _ in the segments; CloudEvents and
// what others send has :, / and more, so all is taken but what means something elsewhere: blank, comma, quotation mark,
// backslash, and the * of patterns.
func ValidEventType(s string) bool {
	if s == "" || len(s) > maxEventTypeBytes {
		return false
	}
	last := byte('.')
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ' || c > '~' || c == ',' || c == '"' || c == '\\' || c == '*':
			return false
		case c == '.' && last == '.':
			return false
		default:
			last = c
		}
	}
	return last != '.'
}

// ValidTenant reports whether s may be the name of a tenant: 1 to 128 of A-Z, a-z, 0-9, full stop, _ and -.
func ValidTenant(s string) bool {
	if s == "" || len(s) > maxTenantBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// header returns the value of a header that may stand once, "" where it does not.
func header(h http.Header, name string) (string, *problem) {
	switch values := h[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", newProblem(problemInvalidEvent, "the header "+name+" stands twice")
	}
}

// mediaType returns the type and subtype of a content type in lower case, and whether its text is UTF-8: no charset is
// named, or that one.
func mediaType(contentType string) (name string, utf8 bool) {
	switch contentType { // as nearly all clients write it
	case typeJSON, typeNDJSON:
		return contentType, true
	}
	name, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", false
	}
	charset := parameters["charset"]
	return name, charset == "" || strings.EqualFold(charset, "utf-8")
}
