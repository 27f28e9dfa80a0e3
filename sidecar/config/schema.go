package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	durationType  protoreflect.FullName = "google.protobuf.Duration"
	timestampType protoreflect.FullName = "google.protobuf.Timestamp"
)

// secretType is the message of which no error repeats a value, nor a key that is no field: it may be a part of one.
const secretType protoreflect.FullName = "sidehook.config.v1.Secret"

// plainNumber is a number without sign, exponent, infinities and the other forms that YAML has.
var plainNumber = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

// normalize holds node to the message md and writes what is spelled for people as protoyaml reads it: durations with
// days, sizes in bytes, enum values without their prefix. It is stricter than protoyaml, which also takes camelCase,
// field numbers and nulls, so that a field has one spelling and a duplicate cannot hide behind another.
// Positions stay as they are; every field is entered in r's index.
func normalize(node *yaml.Node, md protoreflect.MessageDescriptor, path string, r *report) {
	if node.Kind != yaml.MappingNode {
		r.add(SeverityError, position{node.Line, node.Column}, path, "write a mapping, with fields of "+fieldList(md))
		return
	}
	oneofs := map[protoreflect.Name]protoreflect.Name{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		inner := join(path, key.Value)
		field := md.Fields().ByName(protoreflect.Name(key.Value))
		if field == nil && md.FullName() == secretType {
			// {value: v1,whsec_…} is a field and the rest of the secret: not to be repeated.
			r.add(SeverityError, position{key.Line, key.Column}, path,
				"unknown field; there are "+fieldList(md)+"; a value with a comma or a colon stands in quotes")
			continue
		}
		if field == nil {
			r.add(SeverityError, position{key.Line, key.Column}, inner, "unknown field; "+suggestField(key.Value, md))
			continue
		}
		r.index[inner] = position{value.Line, value.Column}
		if one := field.ContainingOneof(); one != nil {
			if other, ok := oneofs[one.Name()]; ok {
				r.add(SeverityError, position{key.Line, key.Column}, inner,
					fmt.Sprintf("excludes %s, which is also written; remove one", other))
				continue
			}
			oneofs[one.Name()] = field.Name()
		}
		normalizeField(value, field, inner, r)
	}
}

func normalizeField(node *yaml.Node, field protoreflect.FieldDescriptor, path string, r *report) {
	if !field.IsList() {
		normalizeValue(node, field, path, r)
		return
	}
	if node.Kind != yaml.SequenceNode {
		r.add(SeverityError, position{node.Line, node.Column}, path, "write a list, also of one: [ … ]")
		return
	}
	for i, item := range node.Content {
		inner := fmt.Sprintf("%s[%d]", path, i)
		r.index[inner] = position{item.Line, item.Column}
		normalizeValue(item, field, inner, r)
	}
}

func normalizeValue(node *yaml.Node, field protoreflect.FieldDescriptor, path string, r *report) {
	fail := func(format string, args ...any) {
		r.add(SeverityError, position{node.Line, node.Column}, path, fmt.Sprintf(format, args...))
	}
	if isEmpty(node) {
		fail("has no value; write one, or leave the field out")
		return
	}
	md := field.Message()
	if md != nil && md.FullName() != durationType && md.FullName() != timestampType {
		normalize(node, md, path, r)
		return
	}
	if node.Kind != yaml.ScalarNode {
		fail("write a single value, not a list or a mapping")
		return
	}
	switch {
	case md != nil && md.FullName() == timestampType:
		if _, err := time.Parse(time.RFC3339, node.Value); err != nil {
			fail("%s is no time; write one such as 2027-01-31T00:00:00Z", quote(node.Value))
		}
	case md != nil && md.FullName() == durationType:
		d, err := parseDuration(node.Value)
		if err != nil {
			fail("%s is no duration: %v", quote(node.Value), err)
			return
		}
		rewrite(node, fmt.Sprintf("%d.%09ds", d/1e9, d%1e9))
	case field.Kind() == protoreflect.EnumKind:
		normalizeEnum(node, field.Enum(), fail)
	case field.Kind() == protoreflect.Int64Kind:
		n, err := parseSize(node.Value)
		if err != nil {
			fail("%s is no size: %v", quote(node.Value), err)
			return
		}
		rewrite(node, strconv.FormatInt(n, 10))
	case field.Kind() == protoreflect.Int32Kind:
		if _, err := strconv.ParseInt(node.Value, 10, 32); err != nil {
			fail("%s is no whole number", quote(node.Value))
		}
	case field.Kind() == protoreflect.DoubleKind:
		if !plainNumber.MatchString(node.Value) {
			fail("%s is no number; write one such as 2 or 1.5", quote(node.Value))
		}
	case field.Kind() == protoreflect.BoolKind:
		if node.Tag != "!!bool" || (node.Value != "true" && node.Value != "false") {
			fail("%s is neither true nor false", quote(node.Value))
		}
	case field.Kind() == protoreflect.StringKind && field.ContainingMessage().FullName() == secretType:
		if node.Value == "" {
			fail("is empty")
		}
	}
}

