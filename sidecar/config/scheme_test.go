package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// The schema's Scheme and signature.Spec are one language: the same names on every level.
func TestSchemeIsSpec(t *testing.T) {
	t.Parallel()
	sameFields(t, "scheme", (&configv1.Scheme{}).ProtoReflect().Descriptor(), reflect.TypeFor[signature.Spec]())
}

func sameFields(t *testing.T, path string, md protoreflect.MessageDescriptor, spec reflect.Type) {
	t.Helper()
	inSpec := jsonFields(spec)
	names := fieldNames(md)
	for name := range inSpec {
		if !slices.Contains(names, name) {
			t.Errorf("%s.%s is in signature.Spec and not in the schema", path, name)
		}
	}
	for i := range md.Fields().Len() {
		field := md.Fields().Get(i)
		inner := path + "." + string(field.Name())
		of, ok := inSpec[string(field.Name())]
		if !ok {
			t.Errorf("%s is in the schema and not in signature.Spec", inner)
			continue
		}
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if field.Message() != nil {
			sameFields(t, inner, field.Message(), of)
		}
		if (field.Kind() == protoreflect.EnumKind) != (of.Kind() == reflect.String && of.Name() != "string") {
			t.Errorf("%s is %v in the schema and %v in signature.Spec", inner, field.Kind(), of)
		}
	}
}

// jsonFields are the fields of t by their names in JSON, those of embedded structs among them.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for f := range t.Fields() {
		if f.Anonymous {
			maps.Copy(all, jsonFields(f.Type))
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		all[name] = f.Type
	}
	return all
}

// The words of both are the same too.
func TestSchemeWords(t *testing.T) {
	t.Parallel()
	sameWords(t, configv1.Algorithm(0), signature.HMACSHA1, signature.HMACSHA256, signature.HMACSHA384, signature.HMACSHA512,
		signature.Ed25519, signature.ECDSAP256, signature.RSAPKCS1SHA256, signature.RSAPSSSHA256, signature.SHA256,
		signature.Token, signature.Basic, signature.SHA1, signature.RSAPKCS1SHA512, signature.RSAPKCS1SHA1, signature.MTLS)
	sameWords(t, configv1.KeyFormat(0), signature.KeyText, signature.KeyBase64, signature.KeyHex, signature.KeyWhsec,
		signature.KeyPEM, signature.KeyJWKS, signature.KeySHA1)
	sameWords(t, configv1.Encoding(0), signature.Hex, signature.Base64, signature.Base64URL)
	sameWords(t, configv1.SignatureLayout(0), signature.DER, signature.Raw)
	sameWords(t, configv1.TimeUnit(0), signature.Seconds, signature.Milliseconds, signature.RFC3339, signature.ISO8601)
	sameWords(t, configv1.TimeWindow(0), signature.Both, signature.Past)
	sameWords(t, configv1.BodyForm(0), signature.Wire, signature.Decoded)
	sameWords(t, configv1.UrlForm(0), signature.URLExact, signature.URLTwilio, signature.URLHubSpot)
}

func sameWords[T ~string](t *testing.T, of protoreflect.Enum, words ...T) {
	t.Helper()
	var want []string
	for _, w := range words {
		want = append(want, string(w))
	}
	if got := enumNames(of.Descriptor()); !slices.Equal(got, want) {
		t.Errorf("%s has %v in the schema and %v in internal/signature", of.Descriptor().FullName(), got, want)
	}
}

func TestParseSchemeFile(t *testing.T) {
	t.Parallel()
	const fields = `algorithm: HMAC_SHA256
key: TEXT
signed: "{timestamp}.{body}"
signature: {header: X-Acme-Signature, encoding: HEX, list: ",", key_value: v1}
timestamp: {header: X-Acme-Time, unit: SECONDS}
id: {header: X-Acme-Id}
type: {json: type}
body: WIRE
`
	want := signature.Spec{
		Algorithm: signature.HMACSHA256, Key: signature.KeyText, Signed: "{timestamp}.{body}",
		Signature: signature.SignatureSpec{
			ValueSpec: signature.ValueSpec{Header: "X-Acme-Signature"}, Encoding: signature.Hex, List: ",", KeyValue: "v1",
		},
		Timestamp: &signature.TimestampSpec{ValueSpec: signature.ValueSpec{Header: "X-Acme-Time"}, Unit: signature.Seconds},
		ID:        &signature.IDSpec{ValueSpec: signature.ValueSpec{Header: "X-Acme-Id"}},
		Type:      &signature.ValueSpec{JSON: "type"},
		Body:      signature.Wire,
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"fields.yaml": fields, "key.yaml": "scheme:\n" + indent(fields)} {
		got, err := ParseSchemeFile(writeFile(t, dir, name, text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for text, want := range map[string]string{
		"scheme: {algorithm: HMAC_SHA257}":                                  "s.yaml:1:21: scheme.algorithm: ",
		"algorithm: HMAC_SHA256\nsignature: {header: X}\nsigned: \"{no}\"":  "s.yaml:3:9: signed: ",
		"{signature: {header: X}}":                                          "s.yaml:1:1: algorithm: is required",
		"scheme: {signature: {header: X}}":                                  "s.yaml:1:9: scheme.algorithm: is required",
		"algorithm: HMAC_SHA256\nsignature: {header: X, others: [ok, a b]}": "s.yaml:2:37: signature.others[1]: ",
		"scheme: {}\nalgorithm: HMAC_SHA256":                                "s.yaml:1:1: scheme: unknown field",
	} {
		if _, err := parseScheme("s.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s…", text, err, want)
		}
	}
}
