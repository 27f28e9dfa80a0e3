package netguard

import (
	"fmt"
	"strings"
)

// reservedTLDs are the last labels of names that no public server has, with what they are for. A resolver near us may
// know them all the same, which is how they lead inside.
var reservedTLDs = map[string]string{
	"localhost":   "this host (RFC 6761)",
	"localdomain": "this host, in /etc/hosts",
	"local":       "multicast DNS (RFC 6762) and Kubernetes services",
	"internal":    "private networks (reserved by ICANN), among them metadata services and container hosts",
	"intranet":    "private networks",
	"private":     "private networks",
	"lan":         "private networks",
	"home":        "private networks (never delegated, ICANN 2018)",
	"corp":        "private networks (never delegated, ICANN 2018)",
	"mail":        "private networks (never delegated, ICANN 2018)",
	"consul":      "Consul services",
	"onion":       "Tor, and is never looked up in DNS (RFC 7686)",
	"alt":         "names outside DNS (RFC 9476)",
	"arpa":        "infrastructure (RFC 3172), home.arpa for homes (RFC 8375)",
}

// judgeName judges a name in canonical form by the lists and by reservedTLDs; nil: it passes.
func (f *Filter) judgeName(name string) *Refusal {
	switch {
	case f.denyNames.holds(name):
		return &Refusal{Verdict: VerdictDeniedName, Host: name}
	case f.allowNames.holds(name):
		return nil
	}
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return &Refusal{Verdict: VerdictReservedName, Host: name,
			Detail: "it has a single label; write the whole name, or, if a resolver near you knows this one, add it to filter.allow_names"}
	}
	if use, reserved := reservedTLDs[name[dot+1:]]; reserved {
		return &Refusal{Verdict: VerdictReservedName, Host: name,
			Detail: fmt.Sprintf(".%s is for %s; if the name is meant, add it to filter.allow_names", name[dot+1:], use)}
	}
	return nil
}

// nameList is a list of names in canonical form: those that are meant themselves, and those, with their leading dot, below
// which all are meant.
type nameList struct {
	names    map[string]struct{}
	suffixes []string
}

func newNameList(entries []string) (nameList, error) {
	l := nameList{names: make(map[string]struct{}, len(entries))}
	for _, e := range entries {
		name, below := strings.CutPrefix(e, ".")
		canonical, addr, err := canonicalHost(name)
		switch {
		case err != nil:
			return l, fmt.Errorf("%q: %w", e, err)
		case addr.IsValid():
			return l, fmt.Errorf("%q is an address; write it into allow or deny", e)
		case below:
			l.suffixes = append(l.suffixes, "."+canonical)
		default:
			l.names[canonical] = struct{}{}
		}
	}
	return l, nil
}

func (l *nameList) holds(name string) bool {
	if _, ok := l.names[name]; ok {
		return true
	}
	for _, s := range l.suffixes {
		if strings.HasSuffix(name, s) { // never all of it: no name begins with a dot
			return true
		}
	}
	return false
}
