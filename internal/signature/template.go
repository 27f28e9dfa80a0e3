package signature

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

type partKind uint8

const (
	partLiteral partKind = iota
	partTimestamp
	partID
	partMethod
	partPath
	partURL
	partQuery
	partBody
	partBodyHash
	partForm // sorted
	partValue
	partSecret
	partTarget  // path and query
	partURLBase // of the URL, what stands before its query
	partNames   // the list of the headers that the sender signs, as written
	partHeaders // those that the sender lists
	partIf      // skips to part.end unless part.place has a value
)

// part is a piece of a template.
type part struct {
	kind  partKind
	text  []byte // of a literal
	place place  // of a value or an if
	end   int    // of an if: the index of the first part behind it
}

// placeholders are those without an argument.
var placeholders = map[string]partKind{
	"timestamp":    partTimestamp,
	"id":           partID,
	"method":       partMethod,
	"path":         partPath,
	"url":          partURL,
	"query":        partQuery,
	"body":         partBody,
	"sha256:body":  partBodyHash,
	"form:sorted":  partForm,
	"secret":       partSecret,
	"target":       partTarget,
	"url:base":     partURLBase,
	"headers":      partHeaders,
	"headers:list": partNames,
}

// parseTemplate reads signed content: text, placeholders in braces, "{{" for a brace, and "{if header:X}…{end}" for
// what is left out where X has no value.
func parseTemplate(s string) ([]part, error) {
	var (
		parts []part
		text  []byte
		open  = -1 // the index of the if that is not ended yet
	)
	flush := func() {
		if len(text) > 0 {
			parts, text = append(parts, part{text: text}), nil
		}
	}
	for s != "" {
		i := strings.IndexByte(s, '{')
		if i < 0 {
			text, s = append(text, s...), ""
			break
		}
		text, s = append(text, s[:i]...), s[i+1:]
		if strings.HasPrefix(s, "{") {
			text, s = append(text, '{'), s[1:]
			continue
		}
		name, rest, ok := strings.Cut(s, "}")
		if !ok {
			return nil, fmt.Errorf("placeholder {%s has no closing brace; {{ is a brace", name)
		}
		s = rest
		flush()
		switch {
		case strings.HasPrefix(name, "if "):
			if open >= 0 {
				return nil, errors.New("{if …} within {if …}")
			}
			p, err := parsePlaceholder(strings.TrimPrefix(name, "if "))
			if err != nil {
				return nil, err
			}
			if p.kind != partValue {
				return nil, fmt.Errorf("{%s}: only header:, json:, form: and query: can be absent", name)
			}
			open = len(parts)
			parts = append(parts, part{kind: partIf, place: p.place})
		case name == "end":
			if open < 0 {
				return nil, errors.New("{end} without {if …}")
			}
			parts[open].end, open = len(parts), -1
		default:
			p, err := parsePlaceholder(name)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
		}
	}
	flush()
	if open >= 0 {
		return nil, errors.New("{if …} without {end}")
	}
	return parts, nil
}

func parsePlaceholder(name string) (part, error) {
	if kind, ok := placeholders[name]; ok {
		return part{kind: kind}, nil
	}
	var v ValueSpec
	kind, arg, _ := strings.Cut(name, ":")
	switch kind {
	case "header":
		v.Header = arg
	case "json":
		v.JSON = arg
	case "form":
		v.Form = arg
	case "query":
		v.Query = arg
	default:
		names := slices.Sorted(maps.Keys(placeholders))
		return part{}, fmt.Errorf("unknown placeholder {%s}; there are %s, and header:, json:, form: and query: with a name", name, strings.Join(names, ", "))
	}
	p, err := compilePlace(v)
	if err == nil && p.kind == placeNone {
		err = errors.New("a name is missing")
	}
	if err != nil {
		return part{}, fmt.Errorf("placeholder {%s}: %w", name, err)
	}
	return part{kind: partValue, place: p}, nil
}

// uses reports whether any part is of this kind.
func uses(parts []part, kind partKind) bool {
	for i := range parts {
		if parts[i].kind == kind {
			return true
		}
	}
	return false
}

// usesPlace reports whether any part is the value at p.
func usesPlace(parts []part, p place) bool {
	for i := range parts {
		if q := &parts[i]; q.kind == partValue && q.place.kind == p.kind && q.place.name == p.name {
			return true
		}
	}
	return false
}
