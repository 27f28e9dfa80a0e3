package signature

import "strings"

// readSignatures takes the field apart: signatures into r.sigs, a timestamp of the list into r.timestamp. Signatures
// that do not decode are skipped as long as one does, for senders add some; a form that the grammar cannot produce is
// refused.
func (r *reader) readSignatures(field string) Reason {
	sig := &r.s.spec.Signature
	switch {
	case field == "":
		r.note("%s is empty", r.s.signature)
		return ReasonMissingSignature
	case len(field) > maxSignatureBytes:
		r.note("%s has %d bytes; %d are the most", r.s.signature, len(field), maxSignatureBytes)
		return ReasonMalformedSignature
	case r.s.joined(field):
		return r.twice(r.s.signature)
	}
	var c elementCount
	rest, more := field, true
	for i := 0; more; i++ {
		var element string
		if sig.List == "" {
			element, more = rest, false
		} else {
			element, rest, more = strings.Cut(rest, sig.List)
		}
		if i > 0 && sig.Blanks {
			element = strings.TrimLeft(element, " ")
		}
		c.total++
		if i < sig.Skip {
			if t := r.s.spec.Timestamp; t != nil && t.SignatureIndex == i+1 {
				r.timestamp = element
				c.times++
			}
			continue
		}
		if !r.readElement(element, &c) {
			r.note("element %d of %s has a form that the sender does not use", i+1, r.s.signature)
			return ReasonMalformedSignature
		}
	}
	r.note("%s: %d bytes, %d elements, %d signatures, of which %d do not decode, %d of other versions",
		r.s.signature, len(field), c.total, len(r.sigs)+c.unreadable, c.unreadable, c.others)
	switch t := r.s.spec.Timestamp; {
	case len(r.sigs) == 0 && c.unreadable == 0 && c.others > 0:
		return ReasonWrongScheme
	case len(r.sigs) == 0:
		return ReasonMalformedSignature
	case t != nil && (t.SignatureKey != "" || t.SignatureIndex > 0) && c.times != 1:
		r.note("%s holds %d timestamps", r.s.signature, c.times)
		return ReasonMalformedSignature
	case c.lists > 1:
		r.note("%s lists headers %d times", r.s.signature, c.lists)
		return ReasonMalformedSignature
	}
	return ReasonOK
}

// joined reports whether a comma tells that somebody made one field of two: where a list has another separator, no
// sender writes one but behind a key.
func (s *scheme) joined(field string) bool {
	sig := &s.spec.Signature
	return sig.List != "" && !strings.Contains(sig.List+sig.KeySeparator+sig.Prefix, ",") && strings.Contains(field, ",")
}

// anyKey is a SignatureSpec.KeyValue that every key fits.
const anyKey = "*"

// elementCount says what the elements of a list were.
type elementCount struct {
	total, times, lists, others, unreadable int
}

// readElement reports false for an element that the grammar cannot produce.
func (r *reader) readElement(element string, c *elementCount) bool {
	sig := &r.s.spec.Signature
	if sig.KeySeparator != "" {
		key, value, ok := strings.Cut(element, sig.KeySeparator)
		if !ok || key == "" || strings.ContainsAny(key, " \t") {
			return false
		}
		// "v1,a,v1,b" is two fields that someone joined: the separator is in no encoding but for the "=" of base64.
		if sig.KeySeparator != "=" && strings.Contains(value, sig.KeySeparator) {
			return false
		}
		switch t := r.s.spec.Timestamp; {
		case t != nil && t.SignatureKey == key:
			r.timestamp = value
			c.times++
			return true
		case r.s.spec.Headers != nil && r.s.spec.Headers.SignatureKey == key:
			r.listed = value
			c.lists++
			return true
		case key != sig.KeyValue && sig.KeyValue != anyKey:
			c.others++
			return true
		}
		element = value
	}
	if sig.Prefix != "" {
		value, ok := strings.CutPrefix(element, sig.Prefix)
		switch {
		case ok:
			element = value
		case otherPrefix(element):
			c.others++
			return true
		case !sig.PrefixOptional:
			return false
		}
	}
	if element == "" && sig.List != "" || len(r.sigs)+c.unreadable == maxSignatures {
		return false
	}
	if b, ok := r.decodeSignature(element); ok {
		r.sigs = append(r.sigs, b)
	} else {
		c.unreadable++
	}
	return true
}

// otherPrefix reports whether an element is a signature of another scheme, as in "sha1=…" where "sha256=" is wanted.
func otherPrefix(element string) bool {
	word, value, ok := strings.Cut(element, "=")
	if !ok || strings.Trim(value, "=") == "" || len(word) < 2 || len(word) > 8 {
		return false
	}
	return strings.HasPrefix(word, "sha") || strings.HasPrefix(word, "md") || word[0] == 'v' && '0' <= word[1] && word[1] <= '9'
}

// decodeSignature decodes one signature and checks its length against the algorithm's.
func (r *reader) decodeSignature(text string) ([]byte, bool) {
	n := len(r.arena)
	out, ok := decode(r.arena, text, r.s.spec.Signature.Encoding)
	if !ok {
		return nil, false
	}
	r.arena = out
	b := out[n:len(out):len(out)]
	switch r.s.spec.Algorithm {
	case HMACSHA1, SHA1:
		ok = len(b) == 20
	case HMACSHA256, SHA256:
		ok = len(b) == 32
	case HMACSHA384:
		ok = len(b) == 48
	case HMACSHA512, Ed25519:
		ok = len(b) == 64
	case ECDSAP256:
		ok = len(b) == 64 || r.s.spec.Signature.Layout == DER && len(b) >= 8 && len(b) <= 72
	case RSAPKCS1SHA1, RSAPKCS1SHA256, RSAPKCS1SHA512, RSAPSSSHA256:
		ok = len(b) >= minRSABits/8
	default:
		ok = len(b) > 0
	}
	return b, ok
}
