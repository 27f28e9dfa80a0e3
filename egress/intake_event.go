package egress

import (
	"net/http"
	"strconv"
	"strings"
)

// Content types that /v1/events takes.
const (
	typeJSON       = "application/json"
	typeNDJSON     = "application/x-ndjson"
	typeCloudEvent = "application/cloudevents+json"
)

// mediaTypeDetail says what to do about 415.
const mediaTypeDetail = "post an event as " + typeJSON + ", events as " + typeNDJSON + " in UTF-8, or a CloudEvent as " + typeCloudEvent +
	" or with ce- headers; bytes of any type go to /v1/endpoints/{id}/events"

// takeEvents takes what is posted to /v1/events, in the form that its content type names.
func (in *Intake) takeEvents(w http.ResponseWriter, r *http.Request) {
	contentType, p := header(r.Header, "Content-Type")
	if p != nil {
		in.refuse(w, p)
		return
	}
	name, utf8 := mediaType(contentType)
	switch {
	case name == typeCloudEvent && utf8:
		in.takeStructured(w, r, contentType)
	case strings.HasPrefix(name, "application/cloudevents"):
		in.refuse(w, newProblem(problemMediaType, mediaTypeDetail)) // another format of theirs, or a batch
	case isCloudEvent(r.Header):
		in.takeBinary(w, r, "")
	case name == typeJSON && utf8:
		in.takeJSON(w, r)
	case name == typeNDJSON && utf8:
		in.takeLines(w, r)
	default:
		in.refuse(w, newProblem(problemMediaType, mediaTypeDetail))
	}
}

// takeJSON takes one event as JSON.
func (in *Intake) takeJSON(w http.ResponseWriter, r *http.Request) {
	buf := takeBuffer()
	defer giveBuffer(buf)
	body, done, refusal := in.read(w, r, *buf)
	if refusal != nil {
		in.refuse(w, refusal)
		return
	}
	defer done()
	*buf = body
	p, refusal := readEnvelope(body)
	if refusal == nil {
		refusal = p.identify(r.Header, "id")
	}
	var receipt Receipt
	if refusal == nil {
		receipt, refusal = in.accept(r.Context(), &p)
	}
	in.answer(w, &receipt, refusal)
}

// takeRaw takes a body of any content type for one endpoint.
func (in *Intake) takeRaw(w http.ResponseWriter, r *http.Request, endpoint string) {
	p, refusal := rawPost(r.Header, endpoint)
	if refusal != nil {
		in.refuse(w, refusal)
		return
	}
	in.takeBody(w, r, &p)
}

// takeBody reads the body of a post that is otherwise known, keeps it, and answers.
func (in *Intake) takeBody(w http.ResponseWriter, r *http.Request, p *post) {
	body, done, refusal := in.read(w, r, nil)
	if refusal != nil {
		in.refuse(w, refusal)
		return
	}
	defer done()
	p.data = body
	receipt, refusal := in.accept(r.Context(), p)
	in.answer(w, &receipt, refusal)
}

// rawPost reads the headers of a raw post. It needs no type: it goes to its endpoint whatever that wants.
func rawPost(h http.Header, endpoint string) (post, *problem) {
	p := post{form: formRaw, endpoint: endpoint, byPath: true, contentType: "application/octet-stream"}
	contentType, refusal := header(h, "Content-Type")
	if refusal != nil {
		return p, refusal
	}
	if len(contentType) > maxContentTypeBytes {
		return p, newProblem(problemInvalidEvent, "Content-Type has more than 256 bytes")
	}
	if contentType != "" {
		p.contentType = contentType
	}
	if p.id, refusal = header(h, "Webhook-Id"); refusal != nil {
		return p, refusal
	}
	if p.eventType, refusal = header(h, "Webhook-Type"); refusal != nil {
		return p, refusal
	}
	if p.eventType != "" {
		if refusal = p.check("Webhook-Type"); refusal != nil {
			return p, refusal
		}
	}
	return p, p.identify(h, "Webhook-Id")
}

// envelopeFields are the fields of an event as JSON; the index of each is its bit.
var envelopeFields = [...]string{"id", "type", "tenant", "endpoint", "data"}

const (
	fieldID = iota
	fieldType
	fieldTenant
	fieldEndpoint
	fieldData
)

// readEnvelope reads {"id"?, "type", "tenant"?, "endpoint"?, "data"}; id, tenant and endpoint may also be null, as many
// libraries write what is absent. The post's data is a part of b.
func readEnvelope(b []byte) (p post, refusal *problem) {
	p.form, p.contentType = formJSON, typeJSON
	t := openJSON(b)
	seen := 0
	for first := t.object(); t.fault == ""; first = false {
		name, value, ok := t.member(first)
		if !ok {
			break
		}
		field, refusal := envelopeField(name)
		if refusal != nil {
			return p, refusal
		}
		if seen&(1<<field) != 0 {
			return p, newProblem(problemDuplicateKey, envelopeFields[field]+" stands twice")
		}
		seen |= 1 << field
		if field == fieldData {
			p.data = value
			continue
		}
		if field != fieldType && isNull(value) {
			continue
		}
		text, ok := unquote(value)
		if !ok || text == "" {
			return p, newProblem(problemInvalidEvent, envelopeFields[field]+" is a string that is not empty")
		}
		switch field {
		case fieldID:
			p.id = text
		case fieldType:
			p.eventType = text
		case fieldTenant:
			p.tenant = text
		case fieldEndpoint:
			p.endpoint = text
		}
	}
	if !t.end() {
		return p, jsonProblem(&t)
	}
	switch {
	case seen&(1<<fieldType) == 0:
		return p, newProblem(problemInvalidEvent, "type is missing")
	case seen&(1<<fieldData) == 0:
		return p, newProblem(problemInvalidEvent, "data is missing: write null for none")
	}
	return p, p.check("type")
}

// envelopeField returns the number of a field by its name as it stands, quotes included.
func envelopeField(name []byte) (int, *problem) {
	text, _ := unquote(name)
	for i, known := range envelopeFields {
		if text == known {
			return i, nil
		}
	}
	return 0, newProblem(problemUnknownField, quoted(text)+": an event has id, type, tenant, endpoint and data")
}

// jsonProblem says what breaks a text, and where.
func jsonProblem(t *jsonText) *problem {
	return newProblem(problemInvalidJSON, t.fault+", at byte "+strconv.Itoa(t.at+1))
}
