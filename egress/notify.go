package egress

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
)

const (
	// noticeEvery is how often one cause is told.
	noticeEvery = time.Hour
	// maxCauses bounds the causes that are remembered. Where there are more, as when a whole network fails under thousands
	// of endpoints, nobody reads a notice for each.
	maxCauses = 10_000
)

// Channels of notices, and what became of one: labels of NotifierConfig.Count.
const (
	NoticeByMail    = "mail"
	NoticeByWebhook = "webhook"

	NoticeSent       = "sent"
	NoticeFailed     = "failed"     // after the last try, or for good at once
	NoticeDropped    = "dropped"    // too many waited
	NoticeSuppressed = "suppressed" // its cause was told within the hour
)

// NoticeChannels and NoticeResults return all that NotifierConfig.Count is called with.
func NoticeChannels() []string { return []string{NoticeByMail, NoticeByWebhook} }

// NoticeResults is described at NoticeChannels.
func NoticeResults() []string {
	return []string{NoticeSent, NoticeFailed, NoticeDropped, NoticeSuppressed}
}

// NoticeTargets says who is told. The zero value: nobody.
type NoticeTargets struct {
	// Mail sends mails to owners of endpoints and to the operator; nil: none are sent.
	Mail *MailServer
	// Webhook gets a signed webhook for each notice; nil: none is sent.
	Webhook *NoticeWebhook
}

// NoticeWebhook is where notices are posted, as events of Standard Webhooks.
type NoticeWebhook struct {
	// Target was let through by Filter, which also judges the addresses.
	Target netguard.Target
	Filter *netguard.Filter
	// Keys sign, all of those whose Until has not passed.
	Keys []signature.Key
}

// NotifierConfig is what a Notifier stands on.
type NotifierConfig struct {
	// Targets returns who is told; it is asked for each notice, so that a reload takes hold at once. Required.
	Targets func() NoticeTargets
	// Sender posts webhooks. Required.
	Sender Sender
	// Instance names this sidehook in mails and webhooks, where many of them tell one person; "": nothing does.
	Instance string
	// Logger hears what became of notices. Nil: nothing.
	Logger *slog.Logger
	// Count is told what became of a notice: one of NoticeChannels and one of NoticeResults. Nil: nobody counts.
	Count func(channel, result string)
}

// Notifier tells owners and the operator what happened to endpoints: by mail and by an operational webhook, once for
// each cause and hour. It holds nobody up, and what becomes of a notice changes nothing of what it is about: a notice
// that cannot be sent is logged and counted, and causes no other.
//
// Notices are not durable. What they tell stands also in the log, the metrics and the endpoint's state.
type Notifier struct {
	cfg     NotifierConfig
	mail    *noticeQueue
	webhook *noticeQueue

	mu     sync.Mutex // covers causes
	causes map[cause]*told
}

// cause is what makes two notices the same to a person.
type cause struct {
	endpoint   string
	kind       NoticeKind
	disabled   DisableReason
	outcome    Outcome
	notReached bool
	percent    int
}

// told says when a cause was last told, and how many notices of it were not since.
type told struct {
	at         time.Time
	suppressed int
}

// NewNotifier returns a Notifier that tells nobody before Run.
func NewNotifier(cfg NotifierConfig) (*Notifier, error) {
	if cfg.Targets == nil || cfg.Sender == nil {
		return nil, errors.New("notifier without targets or sender")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Count == nil {
		cfg.Count = func(string, string) {}
	}
	n := &Notifier{cfg: cfg, causes: make(map[cause]*told)}
	n.mail = newNoticeQueue(NoticeByMail, &n.cfg, n.sendMail)
	n.webhook = newNoticeQueue(NoticeByWebhook, &n.cfg, n.sendWebhook)
	return n, nil
}

// Tell has notice told, if somebody is to hear it and its cause was not told within the hour. It does not block; it is
// for DispatcherConfig.Notify.
func (n *Notifier) Tell(notice Notice) {
	targets := n.cfg.Targets()
	to := targets.Mail.receivers(notice.Owner)
	if len(to) == 0 && targets.Webhook == nil {
		return
	}
	suppressed, refused := n.admit(&notice)
	m := message{Notice: notice, id: newNoticeID(), suppressed: suppressed}
	for _, m.to = range to {
		n.mail.add(m, refused)
	}
	if targets.Webhook != nil {
		m.to = ""
		n.webhook.add(m, refused)
	}
}

// admit decides whether a notice is told by what was told of its cause: refused is "", or why not. suppressed is how many
// were not told since the last one that was.
func (n *Notifier) admit(notice *Notice) (suppressed int, refused string) {
	now := time.Now()
	c := cause{notice.Endpoint, notice.Kind, notice.Disabled, notice.Outcome, notice.NotReached, notice.Percent}
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.causes[c]
	switch {
	case last == nil:
		if len(n.causes) >= maxCauses {
			maps.DeleteFunc(n.causes, func(_ cause, t *told) bool { return now.Sub(t.at) >= noticeEvery })
		}
		if len(n.causes) >= maxCauses {
			return 0, NoticeDropped
		}
		n.causes[c] = &told{at: now}
		return 0, ""
	case now.Sub(last.at) < noticeEvery:
		last.suppressed++
		return 0, NoticeSuppressed
	}
	suppressed = last.suppressed
	*last = told{at: now}
	return suppressed, ""
}

// Run sends what Tell was given until ctx ends. What waits then is not told any more.
func (n *Notifier) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { n.mail.run(ctx) })
	wg.Go(func() { n.webhook.run(ctx) })
	wg.Wait()
	return nil
}
