package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Severity says what a Finding means for the configuration that it was found in. The zero value is invalid.
type Severity uint8

const (
	_ Severity = iota
	// SeverityWarning is something that works and that a person should know about.
	SeverityWarning
	// SeverityError makes the configuration invalid.
	SeverityError
)

// String returns "warning" or "error".
func (s Severity) String() string {
	switch s {
	case SeverityWarning:
		return "warning"
	case SeverityError:
		return "error"
	default:
		return "invalid"
	}
}

// Finding is one thing that is wrong with a configuration, or right but dangerous. Errors of this package are Findings,
// joined where there are several. It never holds a secret.
type Finding struct {
	Severity Severity
	// File, Line and Column say where it stands; Line and Column count from 1, columns in characters. They are 0
	// where nothing is written that could be pointed at.
	File         string
	Line, Column int
	// Path is the field, such as extauthz.sources[0].mode; empty for the file as a whole.
	Path string
	// Message says what is wrong and what to do.
	Message string
}

// Error returns "FILE:LINE:COLUMN: PATH: MESSAGE".
func (f Finding) Error() string { return f.String() }

// String returns what Error returns.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// Findings returns the Findings that err is made of, in the order in which they stand in the file; none if err holds none.
func Findings(err error) []Finding {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var all []Finding
		for _, inner := range joined.Unwrap() {
			all = append(all, Findings(inner)...)
		}
		return all
	}
	if f, ok := errors.AsType[*Finding](err); ok {
		return []Finding{*f}
	}
	return nil
}

// report collects what is found in one file.
type report struct {
	file     string
	index    index
	findings []*Finding
}

// errorf notes an error at the field path, or at what is written closest around it.
func (r *report) errorf(path, format string, args ...any) {
	r.add(SeverityError, r.index.closest(path), path, fmt.Sprintf(format, args...))
}

// warnf notes a warning at the field path, or at what is written closest around it.
func (r *report) warnf(path, format string, args ...any) {
	r.add(SeverityWarning, r.index.closest(path), path, fmt.Sprintf(format, args...))
}

func (r *report) add(s Severity, at position, path, message string) {
	r.findings = append(r.findings, &Finding{
		Severity: s, File: r.file, Line: at.line, Column: at.column, Path: path, Message: message,
	})
}

// failed reports whether an error was noted at path or below it; "" asks for any.
func (r *report) failed(path string) bool {
	return slices.ContainsFunc(r.findings, func(f *Finding) bool {
		return f.Severity == SeverityError && within(f.Path, path)
	})
}

// within reports whether path is outer or a part of it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// err returns the errors, joined in the order of the file; nil if there are none.
func (r *report) err() error {
	var errs []error
	for _, f := range r.sorted(SeverityError) {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// warnings returns the warnings in the order of the file.
func (r *report) warnings() []Finding {
	var all []Finding
	for _, f := range r.sorted(SeverityWarning) {
		all = append(all, *f)
	}
	return all
}

func (r *report) sorted(s Severity) []*Finding {
	var all []*Finding
	for _, f := range r.findings {
		if f.Severity == s {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b *Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// position is a place in the file, counted from 1; zero: none.
type position struct{ line, column int }

// index says where each field stands that is written in a file, by its path; "" is the file's own beginning.
type index map[string]position

// closest returns where path stands or, if it is not written, what is written closest around it.
func (x index) closest(path string) position {
	for {
		if at, ok := x[path]; ok || path == "" {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}
