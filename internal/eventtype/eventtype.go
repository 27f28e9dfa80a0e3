// Package eventtype matches types of events, such as invoice.paid, with patterns: those that an endpoint wants, and those that
// a source lets through.
package eventtype

import "strings"

// Matches reports whether pattern matches the type t: the same text, or "*" for all, or one that ends in "*", such as
// invoice.*, for all that begin with what stands before it and go on.
func Matches(pattern, t string) bool {
	head, open := strings.CutSuffix(pattern, "*")
	switch {
	case !open:
		return t == pattern
	case head == "":
		return true
	}
	return strings.HasPrefix(t, head) && len(t) > len(head)
}
