package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Errors of a Folder, beside those of a Source.
var (
	// ErrNoFile: the folder has no file of that name. A folder of that name is none.
	ErrNoFile = errors.New("there is no such file")
	// ErrNotRegular: what bears the name is a device, a pipe or a socket.
	ErrNotRegular = errors.New("it is no regular file")
	// ErrFolder: the folder itself cannot be read, so that nobody knows what is in it.
	ErrFolder = errors.New("the folder of secrets cannot be read")
)

const (
	// settled is how old a file must be for its times to tell it from its next version: some file systems count in
	// seconds, one of them in two.
	settled = 2 * time.Second
	// maxSwaps is how often a name is looked up again whose link led nowhere. The folders of Kubernetes replace a link and
	// remove what it led to, and a look-up between the two has to begin anew.
	maxSwaps = 8
)

// Folder is a folder in which every file is a secret. No name leads out of it: not with "..", not by a link. It holds
// nothing open, so that a folder which is replaced as a whole is read as it is now.
type Folder struct {
	path string
}

// NewFolder returns the folder at path. Nothing is read.
func NewFolder(path string) Folder { return Folder{path: path} }

// Path returns the path that NewFolder got.
func (f Folder) Path() string { return f.path }

// Print tells whether a file may have changed. The zero Print is that of no file.
type Print struct {
	info    fs.FileInfo
	settled bool
	unsure  bool // nobody could look: the same as nothing
}

// Same reports whether what had the print p when it was read is for certain what has o now.
func (p Print) Same(o Print) bool {
	if p.unsure || o.unsure {
		return false
	}
	if p.info == nil || o.info == nil {
		return p.info == nil && o.info == nil
	}
	return p.settled && os.SameFile(p.info, o.info) && p.info.Size() == o.info.Size() && p.info.ModTime().Equal(o.info.ModTime())
}

func printOf(info fs.FileInfo) Print {
	return Print{info: info, settled: time.Since(info.ModTime()) > settled}
}

// Load reads the secret in the file of that name, by the rules for a Source's file. The print is the file's also where
// the secret is not fit. Errors are ErrNoFile, ErrNotRegular, ErrFolder, those of Source.Load, or the file system's, each
// wrapped with the file's path.
func (f Folder) Load(name string) (Secret, Print, error) {
	var text []byte
	p, err := f.open(name, func(file *os.File) (err error) {
		text, err = io.ReadAll(io.LimitReader(file, MaxBytes+3))
		return err
	})
	if err == nil {
		text = trimNewline(text)
		err = check(text)
	}
	if err != nil {
		p.unsure = p.info == nil && !errors.Is(err, ErrNoFile)
		return Secret{}, p, fmt.Errorf("file %s: %w", filepath.Join(f.path, name), err)
	}
	return New(text), p, nil
}

// Stat returns the prints of the files of those names, without reading them: the zero one where Load returns ErrNoFile. It is
// made to be called often, and costs a system call or two for each name; a link that leads out of the folder, which Load
// refuses, it follows to nothing but its print.
func (f Folder) Stat(names ...string) ([]Print, error) {
	prints := make([]Print, len(names))
	none := true
	for i, name := range names {
		path := f.path + string(filepath.Separator) + name
		info, err := again(path, os.Stat, os.Lstat)
		switch {
		case strings.ContainsRune(name, filepath.Separator):
			return nil, fmt.Errorf("file %s: a name has no separator", path)
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("file %s: %w", path, err)
		case info.Mode().IsRegular():
			prints[i] = printOf(info)
		default:
			prints[i].unsure = !info.IsDir()
		}
		none = false
	}
	if none {
		if _, err := os.Stat(f.path); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFolder, err)
		}
	}
	return prints, nil
}

// again looks a name up until its link, if it is one, leads somewhere.
func again[T any](name string, look func(string) (T, error), link func(string) (fs.FileInfo, error)) (found T, err error) {
	for range maxSwaps {
		if found, err = look(name); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if _, gone := link(name); gone != nil {
			break
		}
	}
	return found, err
}

// open hands the file of that name to read.
func (f Folder) open(name string, read func(*os.File) error) (Print, error) {
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return Print{}, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	defer root.Close()
	file, err := again(name, func(name string) (*os.File, error) {
		// Whoever opens a pipe would wait for its writer.
		return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}, root.Lstat)
	if errors.Is(err, fs.ErrNotExist) {
		return Print{}, ErrNoFile
	}
	if err != nil {
		return Print{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return Print{}, err
	case info.IsDir():
		return Print{}, ErrNoFile
	case !info.Mode().IsRegular():
		return Print{}, ErrNotRegular
	}
	return printOf(info), read(file)
}
