package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"syscall"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
)

// phase is how far an exchange has come. An error of the same type means different things in different phases.
type phase uint8

const (
	phasePrepare phase = iota // nothing was asked of anybody
	phaseResolve
	phaseDial
	phaseHandshake // connected; TLS
	phaseHeader    // the request goes out, no header of an answer has come
	phaseBody      // of the answer
)

// failure is an exchange that ended without a whole answer, and what is known of it.
type failure struct {
	err   error
	phase phase
	// stopped: we were told to stop. late: the attempt's time limit has passed. Then err is only what that did.
	stopped, late bool
	// silent: the receiver has not said a byte since the phase began. reused: the connection was a kept one.
	silent, reused bool
}

// errUnusable means that the endpoint has no secret that can be read, or no URL that is allowed.
var errUnusable = errors.New("the endpoint cannot be used as it is configured")

// maxDetail bounds Result.Detail, in bytes.
const maxDetail = 256

// classify is the one place that names a failure. It goes by types and numbers; where net/http and crypto/tls have only
// texts, by those in knownTexts. detail is in our words: a text of the receiver's, which may repeat the request with its
// secrets, is in none of them.
func (f *failure) classify() (o Outcome, detail string) {
	if f.stopped {
		return OutcomeInterrupted, "cut off because sidehook stops"
	}
	if refusal, ok := errors.AsType[*netguard.Refusal](f.err); ok {
		return OutcomeAddressRefused, refusalDetail(refusal)
	}
	if proxy, ok := errors.AsType[*netguard.ProxyError](f.err); ok {
		return OutcomeProxyFailed, proxyDetail(proxy)
	}
	switch f.phase {
	case phasePrepare:
		if errors.Is(f.err, signature.ErrCannotSign) {
			return OutcomeInternal, "no key of the endpoint can sign: none is in force"
		}
		return OutcomeInternal, f.err.Error()
	case phaseResolve:
		return f.resolve()
	case phaseDial:
		return f.dial()
	case phaseHandshake:
		return f.handshake()
	default:
		return f.exchange()
	}
}

func refusalDetail(r *netguard.Refusal) string {
	if r.Addr.IsValid() {
		return fmt.Sprintf("refused by the address filter: %s (%s)", r.Verdict, r.Addr)
	}
	return fmt.Sprintf("refused by the address filter: %s", r.Verdict)
}

func proxyDetail(p *netguard.ProxyError) string {
	switch cert, ok := certificateDetail(p.Err); {
	case p.Status != 0:
		return fmt.Sprintf("the forward proxy answered %d", p.Status)
	case ok:
		return "forward proxy: " + cert
	case isTimeout(p.Err):
		return "the forward proxy did not answer in time"
	}
	if e, ok := errors.AsType[syscall.Errno](p.Err); ok {
		return "forward proxy: " + e.Error()
	}
	return "the forward proxy could not be used"
}

func (f *failure) resolve() (Outcome, string) {
	e, ok := errors.AsType[*netguard.ResolveError](f.err)
	switch {
	case ok && e.NotFound:
		return OutcomeNoSuchHost, "the name does not exist or has no address"
	case ok && e.Timeout, f.late:
		return OutcomeResolverFailed, "the resolver gave no answer in time"
	case ok:
		return OutcomeResolverFailed, "the resolver failed"
	}
	return OutcomeInternal, "the endpoint's host could not be looked up"
}

// errnos says what the numbers of the operating system mean while a connection is made. Those that are missing are
// connections that failed for the network's sake.
var errnos = map[syscall.Errno]Outcome{
	syscall.ECONNREFUSED: OutcomeConnectRefused,
	syscall.ECONNRESET:   OutcomeConnectionReset,
	syscall.ECONNABORTED: OutcomeConnectionReset,
	syscall.EPIPE:        OutcomeConnectionReset,
	syscall.ETIMEDOUT:    OutcomeConnectTimeout,
	// What this host lacks is no fault of the receiver's. EADDRNOTAVAIL are local ports; of IPv6, see dial.
	syscall.EMFILE:        OutcomeInternal,
	syscall.ENFILE:        OutcomeInternal,
	syscall.ENOBUFS:       OutcomeInternal,
	syscall.ENOMEM:        OutcomeInternal,
	syscall.EADDRINUSE:    OutcomeInternal,
	syscall.EADDRNOTAVAIL: OutcomeInternal,
}

func (f *failure) dial() (Outcome, string) {
	if tunnel, ok := errors.AsType[*netguard.TunnelError](f.err); ok && tunnel.Status != 0 {
		return OutcomeUnreachable, fmt.Sprintf("the forward proxy did not reach the receiver: it answered %d", tunnel.Status)
	}
	if f.late || isTimeout(f.err) {
		return OutcomeConnectTimeout, "no connection within the time limit"
	}
	e, ok := errors.AsType[syscall.Errno](f.err)
	if !ok {
		return OutcomeUnreachable, "no connection could be made"
	}
	if dialledIPv6(f.err) && e == syscall.EADDRNOTAVAIL {
		return OutcomeUnreachable, "this host has no IPv6 address to connect from"
	}
	if o, ok := errnos[e]; ok {
		return o, e.Error()
	}
	return OutcomeUnreachable, e.Error()
}

