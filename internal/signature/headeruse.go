package signature

import "slices"

// HeaderUse is what the schemes of a sender have a header for. The zero value: for nothing.
type HeaderUse struct {
	// Read: its value is a part of what is judged or told: signature, time, id, type, what is signed.
	Read bool
	// Signature: a signature stands in it, of a scheme that is accepted or of another one of the sender's.
	Signature bool
	// Secret: the secret itself stands in it.
	Secret bool

	replaced bool // by signing anew
}

// Header says what v has the header of that name, in lower case, for.
func (v *Verifier) Header(name string) HeaderUse {
	var use HeaderUse
	is := func(p place) bool { return p.kind == placeHeader && p.name == name }
	for _, s := range v.schemes {
		if is(s.signature) || slices.Contains(s.spec.Signature.Also, name) {
			use.Read, use.Signature = true, true
			use.Secret = use.Secret || s.bearsSecret()
		}
		if is(s.timestamp) || s.spec.Headers != nil && s.spec.Headers.Header == name {
			use.Read, use.replaced = true, true
		}
		use.Read = use.Read || is(s.id) || is(s.typ) || is(s.bodyHash) ||
			s.spec.Headers != nil && slices.Contains(s.spec.Headers.Require, name) ||
			slices.ContainsFunc(s.require, func(q RequireSpec) bool { return q.Header == name }) ||
			slices.ContainsFunc(s.parts, func(p part) bool { return is(p.place) })
	}
	if s, ok := v.beside.(*jwtScheme); ok {
		token := s.header == name
		use = HeaderUse{Read: token || is(s.id) || is(s.typ), Signature: token, Secret: token && s.spec.Bearing}
	}
	if slices.Contains(v.others, name) {
		use.Read, use.Signature = true, true
	}
	return use
}
