package config

import (
	"strings"
	"testing"
)

func TestParseListen(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in        string
		pod, open string // what is made of it for the pod alone and for everyone; empty: refused
	}{
		{"127.0.0.1:9191", "127.0.0.1:9191", "127.0.0.1:9191"},
		{"127.9.9.9:1", "127.9.9.9:1", "127.9.9.9:1"},
		{"localhost:9191", "127.0.0.1:9191", "127.0.0.1:9191"},
		{"[::1]:9191", "[::1]:9191", "[::1]:9191"},
		{"[::ffff:127.0.0.1]:9191", "127.0.0.1:9191", "127.0.0.1:9191"},
		{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"},
		{"127.0.0.1:09191", "127.0.0.1:9191", "127.0.0.1:9191"},
		{":9394", "", ":9394"},
		{"0.0.0.0:9394", "", "0.0.0.0:9394"},
		{"[::]:9394", "", "[::]:9394"},
		{"10.0.0.1:9394", "", "10.0.0.1:9394"},
		{"unix:/run/sidehook/x.sock", "unix:/run/sidehook/x.sock", "unix:/run/sidehook/x.sock"},
		{"unix:/" + strings.Repeat("x", 106), "unix:/" + strings.Repeat("x", 106), "unix:/" + strings.Repeat("x", 106)},
		{"unix:/" + strings.Repeat("x", 107), "", ""},
		{"unix:x.sock", "", ""},
		{"unix:/run/../x.sock", "", ""},
		{"unix:", "", ""},
		{"9191", "", ""},
		{"127.0.0.1", "", ""},
		{"127.0.0.1:", "", ""},
		{"127.0.0.1:65536", "", ""},
		{"127.0.0.1:http", "", ""},
		{"127.1:9191", "", ""},
		{"sidehook:9191", "", ""}, // what a name stands for can change
		{"[fe80::1%lo]:9191", "", ""},
		{"::1:9191", "", ""},
		{"", "", ""},
	}
	for _, tt := range tests {
		for r, want := range map[reach]string{reachPod: tt.pod, reachAny: tt.open} {
			got, err := parseListen(tt.in, r)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("parseListen(%q, %d) = %q, %v, want %q", tt.in, r, got, err, want)
			}
		}
	}
}

func TestSameListen(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:1", "[::1]:1", false},
		{"127.0.0.1:1", ":1", true},
		{"0.0.0.0:1", "[::1]:1", true},
		{"127.0.0.1:0", "127.0.0.1:0", false}, // each gets a port of its own
		{":0", "127.0.0.1:0", false},
		{"127.0.0.1:10", "127.0.0.1:10", true},
		{"unix:/a", "unix:/a", true},
		{"unix:/a", "unix:/b", false},
		{"unix:/a:0", "unix:/a:0", true},
		{"unix:/a:1", ":1", false},
	}
	for _, tt := range tests {
		if got := sameListen(tt.a, tt.b); got != tt.want {
			t.Errorf("sameListen(%s, %s) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
		if got := sameListen(tt.b, tt.a); got != tt.want {
			t.Errorf("sameListen(%s, %s) = %v, want %v", tt.b, tt.a, got, tt.want)
		}
	}
}
