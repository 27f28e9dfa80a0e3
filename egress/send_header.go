package egress

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxHeaderBytes bounds name and value of one header of an endpoint: receivers commonly take 8 KiB of header in all.
const maxHeaderBytes = 4 << 10

// Headers that no endpoint may set, in lower case: they are written by us, or say how the request is framed and carried,
// or make a proxy or another sidehook trust what we do not know. Cookies are a browser's.
var (
	forbiddenHeaders = []string{
		"host", "user-agent", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "http2-settings", "expect", "cookie", "cookie2",
	}
	forbiddenPrefixes = []string{"webhook-", "content-", "proxy-", "x-envoy-", "x-sidehook-"}
)

// ForbiddenHeader says why an endpoint cannot have a header of that name and value; nil if it can. A name is a token of
// RFC 9110, in any case; `_` stands for `-` too, as many servers make no difference between them. A value is printable
// ASCII, and begins and ends with no blank. The error never holds the value.
func ForbiddenHeader(name, value string) error {
	switch {
	case name == "":
		return errors.New("a header has no name")
	case len(name)+len(value) > maxHeaderBytes:
		return fmt.Errorf("header %.64q: name and value are longer than %d bytes", name, maxHeaderBytes)
	case !isToken(name):
		return fmt.Errorf("header %.64q: a name has letters, digits and !#$%%&'*+-.^_`|~ only", name)
	case value == "":
		return fmt.Errorf("header %q: the value is empty", name)
	case value[0] == ' ' || value[len(value)-1] == ' ':
		return fmt.Errorf("header %q: the value begins or ends with a blank", name)
	}
	for _, c := range []byte(value) {
		if c < ' ' || c > '~' {
			return fmt.Errorf("header %q: the value has bytes that are not printable ASCII", name)
		}
	}
	plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	for _, prefix := range forbiddenPrefixes {
		if strings.HasPrefix(plain, prefix) {
			return fmt.Errorf("header %q: headers %s… are not the endpoint's to set", name, prefix)
		}
	}
	if slices.Contains(forbiddenHeaders, plain) {
		return fmt.Errorf("header %q: it is not the endpoint's to set", name)
	}
	return nil
}

func isToken(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
