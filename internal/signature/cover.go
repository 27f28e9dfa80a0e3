package signature

import "slices"

// CoversBody reports whether the signature of every scheme of v vouches for all bytes of every body. A token vouches for
// nothing, and a signature of fields for those alone.
func (v *Verifier) CoversBody() bool {
	return v.everyScheme(func(s *scheme) bool {
		return s.bodyHash.kind == placeHeader ||
			s.always(func(p *part) bool { return p.kind == partBody || p.kind == partBodyHash })
	})
}

// CoversHeader reports whether the signature of every scheme of v vouches for the header, whose name is in lower case.
func (v *Verifier) CoversHeader(name string) bool {
	return v.everyScheme(func(s *scheme) bool {
		return s.spec.Headers != nil && slices.Contains(s.spec.Headers.Require, name) ||
			s.always(func(p *part) bool {
				return p.kind == partID && s.id.kind == placeHeader && s.id.name == name ||
					p.kind == partValue && p.place.kind == placeHeader && p.place.name == name
			})
	})
}

// everyScheme reports whether all schemes are signatures for which holds does.
func (v *Verifier) everyScheme(holds func(*scheme) bool) bool {
	return len(v.schemes) > 0 && !slices.ContainsFunc(v.schemes, func(s *scheme) bool {
		return s.spec.Algorithm == Token || s.spec.Algorithm == Basic || !holds(s)
	})
}

// always reports whether a part for which holds does is signed under no condition.
func (s *scheme) always(holds func(*part) bool) bool {
	for i := 0; i < len(s.parts); i++ {
		switch p := &s.parts[i]; {
		case p.kind == partIf:
			i = p.end - 1
		case holds(p):
			return true
		}
	}
	return false
}
