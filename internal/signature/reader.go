package signature

import (
	"crypto/sha256"
	"hash"
	"strings"
	"sync"
)

// Bounds on the work that one message can cause.
const (
	maxSignatureBytes = 8 << 10 // of the field with the signatures
	maxSignatures     = 16
	maxKeys           = 8
	maxPublicChecks   = 16 // checks of public-key signatures
)

// piece is a resolved part of the signed content.
type piece struct {
	kind partKind
	b    []byte
}

// reader holds what is read of one message under one scheme. Readers are pooled: nothing of a message is kept.
type reader struct {
	m    *Message
	s    *scheme
	body []byte // as signed
	doc  []byte // the JSON document; the body but where Spec.Document names a field
	// timestamp and id are the texts as they came.
	timestamp, id string
	// listed are the names of the headers that the sender signed, and required what of them is a part of the content hash.
	listed      string
	required    []byte
	sigs        [][]byte // decoded signatures
	pieces      []piece
	urls        []string // the forms of {url} to try; one where there is no {url}
	arena       []byte   // backs pieces and sigs; grows by reallocation, which leaves earlier slices valid
	sum         []byte
	contentHash hash.Hash
	// want is a document of keys that a signature may have been made with; away: none is at hand.
	want  KeyRequest
	away  bool
	trace *Explanation // nil except in Explain
}

var readers = sync.Pool{New: func() any {
	return &reader{
		sigs:        make([][]byte, 0, maxSignatures),
		pieces:      make([]piece, 0, 16),
		arena:       make([]byte, 0, 1024),
		sum:         make([]byte, 0, 64),
		urls:        make([]string, 0, 4),
		contentHash: sha256.New(),
	}
}}

// maxPooledArena keeps one large message from holding memory for ever.
const maxPooledArena = 64 << 10

func newReader(m *Message, s *scheme, trace *Explanation) *reader {
	r := readers.Get().(*reader)
	r.m, r.s, r.trace = m, s, trace
	return r
}

func (r *reader) free() {
	clear(r.sigs)
	clear(r.pieces)
	clear(r.urls)
	r.m, r.s, r.trace, r.body, r.doc, r.required = nil, nil, nil, nil, nil, nil
	r.timestamp, r.id, r.listed = "", "", ""
	r.want, r.away = KeyRequest{}, false
	r.sigs, r.pieces, r.urls, r.arena = r.sigs[:0], r.pieces[:0], r.urls[:0], r.arena[:0]
	if cap(r.arena) <= maxPooledArena {
		readers.Put(r)
	}
}

// find reads the value at p.
func (r *reader) find(p place) (string, presence) {
	if p.kind == placeJSON {
		return p.find(r.m, r.doc)
	}
	return p.find(r.m, r.body)
}

// keep copies text into the arena.
func (r *reader) keep(text string) []byte {
	n := len(r.arena)
	r.arena = append(r.arena, text...)
	return r.arena[n:len(r.arena):len(r.arena)]
}

// resolve turns the template into pieces.
func (r *reader) resolve() Reason {
	for i := 0; i < len(r.s.parts); i++ {
		p := &r.s.parts[i]
		var b []byte
		switch p.kind {
		case partLiteral:
			b = p.text
		case partTimestamp:
			b = r.keep(r.timestamp)
		case partID:
			b = r.keep(r.id)
		case partMethod:
			b = r.keep(r.m.Method)
		case partPath:
			b = r.keep(r.m.path())
		case partQuery:
			b = r.keep(r.m.query())
		case partTarget:
			b = r.keep(r.m.Target)
		case partURLBase:
			base, _, _ := strings.Cut(r.m.URL, "#")
			base, _, _ = strings.Cut(base, "?")
			b = r.keep(base)
		case partNames:
			b = r.keep(r.listed)
		case partHeaders:
			var reason Reason
			if b, reason = r.readListed(); reason != ReasonOK {
				return reason
			}
		case partBody:
			b = r.body
		case partBodyHash:
			sum := sha256.Sum256(r.body)
			b = r.keep(encode(sum[:], Hex))
		case partForm:
			if !r.m.isForm() {
				continue
			}
			n, ok := len(r.arena), false
			if r.arena, ok = sortedForm(r.arena, r.body); !ok {
				return ReasonMalformedSignature
			}
			b = r.arena[n:len(r.arena):len(r.arena)]
		case partValue, partIf:
			v, found := r.find(p.place)
			switch {
			case found == repeated:
				r.note("%s is repeated", p.place)
				return ReasonMalformedSignature
			case p.kind == partIf:
				if found == absent {
					i = p.end - 1
				}
				continue
			case found == absent:
				r.note("%s is missing", p.place)
				return ReasonMissingSignature
			}
			b = r.keep(v)
		}
		r.pieces = append(r.pieces, piece{p.kind, b})
	}
	r.urls = append(r.urls, "")
	if uses(r.s.parts, partURL) {
		r.urls = urlForms(r.urls[:0], r.m.URL, r.s.spec.URL)
	}
	return ReasonOK
}

// writeTo streams the signed content into h, with {url} in the form given.
func (r *reader) writeTo(h hash.Hash, url string, secret []byte) {
	for i := range r.pieces {
		p := &r.pieces[i]
		switch p.kind {
		case partURL:
			n := len(r.arena)
			h.Write(r.keep(url))
			r.arena = r.arena[:n]
		case partSecret:
			h.Write(secret)
		default:
			h.Write(p.b)
		}
	}
}

// append writes the signed content to dst.
func (r *reader) append(dst []byte, url string, secret []byte) []byte {
	for i := range r.pieces {
		switch p := &r.pieces[i]; p.kind {
		case partURL:
			dst = append(dst, url...)
		case partSecret:
			dst = append(dst, secret...)
		default:
			dst = append(dst, p.b...)
		}
	}
	return dst
}

// hashContent returns SHA-256 over the signed content without its timestamp and secret.
func (r *reader) hashContent() (sum [32]byte) {
	h := r.contentHash
	h.Reset()
	for i := range r.pieces {
		switch p := &r.pieces[i]; p.kind {
		case partTimestamp, partSecret, partNames:
		case partHeaders:
			h.Write(r.required)
		case partURL:
			h.Write(r.keep(r.urls[0]))
		default:
			h.Write(p.b)
		}
	}
	r.sum = h.Sum(r.sum[:0])
	return [32]byte(r.sum)
}

// note adds a line to the explanation.
func (r *reader) note(format string, args ...any) {
	if r.trace != nil {
		r.trace.note(format, args...)
	}
}
