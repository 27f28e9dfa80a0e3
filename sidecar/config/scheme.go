package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// ParseSchemeFile reads a scheme by itself, as --scheme-file names one: the fields of a scheme, or the one key `scheme`
// with them. The scheme is checked as Load checks it; errors are Findings.
func ParseSchemeFile(path string) (signature.Spec, error) {
	data, err := readFile(path)
	if err != nil {
		return signature.Spec{}, fmt.Errorf("read scheme: %w", err)
	}
	return parseScheme(path, data)
}

func parseScheme(name string, data []byte) (signature.Spec, error) {
	r := &report{file: name}
	m := &configv1.Scheme{}
	at := ""
	decodeWith(data, m, r, func(root *yaml.Node) (*yaml.Node, string) {
		if root.Kind == yaml.MappingNode && len(root.Content) == 2 && root.Content[0].Value == "scheme" {
			at = "scheme"
			root = root.Content[1]
		}
		return root, at
	})
	if r.failed("") {
		return signature.Spec{}, r.err()
	}
	spec, _ := compileScheme(at, m, r)
	return spec, r.err()
}

// compileScheme turns the scheme at path into what verifies it. What is wrong is noted in r; the verifier is then nil.
func compileScheme(path string, m *configv1.Scheme, r *report) (signature.Spec, *signature.Verifier) {
	spec, err := schemeSpec(m)
	if err != nil {
		r.errorf(path, "%v", err)
		return spec, nil
	}
	v, err := signature.Compile(spec)
	if err != nil {
		r.schemeError(path, err)
		return spec, nil
	}
	return spec, v
}

// schemeSpec turns the message into the scheme language of internal/signature. Both have the same names and spellings,
// so the way is through JSON, and a field that only one of them knows is an error (see the tests).
func schemeSpec(m *configv1.Scheme) (signature.Spec, error) {
	var spec signature.Spec
	b, err := renderJSON(m.ProtoReflect())
	if err != nil {
		return spec, fmt.Errorf("read scheme: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		return spec, fmt.Errorf("read scheme: %w", err)
	}
	return spec, nil
}

// schemeError notes what signature.Compile says: "field.field: text", several joined.
func (r *report) schemeError(path string, err error) {
	errs := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		at, text := path, err.Error()
		if field, rest, ok := strings.Cut(text, ": "); ok && schemeField(field) {
			at, text = strings.TrimPrefix(path+"."+field, "."), rest
		}
		r.errorf(at, "%s", text)
	}
}

// schemeField reports whether s is a path of the scheme language.
func schemeField(s string) bool {
	md := (&configv1.Scheme{}).ProtoReflect().Descriptor()
	for name := range strings.SplitSeq(s, ".") {
		name, _, _ = strings.Cut(name, "[") // an item of a list
		if md == nil {
			return false
		}
		field := md.Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return false
		}
		md = field.Message()
	}
	return true
}
