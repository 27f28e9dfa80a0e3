package extauthz

import (
	"errors"

	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/proto"
)

// decode reads a StreamAccessLogsMessage, reusing b's memory. An entry that cannot be read is counted and left out; the
// others stand.
func (b *logBatch) decode(msg []byte) {
	clear(b.entries)
	b.entries, b.malformed = b.entries[:0], 0
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.bytes(2): // http_logs; comes again only to go on
			b.decodeEntries(f.data)
		case f.bytes(3): // tcp_logs: the other arm of the oneof
			b.entries = b.entries[:0]
		}
	}
	if f.err != nil {
		b.malformed++
	}
}

// decodeEntries reads an HTTPAccessLogEntries.
func (b *logBatch) decodeEntries(msg []byte) {
	f := fields{rest: msg}
	for f.next() {
		if !f.bytes(1) { // log_entry
			continue
		}
		e, err := decodeLogEntry(f.data)
		switch {
		case err != nil:
			b.malformed++
		case e.ref != "":
			b.entries = append(b.entries, e)
		}
	}
	if f.err != nil {
		b.malformed++
	}
}

// decodeLogEntry reads an HTTPAccessLogEntry.
func decodeLogEntry(msg []byte) (logEntry, error) {
	e, err := scanLogEntry(msg)
	if !errors.Is(err, errMerge) {
		return e, err
	}
	var m accesslogdatav3.HTTPAccessLogEntry
	if err := proto.Unmarshal(msg, &m); err != nil {
		return logEntry{}, err
	}
	return logEntryOf(&m), nil
}

// logEntryOf reads an entry as Envoy's generated code decodes it.
func logEntryOf(m *accesslogdatav3.HTTPAccessLogEntry) logEntry {
	common := m.GetCommonProperties()
	//lint:ignore SA1019 Envoy still sets the field, and an entry that is not the last must settle nothing
	intermediate := common.GetIntermediateLogEntry()
	return logEntry{
		ref: referenceOf(common.GetMetadata()),
		report: report{
			code:     m.GetResponse().GetResponseCode().GetValue(),
			details:  m.GetResponse().GetResponseCodeDetails(),
			attempts: common.GetUpstreamRequestAttemptCount(),
		},
		final: common.GetAccessLogType() == accesslogdatav3.AccessLogType_DownstreamEnd && !intermediate,
	}
}

// scanLogEntry reads msg itself, or returns errMerge.
func scanLogEntry(msg []byte) (logEntry, error) {
	var common, response []byte
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.bytes(1):
			f.once(&common)
		case f.bytes(4):
			f.once(&response)
		}
	}
	if f.err != nil {
		return logEntry{}, f.err
	}
	var e logEntry
	if err := e.scanCommon(common); err != nil {
		return logEntry{}, err
	}
	if err := e.report.scanResponse(response); err != nil {
		return logEntry{}, err
	}
	return e, nil
}

// scanCommon reads an AccessLogCommon.
func (e *logEntry) scanCommon(msg []byte) error {
	var metadata []byte
	var kind accesslogdatav3.AccessLogType
	var intermediate bool
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.bytes(17):
			f.once(&metadata)
		case f.varint(24):
			e.report.attempts = uint32(f.val)
		case f.varint(27):
			intermediate = f.val != 0
		case f.varint(33):
			kind = accesslogdatav3.AccessLogType(int32(f.val))
		}
	}
	if f.err != nil {
		return f.err
	}
	e.final = kind == accesslogdatav3.AccessLogType_DownstreamEnd && !intermediate
	ref, err := scanReference(metadata)
	e.ref = ref
	return err
}

// scanResponse reads an HTTPResponseProperties.
func (r *report) scanResponse(msg []byte) error {
	var code []byte
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.bytes(1): // response_code, a UInt32Value
			f.once(&code)
		case f.bytes(6):
			r.details = detailsOf(f.data)
		}
	}
	if f.err != nil {
		return f.err
	}
	f = fields{rest: code}
	for f.next() {
		if f.varint(1) {
			r.code = uint32(f.val)
		}
	}
	return f.err
}

// detailsOf spares the copy of the usual text.
func detailsOf(b []byte) string {
	if string(b) == detailsUpstream {
		return detailsUpstream
	}
	return string(b)
}

// scanReference reads our reference from a Metadata.
func scanReference(msg []byte) (ref string, err error) {
	f := fields{rest: msg}
	for f.next() {
		if !f.bytes(1) { // filter_metadata, a map: the last of a key counts
			continue
		}
		name, value, err := scanMapEntry(f.data)
		if err != nil {
			return "", err
		}
		if string(name) != metadataNamespace {
			continue
		}
		if ref, err = scanStruct(value); err != nil {
			return "", err
		}
	}
	return ref, f.err
}

// scanStruct reads our reference from a google.protobuf.Struct.
func scanStruct(msg []byte) (ref string, err error) {
	f := fields{rest: msg}
	for f.next() {
		if !f.bytes(1) { // fields, a map
			continue
		}
		name, value, err := scanMapEntry(f.data)
		if err != nil {
			return "", err
		}
		if string(name) != metadataKey {
			continue
		}
		if ref, err = scanString(value); err != nil {
			return "", err
		}
	}
	return ref, f.err
}

// scanString reads the string of a google.protobuf.Value; another kind is empty.
func scanString(msg []byte) (s string, err error) {
	f := fields{rest: msg}
	for n := 0; f.next(); n++ {
		if n > 0 {
			return "", errMerge // a oneof told twice
		}
		if f.bytes(3) {
			s = string(f.data)
		}
	}
	return s, f.err
}

// scanMapEntry reads an entry of a map from strings to messages. Absent parts are nil.
func scanMapEntry(msg []byte) (key, value []byte, err error) {
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.bytes(1):
			key = f.data
		case f.bytes(2):
			f.once(&value)
		}
	}
	return key, value, f.err
}