// normalizeEnum gives the value in node the prefix that the schema has and people do not write.
func normalizeEnum(node *yaml.Node, ed protoreflect.EnumDescriptor, fail func(string, ...any)) {
	prefix := enumPrefix(ed)
	value := ed.Values().ByName(protoreflect.Name(prefix + node.Value))
	if value != nil && value.Number() != 0 {
		rewrite(node, string(value.Name()))
		return
	}
	names := enumNames(ed)
	if upper := strings.ToUpper(node.Value); slices.Contains(names, upper) {
		fail("%s is not a value of this field; write %s", quote(node.Value), upper)
		return
	}
	fail("%s is not a value of this field; write one of %s", quote(node.Value), strings.Join(names, ", "))
}

// enumPrefix returns what the names of an enum's values begin with: MODE_ of MODE_UNSPECIFIED.
func enumPrefix(ed protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(ed.Values().ByNumber(0).Name()), "UNSPECIFIED")
}

// enumNames returns the values that can be written, without their prefix.
func enumNames(ed protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range ed.Values().Len() {
		if v := ed.Values().Get(i); v.Number() != 0 {
			names = append(names, strings.TrimPrefix(string(v.Name()), enumPrefix(ed)))
		}
	}
	return names
}

// rewrite gives a scalar another text in the same place.
func rewrite(node *yaml.Node, text string) {
	node.Value, node.Tag, node.Style = text, "!!str", 0
}

func fieldList(md protoreflect.MessageDescriptor) string {
	return strings.Join(fieldNames(md), ", ")
}

func fieldNames(md protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range md.Fields().Len() {
		names = append(names, string(md.Fields().Get(i).Name()))
	}
	return names
}

func suggestField(name string, md protoreflect.MessageDescriptor) string {
	if near := nearest(name, fieldNames(md)); near != "" {
		return fmt.Sprintf("is %s meant? There are %s", near, fieldList(md))
	}
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		inner := f.Message()
		if inner == nil || f.Cardinality() == protoreflect.Repeated || inner.ParentFile().Package() != md.ParentFile().Package() {
			continue // a duration's seconds are no field of ours
		}
		if inner.Fields().ByName(protoreflect.Name(name)) != nil {
			return fmt.Sprintf("is %s.%s meant? There are %s", f.Name(), name, fieldList(md))
		}
	}
	return "there are " + fieldList(md)
}

// nearest returns the one of names that name is most likely a slip of, or "".
func nearest(name string, names []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(s))
	}
	best, least := "", 3 // a slip has at most two letters
	for _, n := range names {
		d := distance(plain(name), plain(n))
		if d < least && d*3 <= max(len(n), 3) {
			best, least = n, d
		}
	}
	return best
}

// distance returns how many letters must be added, taken out, changed or swapped with their neighbour to make b of a.
func distance(a, b string) int {
	const tooLong = 64
	if len(a) > tooLong || len(b) > tooLong {
		return max(len(a), len(b))
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
