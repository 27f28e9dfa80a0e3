package secret

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	const key = "whsec_thisisthekey"
	tests := []struct {
		name    string
		content string
		file    error // what a file of that content gives; nil: key
		other   error // what a variable or a value of that content gives; nil: key
	}{
		{"plain", key, nil, nil},
		// Only a file has a newline that its editor put there.
		{"newline", key + "\n", nil, ErrWhitespace},
		{"newline of Windows", key + "\r\n", nil, ErrWhitespace},
		{"two newlines", key + "\n\n", ErrWhitespace, ErrWhitespace},
		{"blank at the end", key + " ", ErrWhitespace, ErrWhitespace},
		{"blank before the newline", key + " \n", ErrWhitespace, ErrWhitespace},
		{"carriage return alone", key + "\r", ErrWhitespace, ErrWhitespace},
		{"blank at the start", " " + key, ErrWhitespace, ErrWhitespace},
		{"newline at the start", "\n" + key, ErrWhitespace, ErrWhitespace},
		{"tab at the end", key + "\t", ErrWhitespace, ErrWhitespace},
		// A no-break space is what is copied from a web page.
		{"no-break space at the end", key + "\u00a0", ErrWhitespace, ErrWhitespace},
		{"empty", "", ErrEmpty, ErrEmpty},
		{"newline only", "\n", ErrEmpty, ErrEmpty},
		{"blanks only", "   ", ErrEmpty, ErrEmpty},
		{"too long", strings.Repeat("k", MaxBytes+1), ErrTooLong, ErrTooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			checkLoad(t, Source{File: path}, key, tt.file)
			checkLoad(t, Source{Value: New([]byte(tt.content))}, key, tt.other)
		})
	}
	t.Run("longest", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "key")
		longest := strings.Repeat("k", MaxBytes)
		if err := os.WriteFile(path, []byte(longest+"\r\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		checkLoad(t, Source{File: path}, longest, nil)
	})
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		checkLoad(t, Source{File: filepath.Join(t.TempDir(), "key")}, "", fs.ErrNotExist)
	})
}

func TestLoadEnv(t *testing.T) {
	t.Setenv("SECRET_TEST_GOOD", "0123456789abcdef")
	t.Setenv("SECRET_TEST_NEWLINE", "0123456789abcdef\n")
	t.Setenv("SECRET_TEST_EMPTY", "")
	checkLoad(t, Source{Env: "SECRET_TEST_GOOD"}, "0123456789abcdef", nil)
	checkLoad(t, Source{Env: "SECRET_TEST_NEWLINE"}, "", ErrWhitespace)
	checkLoad(t, Source{Env: "SECRET_TEST_EMPTY"}, "", ErrEmpty)
	checkLoad(t, Source{Env: "SECRET_TEST_UNSET"}, "", ErrUnset)
}

// checkLoad loads s and holds it to want, or to the error; an error never repeats the secret.
func checkLoad(t *testing.T, s Source, want string, wantErr error) {
	t.Helper()
	got, err := s.Load()
	if !errors.Is(err, wantErr) {
		t.Errorf("Load() error = %v, want %v", err, wantErr)
	}
	if err != nil {
		if strings.Contains(err.Error(), "thisisthekey") || strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("the error repeats the secret: %v", err)
		}
		return
	}
	if wantErr == nil && string(got.Bytes()) != want {
		t.Errorf("Load() = %q, want %q", got.Bytes(), want)
	}
}
