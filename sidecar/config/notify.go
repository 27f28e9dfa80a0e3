package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/sidehook/sidehook/egress"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

var mailTLS = map[configv1.SmtpTls]egress.MailTLS{
	configv1.SmtpTls_SMTP_TLS_STARTTLS: egress.MailStartTLS,
	configv1.SmtpTls_SMTP_TLS_TLS:      egress.MailTLSOnly,
	configv1.SmtpTls_SMTP_TLS_NONE:     egress.MailPlain,
}

// notify checks and compiles who is told. e is the outbound half, nil without one.
func (l *loader) notify(m *configv1.Notify, e *Egress) *egress.NoticeTargets {
	n := &egress.NoticeTargets{}
	if s := m.GetSmtp(); s != nil {
		n.Mail = l.smtp("notify.smtp", s)
	}
	if w := m.GetWebhook(); w != nil {
		n.Webhook = l.notifyWebhook("notify.webhook", w, e)
	}
	return n
}

func (l *loader) smtp(path string, m *configv1.Smtp) *egress.MailServer {
	s := &egress.MailServer{
		Server: m.GetServer(), From: m.GetFrom(), To: m.GetTo(), Username: m.GetUsername(),
		TLS: mailTLS[m.GetTls()], RootCAs: l.roots(path+".ca_file", m.GetCaFile()),
	}
	host, port, err := net.SplitHostPort(m.GetServer())
	if n, errPort := strconv.ParseUint(port, 10, 16); m.GetServer() != "" && (err != nil || errPort != nil || host == "" || n == 0) {
		l.errorf(path+".server", "%s is no server; write host:port, such as mail.example.com:587", quote(m.GetServer()))
	}
	if s.TLS == egress.MailPlain && !isLoopbackHost(host) {
		l.errorf(path+".tls", "NONE sends mails and password in the clear, and is for a server on loopback alone; write STARTTLS or TLS")
	}
	if m.GetFrom() != "" && !isMailAddress(m.GetFrom()) {
		l.errorf(path+".from", "%s is no mail address; write one alone, such as sidehook@example.com", quote(m.GetFrom()))
	}
	for i, to := range m.GetTo() {
		if !isMailAddress(to) {
			l.errorf(fmt.Sprintf("%s.to[%d]", path, i), "%s is no mail address; write one alone, such as ops@example.com", quote(to))
		}
	}
	switch {
	case (m.GetUsername() != "") != (m.GetPassword() != nil):
		l.errorf(path, "username and password go together; write both or neither")
	case m.GetPassword() != nil:
		if m.GetPassword().GetUntil() != nil {
			l.errorf(path+".password.until", "is for the secrets that sign; remove it")
		}
		s.Password, _ = l.secret(path+".password", "the mail server", m.GetPassword())
	}
	return s
}

// isLoopbackHost reports whether host, without brackets, cannot be another machine.
func isLoopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (l *loader) notifyWebhook(path string, m *configv1.NotifyWebhook, e *Egress) *egress.NoticeWebhook {
	w := &egress.NoticeWebhook{Keys: l.signingKeys(path, "notify.webhook", m.GetSecrets(), map[string]string{})}
	if e == nil || e.Filter == nil || m.GetUrl() == "" {
		return w
	}
	w.Filter = e.Filter
	target, err := e.Filter.Check(m.GetUrl())
	if err != nil {
		l.errorf(path+".url", "%v", err)
	}
	w.Target = target
	return w
}
