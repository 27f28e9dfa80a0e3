package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// outputFlag is -o: empty for people, json or yaml for programs.
type outputFlag string

// register adds -o to c.
func (f *outputFlag) register(c *cobra.Command) {
	c.Flags().VarP(f, "output", "o", "print `json|yaml` for programs instead of text for people")
}

// String implements pflag.Value.
func (f *outputFlag) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *outputFlag) Type() string { return "format" }

// Set implements pflag.Value.
func (f *outputFlag) Set(s string) error {
	if s != "json" && s != "yaml" {
		return fmt.Errorf("want json or yaml, not %q", s)
	}
	*f = outputFlag(s)
	return nil
}

// structured reports whether a program reads the output.
func (f outputFlag) structured() bool { return f != "" }

// print writes v, a proto.Message or a value with json tags, as one JSON or YAML document.
// Both formats have the same keys: YAML is made from the JSON. Keys of a message are those of its JSON mapping.
func (f outputFlag) print(w io.Writer, v any) error {
	data, err := jsonOf(v)
	if err != nil {
		return err
	}
	if f == "yaml" {
		return printYAML(w, data)
	}
	return printJSON(w, data)
}

func jsonOf(v any) ([]byte, error) {
	if m, ok := v.(proto.Message); ok {
		return protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	}
	return json.Marshal(v)
}

// printJSON writes data in a layout of its own: protojson varies its white space on purpose.
func printJSON(w io.Writer, data []byte) error {
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return fmt.Errorf("indent JSON: %w", err)
	}
	indented.WriteByte('\n')
	_, err := w.Write(indented.Bytes())
	return err
}

// printYAML rewrites JSON, which is YAML in flow style, in block style; the order of keys stays.
func printYAML(w io.Writer, data []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("rewrite JSON as YAML: %w", err)
	}
	blockStyle(&doc)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return enc.Close()
}

// blockStyle drops the flow style of maps and lists and the quotes of strings that need none.
func blockStyle(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && !oldBool(n.Value) {
		n.Style = 0 // the encoder quotes again where a plain scalar would read as another type
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// oldBool reports whether YAML 1.1, which many programs still read, takes a plain s for true or false.
func oldBool(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	}
	return false
}

// table prints rows in columns under a header. Cells are escaped by printable.
func table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, printable(cell))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// printable returns s with everything escaped that could move a terminal's cursor, change its colours, hide text or
// break a line: control and format characters, separators other than the blank, and bytes that are not UTF-8.
func printable(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return b.String()
}

// printableLines is printable for text of several lines.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}
