package egress

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/sidehook/sidehook/internal/signature"
)

const (
	// cePrefix begins the headers of a CloudEvent in binary mode, as net/http writes it.
	cePrefix = "Ce-"
	// ceIDPrefix begins the ids that stand for source and id of a CloudEvent.
	ceIDPrefix = "ce_"
	// ceIDBytes of the hash are enough that nobody finds two that are the same.
	ceIDBytes = 20
	// maxCEHeaderBytes bounds the headers that are kept with an event and sent on.
	maxCEHeaderBytes = 8 << 10
)

// isCloudEvent reports whether a request holds a CloudEvent in binary mode.
func isCloudEvent(h http.Header) bool { return h[cePrefix+"Specversion"] != nil }

// takeBinary takes a CloudEvent in binary mode (CloudEvents HTTP protocol binding 1.0, section 3.1): its attributes are
// headers and sent on, its data is the body. endpoint is that of the raw path, else "".
func (in *Intake) takeBinary(w http.ResponseWriter, r *http.Request, endpoint string) {
	p, refusal := binaryPost(r.Header, endpoint)
	if refusal != nil {
		in.refuse(w, refusal)
		return
	}
	in.takeBody(w, r, &p)
}

// takeStructured takes a CloudEvent in structured mode (section 3.2): the body is the event and sent on as it is.
func (in *Intake) takeStructured(w http.ResponseWriter, r *http.Request, contentType string) {
	body, done, refusal := in.read(w, r, nil)
	if refusal != nil {
		in.refuse(w, refusal)
		return
	}
	defer done()
	p, refusal := structuredPost(body, contentType)
	if refusal == nil {
		refusal = noKey(r.Header)
	}
	var receipt Receipt
	if refusal == nil {
		receipt, refusal = in.accept(r.Context(), &p)
	}
	in.answer(w, &receipt, refusal)
}

// noKey refuses an Idempotency-Key: a CloudEvent has its identity.
func noKey(h http.Header) *problem {
	if h["Idempotency-Key"] == nil {
		return nil
	}
	return newProblem(problemInvalidEvent, "a CloudEvent is known by its source and id: leave Idempotency-Key out")
}

// binaryPost reads the headers of a CloudEvent in binary mode.
func binaryPost(h http.Header, endpoint string) (post, *problem) {
	p := post{form: formBinary, endpoint: endpoint, byPath: endpoint != ""}
	if refusal := noKey(h); refusal != nil {
		return p, refusal
	}
	var refusal *problem
	if p.contentType, refusal = header(h, "Content-Type"); refusal != nil {
		return p, refusal
	}
	if len(p.contentType) > maxContentTypeBytes {
		return p, newProblem(problemInvalidEvent, "Content-Type has more than 256 bytes")
	}
	var attributes ceAttributes
	size := 0
	for name := range h {
		short, ok := strings.CutPrefix(name, cePrefix)
		if !ok {
			continue
		}
		value, refusal := header(h, name)
		if refusal != nil {
			return p, refusal
		}
		short = strings.ToLower(short)
		if refusal := attributes.add(short, percentDecoded(value)); refusal != nil {
			return p, refusal
		}
		p.headers = append(p.headers, signature.Field{Name: "ce-" + short, Value: value})
		size += len(name) + len(value)
	}
	if size > maxCEHeaderBytes {
		return p, newProblem(problemTooLarge, "the ce- headers have more than "+strconv.Itoa(maxCEHeaderBytes)+" bytes")
	}
	slices.SortFunc(p.headers, func(a, b signature.Field) int { return strings.Compare(a.Name, b.Name) })
	if attributes["datacontenttype"] != nil {
		return p, newProblem(problemInvalidEvent, "datacontenttype stands in Content-Type in binary mode")
	}
	if p.contentType != "" {
		attributes["datacontenttype"] = p.contentType
	}
	return p, attributes.identify(&p)
}

// percentDecoded reads a header's value as section 3.1.3.2 has it written. Older producers wrote it as it is, so what is
// no percent-encoding stands for itself.
func percentDecoded(value string) string {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1]
	}
	if decoded, err := url.PathUnescape(value); err == nil {
		return decoded
	}
	return value
}

