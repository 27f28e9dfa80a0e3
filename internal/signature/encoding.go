package signature

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// decode appends the bytes of an encoded signature or hash to dst. It accepts canonical text only: the same bytes
// never have two texts, but for the case of hex and the padding of base64url.
func decode(dst []byte, text string, enc Encoding) ([]byte, bool) {
	switch enc {
	case Hex:
		if len(text)%2 != 0 {
			return dst, false
		}
		for i := 0; i < len(text); i += 2 {
			hi, lo := unhex(text[i]), unhex(text[i+1])
			if hi > 15 || lo > 15 {
				return dst, false
			}
			dst = append(dst, hi<<4|lo)
		}
		return dst, true
	case Base64:
		return decodeBase64(dst, text, strictStd)
	case Base64URL:
		if strings.HasSuffix(text, "=") {
			return decodeBase64(dst, text, strictURL)
		}
		return decodeBase64(dst, text, strictRawURL)
	}
	return append(dst, text...), true
}

var (
	strictStd    = base64.StdEncoding.Strict()
	strictURL    = base64.URLEncoding.Strict()
	strictRawURL = base64.RawURLEncoding.Strict()
)

func decodeBase64(dst []byte, text string, enc *base64.Encoding) ([]byte, bool) {
	// The decoder skips line breaks, which would give the same bytes a second text.
	if strings.ContainsAny(text, "\r\n") {
		return dst, false
	}
	out, err := enc.AppendDecode(dst, []byte(text))
	if err != nil {
		return dst, false
	}
	return out, true
}

// encode writes a signature as the sender would.
func encode(b []byte, enc Encoding) string {
	switch enc {
	case Hex:
		return hex.EncodeToString(b)
	case Base64:
		return base64.StdEncoding.EncodeToString(b)
	case Base64URL:
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return string(b)
}
