package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// hidden stands where a {value} stood.
const hidden = "[redacted]"

// Effective returns the configuration as YAML, every default filled in. Secrets are left out: a {value} reads
// "[redacted]". But for those it loads as it is.
func Effective(c *Config) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(render(c.Message.ProtoReflect())); err != nil {
		return nil, fmt.Errorf("write config %s as YAML: %w", c.Path, err)
	}
	return b.Bytes(), nil
}

// EffectiveJSON is Effective as JSON, with the same names and spellings.
func EffectiveJSON(c *Config) ([]byte, error) {
	b, err := renderJSON(c.Message.ProtoReflect())
	if err != nil {
		return nil, fmt.Errorf("write config %s as JSON: %w", c.Path, err)
	}
	return b, nil
}

func renderJSON(m protoreflect.Message) ([]byte, error) {
	var tree any
	if err := render(m).Decode(&tree); err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

// render writes m in the language of the configuration file, the inverse of normalize. Fields that are not set are left
// out; they stand in the order of the schema.
func render(m protoreflect.Message) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !m.Has(field) {
			continue
		}
		key, value := text(string(field.Name())), m.Get(field)
		if !field.IsList() {
			node.Content = append(node.Content, key, renderValue(field, value))
			continue
		}
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for j := range value.List().Len() {
			list.Content = append(list.Content, renderValue(field, value.List().Get(j)))
		}
		node.Content = append(node.Content, key, list)
	}
	if len(node.Content) == 0 {
		node.Style = yaml.FlowStyle
	}
	return node
}

func renderValue(field protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	switch field.Kind() {
	case protoreflect.MessageKind:
		switch m := v.Message().Interface().(type) {
		case *durationpb.Duration:
			return text(formatDuration(m.AsDuration()))
		case *timestamppb.Timestamp:
			return text(m.AsTime().Format(time.RFC3339Nano))
		}
		return render(v.Message())
	case protoreflect.EnumKind:
		value := field.Enum().Values().ByNumber(v.Enum())
		return text(strings.TrimPrefix(string(value.Name()), enumPrefix(field.Enum())))
	case protoreflect.BoolKind:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case protoreflect.Int32Kind:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v.Int(), 10)}
	case protoreflect.Int64Kind:
		return text(formatSize(v.Int()))
	case protoreflect.DoubleKind:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: strconv.FormatFloat(v.Float(), 'f', -1, 64)}
	default:
		return text(v.String())
	}
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// hideSecrets replaces every {value} below m.
func hideSecrets(m protoreflect.Message) {
	if s, ok := m.Interface().(*configv1.Secret); ok {
		if _, ok := s.GetSource().(*configv1.Secret_Value); ok {
			s.Source = &configv1.Secret_Value{Value: hidden}
		}
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				hideSecrets(v.List().Get(i).Message())
			}
		default:
			hideSecrets(v.Message())
		}
		return true
	})
}