// structuredPost reads a CloudEvent in the JSON event format. body is kept.
func structuredPost(body []byte, contentType string) (post, *problem) {
	p := post{form: formStructured, contentType: contentType, data: body}
	if len(contentType) > maxContentTypeBytes {
		return p, newProblem(problemInvalidEvent, "Content-Type has more than 256 bytes")
	}
	var attributes ceAttributes
	var seen []string // also the members that are null, or data
	t := openJSON(body)
	for first := t.object(); t.fault == ""; first = false {
		quotedName, raw, ok := t.member(first)
		if !ok {
			break
		}
		name, _ := unquote(quotedName)
		if slices.Contains(seen, name) {
			return p, newProblem(problemDuplicateKey, quoted(name)+" stands twice")
		}
		if len(seen) == maxCEAttributes {
			return p, newProblem(problemInvalidEvent, "a CloudEvent has at most "+strconv.Itoa(maxCEAttributes)+" members here")
		}
		seen = append(seen, name)
		switch {
		case name == "data":
		case name == "data_base64":
			if _, ok := unquote(raw); !ok {
				return p, newProblem(problemInvalidEvent, "data_base64 is a string")
			}
		case isNull(raw): // as if it were not there: JSON event format, section 2.2
		default:
			value, ok := ceValue(raw)
			if !ok {
				return p, newProblem(problemInvalidEvent, quoted(name)+" is a string, a boolean or an integer of 32 bits")
			}
			if refusal := attributes.add(name, value); refusal != nil {
				return p, refusal
			}
		}
	}
	if !t.end() {
		return p, jsonProblem(&t)
	}
	if slices.Contains(seen, "data") && slices.Contains(seen, "data_base64") {
		return p, newProblem(problemInvalidEvent, "data and data_base64 exclude each other")
	}
	return p, attributes.identify(&p)
}

// ceValue reads the value of an attribute: all that the type system of CloudEvents has in JSON.
func ceValue(raw []byte) (any, bool) {
	if text, ok := unquote(raw); ok {
		return text, true
	}
	switch raw[0] {
	case 't', 'f':
		return raw[0] == 't', true
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	return int32(n), err == nil
}

// maxCEAttributes bounds the attributes of an event, of which few have ten.
const maxCEAttributes = 128

// ceAttributes are the attributes of a CloudEvent by name: strings, booleans and int32.
type ceAttributes map[string]any

// add notes one more attribute.
func (a *ceAttributes) add(name string, value any) *problem {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return newProblem(problemInvalidEvent, quoted(name)+" is no name of an attribute: those are a-z and 0-9")
		}
	}
	if name == "" || name == "data" {
		return newProblem(problemInvalidEvent, quoted(name)+" is no name of an attribute")
	}
	if *a == nil {
		*a = make(ceAttributes)
	}
	(*a)[name] = value
	return nil
}

// identify has the official SDK judge the attributes, and takes from them the post's type and its id, which stands for
// source and id of the CloudEvent: together they are unique.
func (a ceAttributes) identify(p *post) *problem {
	if version := a["specversion"]; version != cloudevents.CloudEventsVersionV1 {
		return newProblem(problemInvalidEvent, "specversion is "+cloudevents.CloudEventsVersionV1)
	}
	event := cloudevents.New()
	for name, value := range a {
		if problem := setAttribute(&event, name, value); problem != "" {
			return newProblem(problemInvalidEvent, name+": "+problem)
		}
	}
	if err := event.Validate(); err != nil {
		return newProblem(problemInvalidEvent, firstFault(err))
	}
	p.eventType = event.Type()
	source, id := a["source"].(string), a["id"].(string)
	b := binary.AppendUvarint(nil, uint64(len(source)))
	sum := sha256.Sum256(append(append(b, source...), id...))
	p.id = ceIDPrefix + idText.EncodeToString(sum[:ceIDBytes])
	return p.check("type")
}

// setAttribute sets one attribute, and says what is wrong with it as far as the SDK does not find that itself.
func setAttribute(event *cloudevents.Event, name string, value any) string {
	text, isText := value.(string)
	set := map[string]func(string){"id": event.SetID, "source": event.SetSource, "type": event.SetType, "subject": event.SetSubject,
		"dataschema": event.SetDataSchema, "datacontenttype": event.SetDataContentType}[name]
	switch {
	case name == "specversion":
	case name != "time" && set == nil:
		event.SetExtension(name, value)
	case !isText || strings.TrimSpace(text) == "":
		return "it is a string that is not empty"
	case name == "time":
		at, err := types.ParseTime(text)
		if err != nil {
			return "it is a time of RFC 3339"
		}
		event.SetTime(at)
	default:
		set(text)
	}
	return ""
}

// firstFault says what the SDK found, by the first attribute in order: a problem names one thing.
func firstFault(err error) string {
	faults, ok := errors.AsType[cloudevents.ValidationError](err)
	if !ok {
		return err.Error()
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		return name + ": " + bounded(faults[name].Error())
	}
	return err.Error()
}
