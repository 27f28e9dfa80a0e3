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
		{"a version of an id that is not open", func(tx *store.Tx) error {
			return moveVersions(tx, "done", func(v *versionRow) {
				v.Open = append(v.Open, openVersion{"n1", appendKey(nil, boltRequest("done").Key)})
			})
		}, "not open with it"},
		{"another version than the open id's", func(tx *store.Tx) error {
			return moveVersions(tx, "open", func(v *versionRow) { v.Open[0].At = "n9" })
		}, "not open with it"},
		{"an open id whose version is not known", func(tx *store.Tx) error {
			return moveVersions(tx, "open", func(v *versionRow) { v.Open = nil })
		}, "is not with its object"},
		{"an object of which nothing is known", func(tx *store.Tx) error {
			return tx.Put(versionBucket, []byte("x"), (&versionRow{Last: 1}).appendTo(nil))
		}, "nothing is known"},
		{"a version that is cut off", func(tx *store.Tx) error { return tx.Put(versionBucket, []byte("x"), []byte{rowVersion << 4, 1, 9}) }, "cut off"},
		{"content of no id", func(tx *store.Tx) error { return tx.Put(contentBucket, []byte("x"), []byte{rowVersion << 4}) }, "cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			b := openFigures(t, folder)
			b.mustFinish(t, boltRequest("done"))
			open := boltRequest("open")
			open.Version = Version{Object: [32]byte{1}, At: "n1"}
			b.mustClaim(t, open, Claimed)
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

// moveVersions changes what is known of the object of the claim with that id.
func moveVersions(tx *store.Tx, id string, f func(*versionRow)) error {
	return changeVersions(tx, appendKey(nil, boltRequest(id).Key), [32]byte{1}, f)
}
