package extauthz

import (
	"strings"
	"testing"

	"github.com/sidehook/sidehook/internal/store"
)

// TestRowCheckFinds plants what only the inbox can know to be wrong, in a file whose pages are sound.
func TestRowCheckFinds(t *testing.T) {
	t.Parallel()
	done := row{State: StateDone, First: 1, Last: 1}
	for _, tt := range []struct {
		name  string
		plant func(tx *store.Tx) error
		want  string
	}{
		{"nothing", func(*store.Tx) error { return nil }, ""},
		{"a row that cannot be read", func(tx *store.Tx) error {
			return tx.Put(doneBucket, appendKey(nil, Key{Source: "s", ID: "bad"}), []byte{0xff})
		}, "malformed inbox row"},
		{"a key that cannot be read", func(tx *store.Tx) error { return tx.Put(doneBucket, []byte{0xff}, done.appendTo(nil)) }, "key without source"},
		{"a done row among the open ones", func(tx *store.Tx) error {
			return putRow(tx, openBucket, appendKey(nil, Key{Source: "s", ID: "x"}), &done)
		}, "state DONE in bucket"},
		{"an id that is open and done", func(tx *store.Tx) error {
			return putRow(tx, doneBucket, appendKey(nil, boltRequest("open").Key), &done)
		}, "open and done"},
		{"a row that is not counted", func(tx *store.Tx) error {
			return tx.Put(doneBucket, appendKey(nil, Key{Source: "s", ID: "x"}), done.appendTo(nil))
		}, "says 0 rows"},
		{"a count of rows that are not there", func(tx *store.Tx) error {
			return tx.Put(countBucket, countKey{"s", StateDone, 1}.encode(), count{7, 70}.encode())
		}, "says 7 rows: there are none"},
		{"content of no id", func(tx *store.Tx) error { return tx.Put(contentBucket, []byte("x"), []byte{rowVersion << 4}) }, "cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			b := openFigures(t, folder)
			b.mustFinish(t, boltRequest("done"))
			b.mustClaim(t, boltRequest("open"), Claimed)
			b.close(t)
			s, err := store.Open(t.Context(), store.Options{Folder: folder})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Setup(tt.plant); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			report, err := store.Check(t.Context(), s.Path(), &RowCheck{})
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if len(report.Problems) != 0 {
					t.Errorf("problems: %v", report.Problems)
				}
				return
			}
			for _, p := range report.Problems {
				if strings.Contains(p.Error(), tt.want) {
					return
				}
			}
			t.Errorf("problems: %v, want one with %q", report.Problems, tt.want)
		})
	}
}
