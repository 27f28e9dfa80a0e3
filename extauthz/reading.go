package extauthz

import "strings"

const (
	// maxDecodes is how often software between us and the handler is known to decode a path.
	maxDecodes = 2
	// maxReadings and maxReadingBytes bound what one path may cost. A path with more readings is refused.
	maxReadings     = 256
	maxReadingBytes = 1 << 20
)

// ambiguous returns the index of a source that some other reading of the path belongs to, while the raw one belongs
// to raw (a source's index, openRoute or noRoute); noRoute when there is none. An app, or a proxy before it, may
// decode, clean or fold a path before it routes: what we see as open could arrive at a webhook's handler
// unverified, and what one source verified at another's. With a source that enforces and one that only reports, the
// former is returned. overflow reports a path with too many readings to look at.
//
// A format at the end (/hooks.json) leads Rails and others to the handler of /hooks too. It counts only where no source
// has the raw path: two that differ in it are what the user wrote. So are two sources whose paths differ in letters only,
// but not two of which one takes, in a tenant's place, what no tenant is called.
func (s *Sources) ambiguous(host, method, path string, raw int) (source int, overflow bool) {
	if len(s.sources) == 0 {
		return noRoute, false
	}
	one, folds := plain(path)
	if one && !folds && !s.loose && (raw >= 0 || cutFormat(path) == path) {
		return noRoute, false
	}
	host, bare := hostForms(host)
	found := noRoute
	find := func(p string) int {
		if i := s.findExact(host, bare, method, p); i >= 0 {
			return i
		}
		return s.findLoose(host, bare, method, p)
	}
	look := func(p string) bool {
		i := find(p)
		if i < 0 && raw < 0 {
			i = find(cutFormat(p))
		}
		if i >= 0 && i == raw {
			i = s.findTenant(host, bare, method, p, raw)
		}
		if i < 0 || i == raw {
			return true
		}
		if found == noRoute || s.sources[i].Enforce == EnforceOn {
			found = i
		}
		return s.sources[found].Enforce != EnforceOn
	}
	if one {
		look(path)
		return found, false
	}
	whole := eachReading(path, look)
	return found, !whole && found == noRoute
}

// plain reports whether a path has one reading only, letters aside, and whether it has letters to fold.
func plain(path string) (one, folds bool) {
	if path == "" || path[0] != '/' {
		return false, true
	}
	for i := range len(path) {
		switch c := path[i]; {
		case c == '%' || c == ';' || c == '\\' || c == '?' || c == '#' || c <= ' ':
			return false, true
		case c == '/' && i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.'):
			return false, true
		case c >= 0x80 || 'A' <= c && c <= 'Z':
			folds = true
		}
	}
	return len(path) == 1 || path[len(path)-1] != '/', folds
}

// reading is one way to understand a path, and how often it was decoded on the way there.
type reading struct {
	path    string
	decodes int
}

// eachReading calls f with every path that comes out of path by the steps that servers and frameworks take, in any
// order and number: decode (twice at most), backslash to slash, parameters dropped, slashes merged, dot segments
// resolved, the authority of //host/path dropped, a decoded query, fragment, zero byte or white space at the end cut
// off. It stops when f returns false, and returns false when it could not show them all.
func eachReading(path string, f func(string) bool) bool {
	queue := []reading{{path: path}}
	seen := map[reading]bool{queue[0]: true}
	bytes := 0
	for len(queue) > 0 {
		r := queue[0]
		queue = queue[1:]
		if !f(r.path) {
			return true
		}
		for i, step := range readingSteps {
			next := reading{path: step(r.path), decodes: r.decodes}
			if i == 0 {
				next.decodes++
			}
			if next.path == r.path || next.decodes > maxDecodes || seen[next] {
				continue
			}
			if bytes += len(next.path); len(seen) >= maxReadings || bytes > maxReadingBytes {
				return false
			}
			seen[next] = true
			queue = append(queue, next)
		}
	}
	return true
}

// readingSteps are the ways in which one path becomes another. Decoding stands first: it is the one that is counted.
var readingSteps = [...]func(string) string{
	decodePath,
	func(p string) string { return strings.ReplaceAll(p, `\`, "/") },
	dropParameters,
	mergeSlashes,
	resolveDots,
	dropAuthority,
	cutEnd,
}

// decodePath resolves percent escapes; what is no escape stays as it is.
func decodePath(p string) string {
	if !strings.Contains(p, "%") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		if p[i] == '%' && i+2 < len(p) {
			hi, lo := unhex(p[i+1]), unhex(p[i+2])
			if hi >= 0 && lo >= 0 {
				b = append(b, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		b = append(b, p[i])
	}
	return string(b)
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}

// dropParameters cuts each segment at its first semicolon, as servlet containers do.
func dropParameters(p string) string {
	if !strings.Contains(p, ";") {
		return p
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// mergeSlashes makes one slash of several.
func mergeSlashes(p string) string {
	if !strings.Contains(p, "//") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := range len(p) {
		if p[i] != '/' || i == 0 || p[i-1] != '/' {
			b = append(b, p[i])
		}
	}
	return string(b)
}

// resolveDots resolves "." and ".." segments and drops a final slash. It merges no slashes: an empty segment counts.
func resolveDots(p string) string {
	segments := strings.Split(strings.TrimPrefix(p, "/"), "/")
	kept := segments[:0]
	for _, s := range segments {
		switch s {
		case ".":
		case "..":
			if len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
		default:
			kept = append(kept, s)
		}
	}
	for len(kept) > 0 && kept[len(kept)-1] == "" {
		kept = kept[:len(kept)-1]
	}
	return "/" + strings.Join(kept, "/")
}

// dropAuthority reads //host/path and scheme://host/path as URL parsers do: the path begins after the host.
func dropAuthority(p string) string {
	rest, ok := strings.CutPrefix(p, "//")
	if !ok {
		if _, rest, ok = strings.Cut(p, "://"); !ok {
			return p
		}
	}
	i := strings.IndexByte(rest, '/')
	if i < 0 {
		return "/"
	}
	return rest[i:]
}

// cutEnd cuts off what was escaped and is decoded now: a query or fragment, for a proxy that decodes a path and sends it
// on as a target; a zero byte with what follows, which ends a string in C; and white space at the end, for a regular
// expression's $ fits before a final newline, and some routers trim.
func cutEnd(p string) string {
	if i := strings.IndexAny(p, "?#\x00"); i >= 0 {
		return p[:i]
	}
	return strings.TrimRight(p, " \t\r\n\v\f")
}

// cutFormat cuts the last segment at its first dot that does not begin it.
func cutFormat(p string) string {
	last := strings.LastIndexByte(p, '/') + 1
	for i := last + 1; i < len(p); i++ {
		if p[i] == '.' && p[last] != '.' {
			return p[:i]
		}
	}
	return p
}

// loosePath is path as routers see it that care neither for case, of any script, nor for a final slash.
func loosePath(path string) string {
	path = strings.TrimRight(strings.ToLower(strings.ToUpper(path)), "/")
	if path == "" {
		return "/"
	}
	return path
}
