package httpguard

import (
	"errors"
	"net/http"
	"testing"
)

func TestLoopbackHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, host string
		want       bool
	}{
		{"the name", "localhost", true},
		{"the name with a port", "localhost:9292", true},
		{"in any case", "LOCALHOST:9292", true},
		{"IPv4", "127.0.0.1:9292", true},
		{"all of 127/8 is loopback", "127.9.9.9", true},
		{"IPv6 with a port", "[::1]:9292", true},
		{"IPv6 in brackets alone", "[::1]", true},
		{"IPv6 without brackets", "::1", true},
		{"no Host at all", "", false},
		{"another name", "sidehook.example:9292", false},
		{"a name that begins like it", "localhost.evil.example", false},
		{"a name that begins like the address", "127.0.0.1.evil.example", false},
		{"an address that browsers read as loopback", "0x7f.1", false},
		{"a decimal address", "2130706433", false},
		{"another address", "10.0.0.1", false},
		{"the unspecified address", "0.0.0.0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := LoopbackHost(tt.host); got != tt.want {
				t.Errorf("LoopbackHost(%q) = %t, want %t", tt.host, got, tt.want)
			}
		})
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		want   string
		values []string
		err    error
	}{
		{"none is asked for", "", nil, nil},
		{"none is asked for, one is shown", "", []string{"Bearer x"}, nil},
		{"the token", "s3cret", []string{"Bearer s3cret"}, nil},
		{"the scheme in any case", "s3cret", []string{"bearer s3cret"}, nil},
		{"none", "s3cret", nil, ErrNoToken},
		{"two headers", "s3cret", []string{"Bearer s3cret", "Bearer s3cret"}, ErrNoToken},
		{"another token", "s3cret", []string{"Bearer s3crets"}, ErrWrongToken},
		{"its beginning", "s3cret", []string{"Bearer s3cre"}, ErrWrongToken},
		{"another scheme", "s3cret", []string{"Basic s3cret"}, ErrWrongToken},
		{"no scheme", "s3cret", []string{"s3cret"}, ErrWrongToken},
		{"two blanks", "s3cret", []string{"Bearer  s3cret"}, ErrWrongToken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{"Authorization": tt.values}
			if err := Bearer(h, []byte(tt.want)); !errors.Is(err, tt.err) {
				t.Errorf("Bearer = %v, want %v", err, tt.err)
			}
		})
	}
}
