package egress

import "testing"

// The hashes are those of printf %s URL | sha256sum.
func TestLoggedURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, raw, want string }{
		{"path and query are left out", "https://hooks.example.com:8443/in/SECRET?t=SECRET", "https://hooks.example.com:8443 8e7ee126"},
		{"a password too", "https://u:SECRET@hooks.example.com/", "https://hooks.example.com c2b247e8"},
		{"what is no URL", "https://SECRET in the host", "unreadable 062cff90"},
		{"nothing", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := LoggedURL(tt.raw); got != tt.want {
				t.Errorf("LoggedURL = %q, want %q", got, tt.want)
			}
		})
	}
}
