package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"buf.build/go/protovalidate"
	"buf.build/go/protoyaml"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// readFile reads at most one byte more than a configuration may have.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// decode reads data into message, which is empty, and holds it to the rules of its schema. What is wrong is noted in r.
func decode(data []byte, message proto.Message, r *report) {
	decodeWith(data, message, r, func(root *yaml.Node) (*yaml.Node, string) { return root, "" })
}

// decodeWith is decode for a message that is a part of what data holds: part returns it and its path.
func decodeWith(data []byte, message proto.Message, r *report, part func(*yaml.Node) (*yaml.Node, string)) {
	root := parseYAML(data, r)
	if root == nil {
		return
	}
	root, path := part(root)
	r.index[path] = position{root.Line, root.Column}
	normalize(root, message.ProtoReflect().Descriptor(), path, r)
	if r.failed("") {
		return
	}
	// protoyaml parses data once more; swap then gives it the tree that we have checked, whose positions are the same.
	options := protoyaml.UnmarshalOptions{Path: r.file, CustomUnmarshaler: swap{root: root, of: message}}
	if err := options.Unmarshal(data, message); err != nil {
		r.protoyamlError(err)
		return
	}
	validate(message, path, r)
}

// swap puts root in the place of what protoyaml parsed for the message of.
type swap struct {
	root *yaml.Node
	of   proto.Message
}

// Unmarshal implements protoyaml.CustomUnmarshaler; it always leaves the work to protoyaml.
func (s swap) Unmarshal(node *yaml.Node, message proto.Message) (bool, error) {
	if message == s.of {
		*node = *s.root
	}
	return false, nil
}

// protoyamlError notes what protoyaml refused. An error of its own repeats the whole line of the file, which may hold a
// secret: only its place and its cause are taken.
func (r *report) protoyamlError(err error) {
	errs := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		at := position{1, 1}
		place, _ := strings.CutPrefix(err.Error(), r.file+":")
		if _, scan := fmt.Sscanf(place, "%d:%d ", &at.line, &at.column); scan != nil {
			at = position{1, 1}
		}
		text := "cannot be read"
		if cause := errors.Unwrap(err); cause != nil {
			text = cause.Error()
		}
		r.add(SeverityError, at, "", text)
	}
}

// validate holds message, which stands at the path at, to the rules in its schema. The validator is not kept: a configuration
// is read seldom, and the programs that the rules compile to are larger than all that comes of it.
func validate(message proto.Message, at string, r *report) {
	validator, err := protovalidate.New()
	if err != nil {
		r.add(SeverityError, position{}, "", "the schema's rules cannot be used: "+err.Error())
		return
	}
	err = validator.Validate(message)
	if err == nil {
		return
	}
	invalid, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		r.add(SeverityError, position{}, "", "the schema's rules cannot be used: "+err.Error())
		return
	}
	for _, v := range invalid.Violations {
		path := protovalidate.FieldPathString(v.Proto.GetField())
		if at != "" {
			path = strings.TrimSuffix(at+"."+path, ".")
		}
		text := v.Proto.GetMessage()
		switch id := v.Proto.GetRuleId(); {
		case id == "required":
			text = "is required"
		case id == "string.min_len" && v.RuleValue.Uint() == 1:
			text = "is required, and must not be empty"
		}
		r.errorf(path, "%s", text)
	}
}
