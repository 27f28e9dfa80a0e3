package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/mail"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/secret"
)

// mailTest is a mail server of the test's own.
type mailTest struct {
	tls       *tls.Config // nil: it knows no TLS
	fromStart bool
	login     string            // "user\x00password"; "": it knows no AUTH
	answers   map[string]string // by the command's first word, in place of the usual ones; "": the connection ends
	silent    string            // the command that is never answered

	mu    sync.Mutex // covers what follows
	mails []mailTaken
	said  []string // all commands, in order
}

// mailTaken is a mail that the server took.
type mailTaken struct {
	from, to  string
	data      string
	encrypted bool
	login     bool
}

// serve is for sendServe.
func (s *mailTest) serve(c net.Conn) {
	var m mailTaken
	if s.fromStart {
		c, m.encrypted = tls.Server(c, s.tls), true
	}
	r := textproto.NewReader(bufio.NewReader(c))
	say := func(text string) bool {
		_, err := io.WriteString(c, text+"\r\n")
		return err == nil
	}
	if !say("220 mail.test ESMTP") {
		return
	}
	for {
		line, err := r.ReadLine()
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(line, " ")
		s.note(verb)
		if verb == s.silent {
			_, _ = r.ReadLine() // until the client gives up
			return
		}
		if answer, ok := s.answers[verb]; ok {
			if answer == "" || !say(answer) {
				return
			}
			continue
		}
		switch verb {
		case "EHLO":
			features := "250-mail.test\r\n"
			if s.tls != nil && !m.encrypted {
				features += "250-STARTTLS\r\n"
			}
			if s.login != "" {
				features += "250-AUTH PLAIN\r\n"
			}
			say(features + "250 8BITMIME")
		case "STARTTLS":
			say("220 go on")
			c, m.encrypted = tls.Server(c, s.tls), true
			r = textproto.NewReader(bufio.NewReader(c))
		case "AUTH":
			b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			if m.login = err == nil && string(b) == "\x00"+s.login; m.login {
				say("235 welcome")
			} else {
				say("535 no")
			}
		case "MAIL":
			m.from = rest
			say("250 ok")
		case "RCPT":
			m.to = rest
			say("250 ok")
		case "DATA":
			say("354 go on")
			data, err := r.ReadDotBytes()
			if err != nil {
				return
			}
			m.data = string(data)
			s.mu.Lock()
			s.mails = append(s.mails, m)
			s.mu.Unlock()
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (s *mailTest) note(verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, verb)
}

func (s *mailTest) taken() ([]mailTaken, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]mailTaken(nil), s.mails...), append([]string(nil), s.said...)
}

// mailMessage is a notice about acme to ops.
func mailMessage() *message {
	return &message{id: "ntc_1", to: "ops@operator.example", Notice: Notice{
		Kind: NoticeDisabled, Endpoint: "acme", Tenant: "t1", At: testTime, Disabled: DisabledFailing, Outcome: OutcomeTimeoutHeaders,
		Since: testTime.Add(-120 * time.Hour), DeliveryID: DeliveryID{Event: 1, Endpoint: 1}, EventID: "evt_1",
	}}
}

