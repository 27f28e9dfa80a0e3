package egress

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// known is the meaning of an error that has nothing but its text.
type known uint8

const (
	textUnknown known = iota
	textHeaderTooLarge
	textClosed
	// textUnprocessed: the receiver's HTTP/2 says that it has done nothing with the request and will not.
	textUnprocessed
	textTLSVersion
	textInvalidHeader
	textHTTP2Broken
)

// knownTexts are errors of the standard library that have no type to go by. Each one is provoked in
// TestKnownTexts: a Go that words it differently fails there.
var knownTexts = []struct {
	part string
	is   known
}{
	{"server response headers exceeded", textHeaderTooLarge},
	{"response header list larger than advertised limit", textHeaderTooLarge},
	{"header list too large", textHeaderTooLarge}, // of all 1xx answers
	{"server closed idle connection", textClosed},
	{"client connection lost", textClosed},
	{"server sent GOAWAY and closed the connection", textClosed},
	{"Transport received GOAWAY from server", textClosed},
	{"client conn could not be established", textClosed},
	{"Server's graceful shutdown GOAWAY", textUnprocessed},
	{"client conn not usable", textUnprocessed},
	{"server selected unsupported protocol version", textTLSVersion},
	{"http: invalid header", textInvalidHeader},
	{"connection error: PROTOCOL_ERROR", textHTTP2Broken},
}

func knownText(err error) known {
	if err == nil {
		return textUnknown
	}
	text := err.Error()
	for _, k := range knownTexts {
		if strings.Contains(text, k.part) {
			return k.is
		}
	}
	return textUnknown
}

// saidNothing reports whether a connection of HTTP/1 ended without a byte of the answer: after a byte an end of file
// becomes io.ErrUnexpectedEOF.
func saidNothing(err error) bool { return errors.Is(err, io.EOF) || knownText(err) == textClosed }

// unprocessed reports whether the receiver's HTTP/2 has promised that it did nothing with the request: the stream was
// refused, or is after the last one that a GOAWAY names (RFC 9113, section 8.7).
func unprocessed(err error) bool {
	if stream, ok := errors.AsType[streamError](err); ok {
		return stream.fromPeer() && stream.Code == codeRefusedStream
	}
	return knownText(err) == textUnprocessed
}

// streamError has the fields of the StreamError that net/http keeps to itself, which then lets errors.As fill it.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error implements error, without which errors.As takes no target.
func (e streamError) Error() string { return "stream error: " + e.code() }

// fromPeer reports whether the receiver reset the stream, and not our side for what it sent.
func (e streamError) fromPeer() bool {
	return e.Cause != nil && e.Cause.Error() == "received from peer"
}

const codeRefusedStream = 7

// streamCodes are the error codes of RFC 9113, section 7.
var streamCodes = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

func (e streamError) code() string {
	if int(e.Code) < len(streamCodes) {
		return streamCodes[e.Code]
	}
	return fmt.Sprintf("code %d", e.Code)
}
