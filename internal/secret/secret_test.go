package secret

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// material has neither a digit nor a letter of redacted's in a row, so that a part of it is found too.
const material = "kQ7zWm9Xv2Lp"

// leaks reports whether out holds the secret, or a part of it, in any of the forms that printers use.
func leaks(out string) bool {
	part := []byte(material[:4])
	forms := []string{
		string(part),
		fmt.Sprintf("%x", part), fmt.Sprintf("%X", part), fmt.Sprintf("% x", part),
		strings.Trim(fmt.Sprint(part), "[]"),               // %d of bytes
		strings.Trim(fmt.Sprintf("%#v", part), "[]byte{}"), // %#v of bytes
		strings.Trim(fmt.Sprintf("%o", part), "[]"),
		strings.Trim(fmt.Sprintf("%b", part), "[]"),
		"a1E3eldt", // base64 of kQ7zWm
	}
	for _, form := range forms {
		if strings.Contains(out, form) {
			return true
		}
	}
	return false
}

func TestNoVerbPrints(t *testing.T) {
	t.Parallel()
	s := New([]byte(material))
	type holder struct {
		Name   string
		Secret Secret
	}
	values := map[string]any{
		"value":    s,
		"pointer":  &s,
		"slice":    []Secret{s},
		"map":      map[string]Secret{"k": s},
		"struct":   holder{"n", s},
		"pointers": &holder{"n", s},
		"any":      []any{s},
	}
	for name, v := range values {
		for _, verb := range "vTtbcdoOqxXUeEfFgGsp" {
			for _, flags := range []string{"", "+", "#", " ", "0", "-", "20.10", "#+"} {
				format := "%" + flags + string(verb)
				if out := fmt.Sprintf(format, v); leaks(out) {
					t.Errorf("%s under %s prints the secret: %s", name, format, out)
				}
			}
		}
	}
	if !leaks(fmt.Sprint([]byte(material))) || !leaks(fmt.Sprintf("%#v", []byte(material))) {
		t.Error("the test does not see bytes that were printed")
	}
}

func TestNoEncoderPrints(t *testing.T) {
	t.Parallel()
	s := New([]byte(material))
	type holder struct{ Secret Secret }
	encoders := map[string]func(w *bytes.Buffer) error{
		"json": func(w *bytes.Buffer) error { return json.NewEncoder(w).Encode(holder{s}) },
		"json key": func(w *bytes.Buffer) error {
			return json.NewEncoder(w).Encode(map[string]any{"list": []any{s, &s}})
		},
		"xml":  func(w *bytes.Buffer) error { return xml.NewEncoder(w).Encode(holder{s}) },
		"yaml": func(w *bytes.Buffer) error { return yaml.NewEncoder(w).Encode(holder{s}) },
		"slog text": func(w *bytes.Buffer) error {
			slog.New(slog.NewTextHandler(w, nil)).Info("m", "s", s, "p", &s, "h", holder{s}, slog.Any("g", []Secret{s}))
			return nil
		},
		"slog json": func(w *bytes.Buffer) error {
			slog.New(slog.NewJSONHandler(w, nil)).Info("m", "s", s, "p", &s, "h", holder{s}, slog.Any("g", []Secret{s}))
			return nil
		},
		"template": func(w *bytes.Buffer) error {
			return template.Must(template.New("").Parse(`{{.}} {{printf "%d" .}}`)).Execute(w, s)
		},
	}
	for name, encode := range encoders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w bytes.Buffer
			if err := encode(&w); err != nil {
				t.Fatal(err)
			}
			if leaks(w.String()) {
				t.Errorf("prints the secret: %s", w.String())
			}
			if !strings.Contains(w.String(), redacted) {
				t.Errorf("does not say that something was left out: %s", w.String())
			}
		})
	}
	t.Run("gob", func(t *testing.T) {
		t.Parallel()
		var w bytes.Buffer
		if err := gob.NewEncoder(&w).Encode(holder{s}); err == nil && leaks(w.String()) {
			t.Errorf("gob holds the secret: %q", w.String())
		}
	})
}
