package extauthz

import (
	"slices"
	"testing"

	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
)

// wireLogs are access log messages by what is odd about them.
func wireLogs(t testing.TB) map[string][]byte {
	one := mustMarshal(t, entryOf(testRef("evt_1"), appDone))
	common := mustMarshal(t, entryOf(testRef("evt_1"), appDone).GetCommonProperties())
	md := func(parts ...[]byte) []byte { return part(2, part(1, part(1, part(17, parts...), number(33, 6)))) }
	ns := func(parts ...[]byte) []byte { return part(1, text(1, metadataNamespace), part(2, parts...)) }
	field := func(value ...[]byte) []byte { return part(1, text(1, metadataKey), part(2, value...)) }
	response := func(parts ...[]byte) []byte { return part(2, part(1, part(1, common), part(4, parts...))) }
	return map[string][]byte{
		"nothing":                    {},
		"usual":                      mustMarshal(t, batchOf(entryOf(testRef("evt_1"), appDone), entryOf("", appDone), entryOf(testRef("evt_2"), report{}))),
		"entries in two parts":       slices.Concat(part(2, part(1, one)), part(2, part(1, one))),
		"TCP after HTTP":             slices.Concat(part(2, part(1, one)), part(3)),
		"HTTP after TCP":             slices.Concat(part(3), part(2, part(1, one))),
		"entry twice over":           part(2, part(1, one, one)),
		"common in two parts":        part(2, part(1, part(1, common), part(1, number(24, 9)))),
		"response in two parts":      part(2, part(1, part(1, common), part(4, text(6, "via_upstream")), part(4, part(1, number(1, 204))))),
		"code in two parts":          response(part(1, number(1, 200)), part(1, number(1, 201))),
		"code told twice":            response(part(1, number(1, 200), number(1, 201))),
		"code beyond 32 bits":        response(part(1, number(1, 1<<40|200))),
		"code of zero":               response(part(1)),
		"attempts beyond 32 bits":    part(2, part(1, part(1, common, number(24, 1<<33|2)))),
		"kind below zero":            part(2, part(1, part(1, common, number(33, 1<<64-1)))),
		"intermediate":               part(2, part(1, part(1, common, number(27, 2)))),
		"metadata in two parts":      part(2, part(1, part(1, part(17, ns(field(text(3, "a")))), part(17, ns(field(text(3, "b"))))))),
		"namespace twice":            md(ns(field(text(3, "a"))), ns(field(text(3, "b")))),
		"namespace taken back":       md(ns(field(text(3, "a"))), ns()),
		"namespace without a value":  md(ns(field(text(3, "a"))), part(1, text(1, metadataNamespace))),
		"value in two parts":         md(part(1, text(1, metadataNamespace), part(2, field(text(3, "a"))), part(2, field(text(3, "b"))))),
		"key twice":                  md(ns(field(text(3, "a")), field(text(3, "b")))),
		"key then number":            md(ns(field(text(3, "a")), field(number(4, 1)))),
		"key's value in two parts":   md(ns(part(1, text(1, metadataKey), part(2, text(3, "a")), part(2, text(3, "b"))))),
		"string then bool":           md(ns(field(text(3, "a"), number(4, 1)))),
		"bool then string":           md(ns(field(number(4, 1), text(3, "a")))),
		"string of an unknown field": md(ns(field(text(9, "a")))),
		"value before key":           md(part(1, part(2, part(1, part(2, text(3, "a")), text(1, metadataKey))), text(1, metadataNamespace))),
		"unknown fields":             slices.Concat(number(90, 1), part(2, text(77, "x"), part(1, one, text(88, "y")))),
		"details are not UTF-8":      response(text(6, "\xff")),
		"cut":                        part(2, part(1, one))[:40],
	}
}

func TestWireLogAgrees(t *testing.T) {
	t.Parallel()
	for name, msg := range wireLogs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareLogs(t, msg)
		})
	}
}

// compareLogs demands that whatever the generated code takes is read alike. What it refuses as a whole is read as far
// as it goes, and then something is counted as malformed, unless the fault lies where we never look.
func compareLogs(t *testing.T, msg []byte) {
	t.Helper()
	var got logBatch
	got.decode(msg)
	var m accesslogv3.StreamAccessLogsMessage
	if err := proto.Unmarshal(msg, &m); err != nil {
		return
	}
	if got.malformed != 0 {
		t.Fatalf("%d malformed; the generated code takes it", got.malformed)
	}
	var want []logEntry
	for _, e := range m.GetHttpLogs().GetLogEntry() {
		if entry := logEntryOf(e); entry.ref != "" {
			want = append(want, entry)
		}
	}
	if diff := cmp.Diff(got.entries, want, cmp.AllowUnexported(logEntry{}, report{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("entries (-lean +generated):\n%s", diff)
	}
}

func FuzzWireLog(f *testing.F) {
	for _, msg := range wireLogs(f) {
		f.Add(msg)
	}
	f.Fuzz(compareLogs)
}

// Entries of an earlier message must not show in a later one that is read into the same batch.
func TestWireLogReuse(t *testing.T) {
	t.Parallel()
	var b logBatch
	b.decode(mustMarshal(t, batchOf(entryOf(testRef("evt_1"), appDone), entryOf(testRef("evt_2"), appDone))))
	b.decode([]byte{0xff})
	if len(b.entries) != 0 || b.malformed != 1 {
		t.Errorf("%d entries, %d malformed, want 0, 1", len(b.entries), b.malformed)
	}
	b.decode(nil)
	if len(b.entries) != 0 || b.malformed != 0 {
		t.Errorf("%d entries, %d malformed, want none", len(b.entries), b.malformed)
	}
}

func BenchmarkWireLog(b *testing.B) {
	entries := make([]*accesslogdatav3.HTTPAccessLogEntry, 100)
	for i := range entries {
		entries[i] = entryOf(testRef("evt_1"), appDone)
	}
	msg := mustMarshal(b, batchOf(entries...))
	b.Run("lean", func(b *testing.B) {
		b.ReportAllocs()
		var batch logBatch
		for b.Loop() {
			batch.decode(msg)
			if len(batch.entries) != len(entries) {
				b.Fatal(len(batch.entries))
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m accesslogv3.StreamAccessLogsMessage
			if err := proto.Unmarshal(msg, &m); err != nil {
				b.Fatal(err)
			}
			batch := logBatch{}
			for _, e := range m.GetHttpLogs().GetLogEntry() {
				batch.entries = append(batch.entries, logEntryOf(e))
			}
			if len(batch.entries) != len(entries) {
				b.Fatal(len(batch.entries))
			}
		}
	})
}
