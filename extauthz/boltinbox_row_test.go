package extauthz

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRowRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.Custom(func(t *rapid.T) (tok Token) {
			copy(tok[:], rapid.SliceOfN(rapid.Byte(), len(tok), len(tok)).Draw(t, "token"))
			return tok
		})
		ms := rapid.Int64Range(0, 1<<44)
		want := row{
			State: rapid.SampledFrom(States[:]).Draw(t, "state"),
			First: ms.Draw(t, "first"),
			Last:  ms.Draw(t, "last"),
			Type:  rapid.SliceOfN(rapid.Byte(), 0, maxTypeBytes).Draw(t, "type"),
		}
		if want.State == StateStored {
			copy(want.Ref[:], rapid.SliceOfN(rapid.Byte(), len(want.Ref), len(want.Ref)).Draw(t, "ref"))
		}
		if want.State == StateIgnored {
			want.IgnoredFor = rapid.SampledFrom([]IgnoredFor{IgnoredForType, IgnoredForMode}).Draw(t, "ignored for")
		}
		if !want.State.settled() && rapid.Bool().Draw(t, "with a version") {
			want.Version.At = rapid.StringMatching(`n[0-9]{1,40}`).Draw(t, "version")
			want.Version.Object[0] = rapid.Byte().Draw(t, "object")
		}
		if !want.State.settled() {
			want.OnUnknown = rapid.SampledFrom([]OnUnknown{OnUnknownRetry, OnUnknownHold}).Draw(t, "on unknown")
			want.Start = ms.Draw(t, "start")
			want.Lease = time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "lease")) * time.Millisecond
			want.Epoch = rapid.Uint64().Draw(t, "epoch")
			want.Mono = ms.Draw(t, "mono")
			want.Token = token.Draw(t, "token")
			want.Older = rapid.SliceOfN(token, 0, maxOlderTokens).Draw(t, "older")
		}
		got, err := parseRow(want.appendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Type, want.Type) || !slices.Equal(got.Older, want.Older) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		got.Type, got.Older, want.Type, want.Older = nil, nil, nil, nil
		if got.State != want.State || got.First != want.First || got.Last != want.Last || got.OnUnknown != want.OnUnknown ||
			got.Start != want.Start || got.Lease != want.Lease || got.Epoch != want.Epoch || got.Mono != want.Mono || got.Token != want.Token || got.Ref != want.Ref {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestDoneRowIsSmall(t *testing.T) {
	t.Parallel()
	now := time.Now().UnixMilli()
	r := row{State: StateDone, First: now, Last: now, Type: []byte("invoice.paid"), Token: newToken(), Older: []Token{newToken()}, Lease: time.Minute}
	if n := len(r.appendTo(nil)); n > 24 {
		t.Errorf("%d bytes", n)
	}
}

// TestOldRowsAreRead: rows of before versions and modes, as they stand in files.
func TestOldRowsAreRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, row string
		want      State
	}{
		{"IGNORED", "\x15\x01\x02invoice.paid", StateIgnored},
		{"DONE", "\x13\x01\x02invoice.paid", StateDone},
		{"PENDING", "\x11\x01\x02\x01\x00\x0a\x01\x05" + strings.Repeat("t", 16) + "\x00invoice.paid", StatePending},
	} {
		r, err := parseRow([]byte(tt.row))
		if err != nil || r.State != tt.want || r.IgnoredFor != IgnoredForType || r.Version != (Version{}) || string(r.Type) != "invoice.paid" || r.Last != 2 {
			t.Errorf("%s: %+v, %v", tt.name, r, err)
		}
		if got := string(r.appendTo(nil)); got != tt.row {
			t.Errorf("%s: written as %q, want %q", tt.name, got, tt.row)
		}
	}
}

// FuzzParseRow: whatever stands in the file, reading it gives a row or an error.
func FuzzParseRow(f *testing.F) {
	open := row{State: StatePending, First: 1, Last: 2, OnUnknown: OnUnknownHold, Lease: time.Minute, Token: Token{1}, Older: []Token{{2}}, Type: []byte("t")}
	done := row{State: StateDone, First: 1 << 40, Last: 1}
	f.Add(open.appendTo(nil))
	f.Add(done.appendTo(nil))
	f.Add([]byte{})
	with := open
	with.Version = Version{Object: [32]byte{1}, At: "n1"}
	f.Add(with.appendTo(nil))
	f.Add([]byte{rowVersion<<4 | 9})
	f.Add([]byte{(rowVersion + 1) << 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRow(b)
		if err != nil {
			return
		}
		again, err := parseRow(r.appendTo(nil))
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if again.State != r.State || again.First != r.First || again.Token != r.Token || !bytes.Equal(again.Type, r.Type) {
			t.Fatalf("read %+v, and again %+v", r, again)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(appendKey(nil, Key{Source: "payments", ID: "evt_1"}))
	f.Add(appendKey(nil, Key{Source: "payments", Tenant: "t", ID: strings.Repeat("x", 300)}))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseKey(b)
		if err != nil || strings.HasPrefix(k.ID, shownHashPrefix) {
			return
		}
		again, err := parseKey(appendKey(nil, k))
		if err != nil || again != k {
			t.Fatalf("read %+v, and again %+v, %v", k, again, err)
		}
	})
}

func TestTruncateType(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"short", "invoice.paid", "invoice.paid"},
		{"as long as kept", strings.Repeat("x", maxTypeBytes), strings.Repeat("x", maxTypeBytes)},
		{"longer", strings.Repeat("x", maxTypeBytes+1), strings.Repeat("x", maxTypeBytes)},
		{"cut in a character", strings.Repeat("x", maxTypeBytes-1) + "é", strings.Repeat("x", maxTypeBytes-1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(truncateType(tt.in)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
