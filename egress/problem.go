package egress

import (
	"net/http"
	"strconv"
	"unicode/utf8"
)

// problemCode is why the intake took an event not. The zero value is invalid. Its names are part of the contract with
// the app and labels of metrics.
type problemCode uint8

const (
	_ problemCode = iota
	problemInvalidJSON
	problemDuplicateKey
	problemUnknownField
	problemInvalidEvent
	problemIncompleteBody
	problemUnauthorized
	problemForwarded
	problemNotFound
	problemUnknownEndpoint
	problemMethod
	problemConflict
	problemTooLarge
	problemMediaType
	problemTenantMismatch
	problemBusy
	problemStoreFull
	problemUnavailable
	problemCodes // their number
)

// problemType begins the type of each problem.
const problemType = "urn:sidehook:problem:"

// How long an app is asked to wait, in seconds.
const (
	retryBusy        = 1  // bodies in flight are gone in milliseconds
	retryUnavailable = 5  // as long as a short stall of a disk
	retryFull        = 30 // room comes from deliveries and the purge, or from a person
)

// problems is the one table from a code to what the app sees. A status that is 0 is said where the problem is met.
var problems = [problemCodes]struct {
	name, title string
	status      int
	retryAfter  int // seconds, 0: not at all, or when something was changed
}{
	problemInvalidJSON:     {"invalid_json", "The body is not strict JSON", http.StatusBadRequest, 0},
	problemDuplicateKey:    {"duplicate_key", "A field stands twice", http.StatusBadRequest, 0},
	problemUnknownField:    {"unknown_field", "An event has no such field", http.StatusBadRequest, 0},
	problemInvalidEvent:    {"invalid_event", "The event breaks a rule", http.StatusBadRequest, 0},
	problemIncompleteBody:  {"incomplete_body", "The body ended early", http.StatusBadRequest, 0},
	problemUnauthorized:    {"unauthorized", "A bearer token is required", http.StatusUnauthorized, 0},
	problemForwarded:       {"forwarded_request", "The request does not come from the app itself", http.StatusForbidden, 0},
	problemNotFound:        {"not_found", "There is nothing here", http.StatusNotFound, 0},
	problemUnknownEndpoint: {"unknown_endpoint", "There is no such endpoint", http.StatusUnprocessableEntity, 0},
	problemMethod:          {"method_not_allowed", "Events are posted", http.StatusMethodNotAllowed, 0},
	problemConflict:        {"id_conflict", "Another event has this id", http.StatusConflict, 0},
	problemTooLarge:        {"too_large", "The event is too large", http.StatusRequestEntityTooLarge, 0},
	problemMediaType:       {"unsupported_media_type", "The content type is not taken here", http.StatusUnsupportedMediaType, 0},
	problemTenantMismatch:  {"tenant_mismatch", "The endpoint is of another tenant", http.StatusUnprocessableEntity, 0},
	problemBusy:            {"busy", "Too many bytes are in flight", http.StatusServiceUnavailable, retryBusy},
	problemStoreFull:       {"store_full", "There is no room for the event", http.StatusServiceUnavailable, retryFull},
	problemUnavailable:     {"unavailable", "The event could not be stored", http.StatusServiceUnavailable, retryUnavailable},
}

// problem is a refusal by the intake, nil for none. It holds nothing that the app may not see.
type problem struct {
	code   problemCode
	detail string // what exactly, and what to do; "": the title says it
	status int    // in place of the table's; 0: the table's
}

func newProblem(code problemCode, detail string) *problem {
	return &problem{code: code, detail: detail}
}

// statusCode returns the HTTP status.
func (p *problem) statusCode() int {
	if p.status != 0 {
		return p.status
	}
	return problems[p.code].status
}

// appendTo appends p as an object of RFC 9457 to dst. Such an object has a status, so it is also a whole line of the
// answer to NDJSON.
func (p *problem) appendTo(dst []byte) []byte {
	row := &problems[p.code]
	dst = append(dst, `{"type":"`+problemType...)
	dst = append(dst, row.name...)
	dst = append(dst, `","title":"`...)
	dst = append(dst, row.title...)
	dst = append(dst, `","status":`...)
	dst = strconv.AppendInt(dst, int64(p.statusCode()), 10)
	if p.detail != "" {
		dst = append(dst, `,"detail":`...)
		dst = appendJSONString(dst, p.detail)
	}
	return append(dst, '}')
}

// write answers with p.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	switch p.code {
	case problemUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="sidehook"`)
	case problemMethod:
		h.Set("Allow", http.MethodPost)
	}
	if after := problems[p.code].retryAfter; after > 0 {
		h.Set("Retry-After", strconv.Itoa(after))
	}
	w.WriteHeader(p.statusCode())
	_, _ = w.Write(append(p.appendTo(nil), '\n')) // the app has gone; there is nobody to tell
}

const hexDigits = "0123456789abcdef"

// appendJSONString appends s to dst as a JSON string.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c < ' ':
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
			i++
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r) // U+FFFD for what is no UTF-8
			i += n
		}
	}
	return append(dst, '"')
}
