package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// The longest a label and a name may be, RFC 1035 section 2.3.4, the name without its final dot.
const (
	maxLabelBytes = 63
	maxNameBytes  = 253
)

// idn maps names as browsers and resolvers do today (UTS #46, not transitional: faß is not fass). Hyphens in the third and
// fourth place and underscores are in use and pass; how the ASCII of a name is made up is checkName's.
var idn = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.CheckJoiners(true),
	idna.CheckHyphens(false), idna.StrictDomainName(false))

var errNumeric = errors.New("a name does not end in a number; an IPv4 address has four decimal parts without leading zeros")

// canonicalHost returns a host as it is compared, resolved and sent: a name in lower case as A-labels without final dot,
// or the address that it is. Brackets are the caller's.
func canonicalHost(host string) (string, netip.Addr, error) {
	name, err := canonicalName(host)
	if err != nil {
		return "", netip.Addr{}, err
	}
	if !endsInNumber(name) {
		return name, netip.Addr{}, nil
	}
	// ParseAddr takes nothing but the four plain decimal parts: what it refuses here, others read as an address.
	a, err := netip.ParseAddr(name)
	if err != nil || len(name) != len(host) {
		return "", netip.Addr{}, errNumeric
	}
	return name, a, nil
}

// canonicalName is canonicalHost for what is a name or looks like one.
func canonicalName(host string) (string, error) {
	name := strings.TrimSuffix(host, ".")
	if isASCII(name) {
		name = strings.ToLower(name)
	} else {
		var err error
		if name, err = toASCII(name); err != nil {
			return "", err
		}
	}
	if err := checkName(name); err != nil {
		return "", err
	}
	if strings.HasPrefix(name, "xn--") || strings.Contains(name, ".xn--") {
		if back, err := idn.ToASCII(name); err != nil || back != name {
			return "", errors.New("a label that begins with xn-- is no valid IDN; write the name as it is spoken, or its A-label")
		}
	}
	return name, nil
}

// toASCII turns a name with other than ASCII characters into A-labels. A character that stands for ASCII ones (a
// full-width digit, an ideographic full stop, an enclosed letter) or for nothing is refused: it can only be there so that
// the name reads differently to people, to us and to whoever looks it up.
func toASCII(name string) (string, error) {
	for _, r := range name {
		if r < 0x80 {
			continue
		}
		if mapped, _ := idn.ToUnicode(string(r)); isASCII(mapped) {
			return "", fmt.Errorf("the character %U stands for %q; write that", r, mapped)
		}
	}
	ascii, err := idn.ToASCII(name)
	if err != nil {
		return "", errors.New("it is no valid internationalised name; write its A-labels (xn--…) or correct it")
	}
	return ascii, nil
}

// checkName checks labels and lengths of a name in lower-case ASCII. Underscores are in use in host names and pass.
func checkName(name string) error {
	if name == "" {
		return errors.New("there is none")
	}
	if len(name) > maxNameBytes {
		return fmt.Errorf("it has %d bytes; a name has at most %d", len(name), maxNameBytes)
	}
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			switch c := name[i]; {
			case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
				continue
			case c == '%':
				return errors.New("it is percent-encoded; write the name itself")
			default:
				return fmt.Errorf("it holds %q; a name has letters, digits, hyphens and dots", name[i])
			}
		}
		switch label := name[start:i]; {
		case label == "":
			return errors.New("a label is empty: there is a dot too many")
		case len(label) > maxLabelBytes:
			return fmt.Errorf("a label has %d bytes; it may have %d", len(label), maxLabelBytes)
		case label[0] == '-' || label[len(label)-1] == '-':
			return errors.New("a label begins or ends with a hyphen")
		}
		start = i + 1
	}
	return nil
}

// endsInNumber reports whether the last label of name is a number to somebody: decimal, octal or hexadecimal. Such a name
// is an IPv4 address or refused (the URL standard's "ends in a number checker"); 127.1 and 2130706433 are loopback.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	hex, isHex := strings.CutPrefix(last, "0x")
	if isHex {
		last = hex
	}
	for i := range len(last) {
		c := last[i]
		if (c < '0' || c > '9') && !(isHex && c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
