package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	mail "github.com/wneessen/go-mail"

	"github.com/sidehook/sidehook/internal/secret"
)

// MailTLS says how the connection to a mail server is encrypted. The zero value is invalid.
type MailTLS uint8

const (
	_ MailTLS = iota
	// MailStartTLS: it begins in the clear and must be encrypted before anything is said.
	MailStartTLS
	// MailTLSOnly: it is encrypted from the first byte.
	MailTLSOnly
	// MailPlain: it is not encrypted, for a server on loopback.
	MailPlain
)

// MailServer is a mail server that takes our mails.
type MailServer struct {
	// Server is host:port. Its certificate has to be one for the host.
	Server string
	TLS    MailTLS
	// RootCAs are who may have signed the certificate; nil: the system's.
	RootCAs *x509.CertPool
	// From is the sender's address.
	From string
	// To get every notice, beside the endpoint's owner.
	To []string
	// Username and Password log in; both empty: nobody does.
	Username string
	Password secret.Secret
}

// receivers returns who gets a mail: the owner, unless "", and the operator, each once.
func (s *MailServer) receivers(owner string) []string {
	if s == nil {
		return nil
	}
	to := slices.Clone(s.To)
	if owner != "" && !slices.Contains(to, owner) {
		to = append(to, owner)
	}
	return to
}

// mailAuth are the ways to log in, the best first. Those that show the password go over an encrypted connection or to
// loopback only.
var mailAuth = []mail.SMTPAuthType{mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthSCRAMSHA1, mail.SMTPAuthPlain, mail.SMTPAuthLogin, mail.SMTPAuthCramMD5}

// sendMail sends m once.
func (n *Notifier) sendMail(ctx context.Context, m *message) (retry bool, err error) {
	s := n.cfg.Targets().Mail
	if s == nil {
		return false, errNoTarget
	}
	letter, err := s.letter(m, n.cfg.Instance)
	if err != nil {
		return false, fmt.Errorf("write mail: %w", err)
	}
	err = s.send(ctx, letter)
	if err == nil || letter.IsDelivered() {
		return false, nil // what failed after the server has taken it is not worth a second mail
	}
	return !refusedForGood(err), fmt.Errorf("send mail: %w", err)
}

// letter writes the mail. It is marked as a machine's, so that nobody's absence is told to us.
func (s *MailServer) letter(m *message, instance string) (*mail.Msg, error) {
	l := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := errors.Join(l.From(s.From), l.To(m.to)); err != nil {
		return nil, err
	}
	_, domain, _ := strings.Cut(s.From, "@")
	l.SetMessageIDWithValue(m.id + "@" + domain)
	l.SetDateWithValue(time.Now())
	l.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834
	l.Subject(m.subject())
	l.SetBodyString(mail.TypeTextPlain, m.text(instance))
	return l, nil
}

// send delivers l to the server within the time of ctx.
func (s *MailServer) send(ctx context.Context, l *mail.Msg) error {
	host, portText, err := net.SplitHostPort(s.Server)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return err
	}
	security := &tls.Config{ServerName: host, RootCAs: s.RootCAs, MinVersion: tls.VersionTLS12}
	// The connection is ours to end: the library knows a time limit for each step, not for the whole, and leaves it
	// open where one of the first steps fails.
	tcp, err := new(net.Dialer).DialContext(ctx, "tcp", s.Server)
	if err != nil {
		return err
	}
	defer tcp.Close() // the mail is sent by then, or it is not
	defer context.AfterFunc(ctx, func() { _ = tcp.Close() })()
	conn := tcp
	policy := mail.NoTLS
	switch s.TLS {
	case MailStartTLS:
		policy = mail.TLSMandatory
	case MailTLSOnly:
		encrypted := tls.Client(tcp, security)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return err
		}
		conn = encrypted
	}
	options := []mail.Option{
		mail.WithPort(port), mail.WithTLSPolicy(policy), mail.WithTLSConfig(security), mail.WithTimeout(noticeLimit),
		mail.WithDialContextFunc(func(context.Context, string, string) (net.Conn, error) { return conn, nil }),
	}
	if s.Username != "" {
		options = append(options, mail.WithUsername(s.Username), mail.WithPassword(string(s.Password.Bytes())), mail.WithOpportunisticSMTPAuth(mailAuth...))
	}
	client, err := mail.NewClient(host, options...)
	if err != nil {
		return err
	}
	return client.DialAndSendWithContext(ctx, l)
}

// refusedForGood reports whether a mail server said that trying again is of no use.
func refusedForGood(err error) bool {
	if failed, ok := errors.AsType[*mail.SendError](err); ok {
		return failed.ErrorCode()/100 == 5
	}
	said, ok := errors.AsType[*textproto.Error](err)
	return ok && said.Code/100 == 5
}