// mailNotifier has mails sent by way of s.
func mailNotifier(t *testing.T, s *MailServer) *Notifier {
	t.Helper()
	n, err := NewNotifier(NotifierConfig{Targets: func() NoticeTargets { return NoticeTargets{Mail: s} }, Sender: new(noticeSender), Instance: "pod-1"})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const mailPassword = "p4ssw0rd-of-the-mail-server"

func TestMailSent(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	cert := ca.issue(t, nil)
	for _, tt := range []struct {
		name   string
		how    MailTLS
		server *mailTest
		login  bool
	}{
		{"STARTTLS", MailStartTLS, &mailTest{}, false},
		{"STARTTLS with a login", MailStartTLS, &mailTest{login: "us\x00" + mailPassword}, true},
		{"TLS from the start", MailTLSOnly, &mailTest{fromStart: true}, false},
		{"TLS from the start with a login", MailTLSOnly, &mailTest{fromStart: true, login: "us\x00" + mailPassword}, true},
		{"in the clear on loopback", MailPlain, &mailTest{}, false},
		{"in the clear on loopback with a login", MailPlain, &mailTest{login: "us\x00" + mailPassword}, true},
		{"the server ends after it has taken the mail", MailStartTLS, &mailTest{answers: map[string]string{"RSET": "", "QUIT": ""}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.how != MailPlain {
				tt.server.tls = &tls.Config{Certificates: []tls.Certificate{cert}}
			}
			s := &MailServer{Server: sendServe(t, tt.server.serve), TLS: tt.how, RootCAs: ca.pool, From: "sidehook@operator.example"}
			if tt.login {
				s.Username, s.Password = "us", secret.New([]byte(mailPassword))
			}
			if retry, err := mailNotifier(t, s).sendMail(t.Context(), mailMessage()); err != nil {
				t.Fatalf("retry %t, %v", retry, err)
			}
			mails, _ := tt.server.taken()
			if len(mails) != 1 {
				t.Fatalf("%d mails, want 1", len(mails))
			}
			m := mails[0]
			if m.from != "FROM:<sidehook@operator.example> BODY=8BITMIME" || m.to != "TO:<ops@operator.example>" || m.encrypted != (tt.how != MailPlain) || m.login != tt.login {
				t.Errorf("mail %+v", m)
			}
			letter, err := mail.ReadMessage(strings.NewReader(m.data))
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, name := range []string{"From", "To", "Subject", "Message-Id", "Auto-Submitted", "Content-Type", "User-Agent", "X-Mailer"} {
				got[name] = letter.Header.Get(name)
			}
			if diff := cmp.Diff(map[string]string{
				"From": "<sidehook@operator.example>", "To": "<ops@operator.example>", "Subject": "[sidehook] webhook endpoint acme is disabled",
				"Message-Id": "<ntc_1@operator.example>", "Auto-Submitted": "auto-generated", "Content-Type": "text/plain; charset=UTF-8", "User-Agent": "", "X-Mailer": "",
			}, got); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			if date, err := letter.Header.Date(); err != nil || time.Since(date).Abs() > time.Minute {
				t.Errorf("date %v, %v", date, err)
			}
			body, err := io.ReadAll(letter.Body)
			if err != nil {
				t.Fatal(err)
			}
			const want = `The webhook endpoint acme is disabled. Nothing is sent to it any more.
It has failed on end for as long as an endpoint may.

Its deliveries wait. Once it works again, go on with:
    sidehook endpoint enable acme

Time:      2021-02-25T15:02:10.000Z
Failing:   since 2021-02-20T15:02:10.000Z
Attempt:   timeout_headers
Delivery:  dlv_0000000000002000000g
Event:     evt_1
Tenant:    t1
Instance:  pod-1
`
			if diff := cmp.Diff(want, strings.TrimRight(strings.ReplaceAll(string(body), "\r\n", "\n"), "\n")+"\n"); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMailNotSent(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	good := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}}
	strange := &tls.Config{Certificates: []tls.Certificate{newSendCA(t).issue(t, nil)}}
	for _, tt := range []struct {
		name   string
		how    MailTLS
		server *mailTest
		login  string
		retry  bool
		said   string // the last command that it heard
	}{
		{"no STARTTLS: nothing is said in the clear", MailStartTLS, &mailTest{login: "us\x00" + mailPassword}, mailPassword, true, "EHLO"},
		{"STARTTLS refused", MailStartTLS, &mailTest{tls: good, answers: map[string]string{"STARTTLS": "454 not now"}}, mailPassword, true, "STARTTLS"},
		{"a certificate that we do not trust", MailStartTLS, &mailTest{tls: strange, login: "us\x00" + mailPassword}, mailPassword, true, "STARTTLS"},
		{"a certificate that we do not trust, from the start", MailTLSOnly, &mailTest{tls: strange, fromStart: true, login: "us\x00" + mailPassword}, mailPassword, true, ""},
		{"a wrong password", MailStartTLS, &mailTest{tls: good, login: "us\x00other"}, mailPassword, false, "QUIT"},
		{"a login that the server does not know", MailStartTLS, &mailTest{tls: good}, mailPassword, true, "EHLO"},
		{"an unknown receiver", MailStartTLS, &mailTest{tls: good, answers: map[string]string{"RCPT": "550 5.1.1 unknown"}}, "", false, "QUIT"},
		{"a receiver who is to be tried again", MailStartTLS, &mailTest{tls: good, answers: map[string]string{"RCPT": "451 4.7.1 greylisted"}}, "", true, "QUIT"},
		{"a sender that is refused", MailStartTLS, &mailTest{tls: good, answers: map[string]string{"MAIL": "553 not you"}}, "", false, "QUIT"},
		{"a server that ends within", MailStartTLS, &mailTest{tls: good, answers: map[string]string{"DATA": ""}}, "", true, "DATA"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &MailServer{Server: sendServe(t, tt.server.serve), TLS: tt.how, RootCAs: ca.pool, From: "sidehook@operator.example"}
			if tt.login != "" {
				s.Username, s.Password = "us", secret.New([]byte(tt.login))
			}
			retry, err := mailNotifier(t, s).sendMail(t.Context(), mailMessage())
			if err == nil || retry != tt.retry {
				t.Errorf("retry %t, %v; want retry %t", retry, err, tt.retry)
			}
			if strings.Contains(fmt.Sprint(err), mailPassword) {
				t.Errorf("the error tells the password: %v", err)
			}
			mails, said := tt.server.taken()
			if len(mails) != 0 {
				t.Errorf("%d mails were taken", len(mails))
			}
			last := ""
			if len(said) > 0 {
				last = said[len(said)-1]
			}
			if last != tt.said {
				t.Errorf("heard %q, want %q as the last", said, tt.said)
			}
		})
	}
}

func TestMailNoServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := &MailServer{Server: l.Addr().String(), TLS: MailStartTLS, From: "sidehook@operator.example"}
	if retry, err := mailNotifier(t, s).sendMail(t.Context(), mailMessage()); err == nil || !retry {
		t.Errorf("retry %t, %v", retry, err)
	}
}

// A server that says nothing any more holds a try up for its time and no longer, wherever it stops.
func TestMailTimeLimit(t *testing.T) {
	t.Parallel()
	for _, silent := range []string{"EHLO", "MAIL", "RCPT", "DATA"} {
		t.Run(silent, func(t *testing.T) {
			t.Parallel()
			server := &mailTest{silent: silent}
			s := &MailServer{Server: sendServe(t, server.serve), TLS: MailPlain, From: "sidehook@operator.example"}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			started := time.Now()
			if _, err := mailNotifier(t, s).sendMail(ctx, mailMessage()); err == nil {
				t.Error("no error")
			}
			if took := time.Since(started); took > noticeLimit/3 {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// The owner and the operator get a mail each, and do not see each other.
func TestMailReceivers(t *testing.T) {
	t.Parallel()
	server := new(mailTest)
	s := &MailServer{Server: sendServe(t, server.serve), TLS: MailPlain, From: "sidehook@operator.example", To: []string{"ops@operator.example", "acme@example.com"}}
	results := make(chan string, 8)
	n, err := NewNotifier(NotifierConfig{
		Targets: func() NoticeTargets { return NoticeTargets{Mail: s} }, Sender: new(noticeSender), Logger: slog.New(slog.DiscardHandler),
		Count: func(channel, result string) { results <- channel + " " + result },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	for _, owner := range []string{"owner@acme.example", "acme@example.com", ""} {
		notice := mailMessage().Notice
		notice.Endpoint, notice.Owner = "e"+owner, owner
		n.Tell(notice)
	}
	for range 3 + 2 + 2 {
		if got := <-results; got != "mail sent" {
			t.Error(got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	mails, _ := server.taken()
	counts := make(map[string]int)
	for _, m := range mails {
		letter, err := mail.ReadMessage(strings.NewReader(m.data))
		if err != nil {
			t.Fatal(err)
		}
		counts[letter.Header.Get("To")]++
		if letter.Header.Get("Cc")+letter.Header.Get("Bcc") != "" || m.to != "TO:"+letter.Header.Get("To") {
			t.Errorf("a mail to %s shows %v", m.to, letter.Header)
		}
	}
	if diff := cmp.Diff(map[string]int{"<ops@operator.example>": 3, "<acme@example.com>": 3, "<owner@acme.example>": 1}, counts); diff != "" {
		t.Errorf("mails (-want +got):\n%s", diff)
	}
}

func TestMailServerReceivers(t *testing.T) {
	t.Parallel()
	ops := &MailServer{To: []string{"ops@operator.example"}}
	for _, tt := range []struct {
		name   string
		server *MailServer
		owner  string
		want   []string
	}{
		{"no server", nil, "owner@acme.example", nil},
		{"nobody", &MailServer{}, "", nil},
		{"the owner alone", &MailServer{}, "owner@acme.example", []string{"owner@acme.example"}},
		{"the operator alone", ops, "", []string{"ops@operator.example"}},
		{"both", ops, "owner@acme.example", []string{"ops@operator.example", "owner@acme.example"}},
		{"who is both gets one mail", ops, "ops@operator.example", []string{"ops@operator.example"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.server.receivers(tt.owner)); diff != "" {
				t.Errorf("receivers (-want +got):\n%s", diff)
			}
		})
	}
}