func dialledIPv6(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok {
		return false
	}
	addr, ok := op.Addr.(*net.TCPAddr)
	return ok && addr.AddrPort().Addr().Unmap().Is6()
}

func (f *failure) handshake() (Outcome, string) {
	if cert, ok := certificateDetail(f.err); ok {
		return OutcomeTLSVerify, cert
	}
	if alert, text, ok := remoteAlert(f.err); ok {
		if alert == alertProtocolVersion {
			return OutcomeTLSVersion, "the receiver speaks no TLS version from 1.2 on"
		}
		return OutcomeTLSHandshake, "the receiver ended the TLS handshake: " + text
	}
	_, noTLS := errors.AsType[tls.RecordHeaderError](f.err)
	switch {
	case knownText(f.err) == textTLSVersion:
		return OutcomeTLSVersion, "the receiver speaks no TLS version from 1.2 on"
	case f.late || isTimeout(f.err):
		return OutcomeConnectTimeout, "no TLS handshake within the time limit"
	case noTLS:
		return OutcomeTLSHandshake, "the receiver does not speak TLS on this port"
	case f.silent && endOf(f.err) != endNone:
		// A receiver says a word before it hangs up. A mesh that has taken the connection, and may or can not make it
		// further, does not.
		return OutcomeMeshReset, "the connection was made and ended before TLS began: by a proxy of the mesh, or a firewall"
	case endOf(f.err) != endNone:
		return OutcomeTLSHandshake, "the connection ended during the TLS handshake"
	}
	if text := f.err.Error(); strings.HasPrefix(text, "tls: ") { // of crypto/tls; nothing of the request was sent yet
		return OutcomeTLSHandshake, "TLS handshake: " + strings.ToValidUTF8(text[len("tls: "):], "")
	}
	return OutcomeTLSHandshake, "the TLS handshake failed"
}

// exchange classifies what ended a connection that was made.
func (f *failure) exchange() (Outcome, string) {
	const (
		noAnswer = "no answer within the time limit"
		cutBody  = "the answer did not end within the time limit"
	)
	known := knownText(f.err)
	timeout, text := OutcomeTimeoutHeaders, noAnswer
	if f.phase == phaseBody {
		timeout, text = OutcomeTimeoutBody, cutBody
	}
	switch {
	case f.late:
		return timeout, text
	case known == textHeaderTooLarge:
		return OutcomeHeaderTooLarge, fmt.Sprintf("the answer's header is larger than %d bytes", maxAnswerHeader)
	case known == textInvalidHeader:
		return OutcomeInternal, "a header of the event cannot be sent"
	}
	if _, alert, ok := remoteAlert(f.err); ok {
		return OutcomeTLSHandshake, "the receiver ended TLS: " + alert
	}
	end := endOf(f.err)
	if f.reused && f.silent && f.phase == phaseHeader && (end != endNone || unprocessed(f.err)) {
		return OutcomeStaleConnection, "a kept connection ended under the request"
	}
	if stream, ok := errors.AsType[streamError](f.err); ok && stream.fromPeer() {
		return OutcomeConnectionReset, "the receiver reset the stream: " + stream.code()
	}
	switch end {
	case endReset:
		return OutcomeConnectionReset, "the receiver reset the connection"
	case endClosed:
		if f.phase == phaseBody {
			return OutcomeConnectionClosed, "the receiver closed the connection before the answer was whole"
		}
		return OutcomeConnectionClosed, "the receiver closed the connection without an answer"
	case endNone:
	}
	if known == textUnprocessed {
		return OutcomeConnectionClosed, "the receiver said that it takes no more requests"
	}
	if isTimeout(f.err) {
		return timeout, text
	}
	if e, ok := errors.AsType[syscall.Errno](f.err); ok {
		return OutcomeUnreachable, e.Error()
	}
	if known == textHTTP2Broken {
		return OutcomeBadAnswer, "the answer breaks the rules of HTTP/2, or its header is far too large"
	}
	return OutcomeBadAnswer, "the answer is not HTTP, or breaks its rules"
}

// certificateDetail says what is wrong with a certificate; false if err is of something else.
func certificateDetail(err error) (string, bool) {
	if errors.Is(err, errWeakKey) {
		return fmt.Sprintf("a certificate has an RSA key of less than %d bits", minRSABits), true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is not for this host", true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an authority that is not trusted, or comes without its chain", true
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "the certificate has expired, or is not valid yet", true
		}
		return "the certificate is not valid for a server", true
	}
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return "the certificate cannot be verified", ok
}

// alertProtocolVersion is protocol_version of RFC 8446, section 6.
const alertProtocolVersion = 70

// remoteAlert returns the TLS alert that the receiver sent. crypto/tls keeps its type to itself: it is a number with a
// text of its own, in a net.OpError.
func remoteAlert(err error) (alert uint8, text string, ok bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" || op.Err == nil {
		return 0, "", false
	}
	v := reflect.ValueOf(op.Err)
	if v.Kind() != reflect.Uint8 {
		return 0, "", false
	}
	return uint8(v.Uint()), strings.TrimPrefix(op.Err.Error(), "tls: "), true
}

// end is how a connection ended.
type end uint8

const (
	endNone end = iota // it did not, or not by the receiver
	endClosed
	endReset
)

func endOf(err error) end {
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return endReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), knownText(err) == textClosed:
		return endClosed
	}
	return endNone
}

func isTimeout(err error) bool {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}
