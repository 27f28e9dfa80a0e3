package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a configuration file. A thousand sources take a third of it.
const maxFileBytes = 1 << 20

// parseYAML returns the root of the one document in data, or nil with what is wrong in r. YAML that a reader could
// understand in another way than the program does is refused: duplicate keys, anchors, aliases, merge keys, explicit
// types, nulls, a second document.
func parseYAML(data []byte, r *report) *yaml.Node {
	if !checkBytes(data, r) {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) || (err == nil && len(document.Content) == 1 && isEmpty(document.Content[0])) {
		r.add(SeverityError, position{1, 1}, "", "the file is empty; if nothing shall be on but the defaults, write {}")
		return nil
	}
	if err != nil {
		r.yamlError(err)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		r.add(SeverityError, position{second.Line, second.Column}, "",
			"a second document begins here; a configuration is one document: remove it")
		return nil
	case !errors.Is(err, io.EOF):
		r.yamlError(err)
		return nil
	}
	root := document.Content[0]
	r.index = index{"": {root.Line, root.Column}}
	before := len(r.findings)
	checkNode(root, "", r)
	if len(r.findings) > before {
		return nil
	}
	return root
}

// isEmpty reports whether n is what the parser makes of nothing at all, or of a null that is written out.
func isEmpty(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// checkBytes refuses what is no text of a bearable size.
func checkBytes(data []byte, r *report) bool {
	if len(data) > maxFileBytes {
		r.add(SeverityError, position{}, "", fmt.Sprintf("the file has %d bytes; a configuration has at most %s",
			len(data), formatSize(maxFileBytes)))
		return false
	}
	line, column := 1, 1
	for rest := data; len(rest) > 0; {
		c, n := utf8.DecodeRune(rest)
		if c == utf8.RuneError && n == 1 {
			r.add(SeverityError, position{line, column}, "",
				fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8", rest[0]))
			return false
		}
		if column++; c == '\n' {
			line, column = line+1, 1
		}
		rest = rest[n:]
	}
	return true
}

// yamlLine is how the parser writes where an error is. It knows no column.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// unknownAlias is the one error of the parser that repeats a word of the file, which may be a secret that begins with *.
var unknownAlias = regexp.MustCompile(`^unknown anchor '.*' referenced$`)

// yamlError notes an error of the YAML parser. Its text names characters and tokens, never a value.
func (r *report) yamlError(err error) {
	text := err.Error()
	at := position{1, 1}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if line, err := strconv.Atoi(m[1]); err == nil {
			at.line = line
		}
	}
	if unknownAlias.MatchString(text) {
		text = "an alias of no anchor; a value that begins with * stands in quotes"
	}
	if strings.Contains(text, "cannot start any token") {
		text += "; a line is indented by spaces, not by tabs, and a value that begins with @ or ` stands in quotes"
	}
	r.add(SeverityError, at, "", "not valid YAML: "+text)
}

// checkNode notes what a reader could misunderstand in n, which stands at path, and all below it. It repeats no name of
// an anchor or type: a secret without quotes may be one.
func checkNode(n *yaml.Node, path string, r *report) {
	at := position{n.Line, n.Column}
	switch {
	case n.Kind == yaml.AliasNode:
		r.add(SeverityError, at, path, "an alias; write the value out, in quotes if it begins with *")
		return
	case n.Anchor != "":
		r.add(SeverityError, at, path, "an anchor; remove it, and write the value out where it is used, in quotes if it begins with &")
	case n.Style&yaml.TaggedStyle != 0:
		r.add(SeverityError, at, path, "an explicit type; remove it, or put the value in quotes if it begins with !")
	}
	switch n.Kind {
	case yaml.MappingNode:
		checkMapping(n, path, r)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			checkNode(item, fmt.Sprintf("%s[%d]", path, i), r)
		}
	}
}

func checkMapping(n *yaml.Node, path string, r *report) {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := position{key.Line, key.Column}
		if key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			r.add(SeverityError, at, path, "<< is a merge key; write the fields out")
			continue
		}
		checkNode(key, path, r)
		if key.Kind != yaml.ScalarNode {
			if key.Kind != yaml.AliasNode {
				r.add(SeverityError, at, path, "a key is a plain name, not a list or a mapping")
			}
			continue
		}
		inner := join(path, key.Value)
		if line, ok := seen[key.Value]; ok {
			r.add(SeverityError, at, inner, fmt.Sprintf("stands twice, first in line %d; remove one", line))
			continue
		}
		seen[key.Value] = key.Line
		checkNode(value, inner, r)
	}
}

// plainName is a key that a path shows as it is; others are quoted, so that no file can forge a line of a message.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// join appends a field to a path.
func join(path, field string) string {
	if !plainName.MatchString(field) {
		field = quote(field)
	}
	if path == "" {
		return field
	}
	return path + "." + field
}

// quote shows a word of the file in a message: bounded, and on one line.
func quote(s string) string {
	const longest = 64
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return strconv.Quote(s)
}
