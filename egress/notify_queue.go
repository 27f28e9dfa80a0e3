package egress

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"time"

	"github.com/sidehook/sidehook/internal/loglimit"
)

// keyChannel is a key of the log: mail or webhook.
const keyChannel = "channel"

const (
	// maxNotices bounds those that wait in a channel to be sent, and those that wait to be sent again.
	maxNotices = 256
	// noticeLimit bounds one try.
	noticeLimit = 30 * time.Second
)

// noticeWaits stand between the tries of a notice. The last one is long enough for mail servers that take a mail of
// somebody new only the second time.
var noticeWaits = [...]time.Duration{15 * time.Second, 2 * time.Minute, 15 * time.Minute}

// message is a notice on its way to one receiver.
type message struct {
	Notice
	// id is the same in every try.
	id string
	// suppressed is how many notices of its cause were not told since the last one that was.
	suppressed int
	to         string // mail address; "": the webhook
	tries      int    // that were made
	due        time.Time
}

// newNoticeID makes an id for a notice, one for mails and webhook alike.
func newNoticeID() string { return "ntc_" + rand.Text() }

// noticeQueue sends the messages of one channel one after another. One that fails waits beside the queue, so that it
// holds up no other.
type noticeQueue struct {
	channel string
	cfg     *NotifierConfig
	// send makes one try. retry says of an error that another try may end better.
	send  func(ctx context.Context, m *message) (retry bool, err error)
	queue chan message
	again []message // wait for their due time; run's alone
	drops loglimit.Limiter
}

func newNoticeQueue(channel string, cfg *NotifierConfig, send func(context.Context, *message) (bool, error)) *noticeQueue {
	return &noticeQueue{channel: channel, cfg: cfg, send: send, queue: make(chan message, maxNotices)}
}

// add has m sent, unless it is refused, or there is no room.
func (q *noticeQueue) add(m message, refused string) {
	if refused == "" {
		select {
		case q.queue <- m:
			return
		default:
			refused = NoticeDropped
		}
	}
	q.cfg.Count(q.channel, refused)
	if refused != NoticeDropped {
		return
	}
	if ok, left := q.drops.Take(time.Now(), 1); ok {
		q.log(slog.LevelError, "notice dropped, too many wait", &m, slog.Int64(keySuppressed, left))
	}
}

// run sends until ctx ends.
func (q *noticeQueue) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(q.untilDue(time.Now()))
		select {
		case <-ctx.Done():
			if left := len(q.queue) + len(q.again); left > 0 {
				q.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "notices are not sent, sidehook stops", slog.String(keyChannel, q.channel), slog.Int("left", left))
			}
			return
		case m := <-q.queue:
			q.try(ctx, m)
		case <-timer.C:
			if i := q.nextDue(); i >= 0 && !time.Now().Before(q.again[i].due) {
				m := q.again[i]
				q.again = slices.Delete(q.again, i, i+1)
				q.try(ctx, m)
			}
		}
	}
}

// nextDue returns the index of the message that is due first, -1 for none.
func (q *noticeQueue) nextDue() int {
	next := -1
	for i := range q.again {
		if next < 0 || q.again[i].due.Before(q.again[next].due) {
			next = i
		}
	}
	return next
}

// untilDue is how long nothing is to be sent again.
func (q *noticeQueue) untilDue(now time.Time) time.Duration {
	if i := q.nextDue(); i >= 0 {
		return max(q.again[i].due.Sub(now), 0)
	}
	return time.Hour
}

// try makes one try of m and decides what follows.
func (q *noticeQueue) try(ctx context.Context, m message) {
	limit, cancel := context.WithTimeout(ctx, noticeLimit)
	defer cancel()
	retry, err := q.send(limit, &m)
	m.tries++
	switch {
	case err == nil:
		q.cfg.Count(q.channel, NoticeSent)
		q.log(slog.LevelInfo, "notice sent", &m)
	case ctx.Err() != nil || retry && m.tries <= len(noticeWaits) && len(q.again) < maxNotices:
		if ctx.Err() == nil {
			q.log(slog.LevelWarn, "notice not sent, it is tried again", &m, slog.String("err", bounded(err.Error())))
		}
		m.due = time.Now().Add(noticeWaits[min(m.tries, len(noticeWaits))-1])
		q.again = append(q.again, m)
	default:
		q.cfg.Count(q.channel, NoticeFailed)
		q.log(slog.LevelError, "notice not sent", &m, slog.String("err", bounded(err.Error())))
	}
}

func (q *noticeQueue) log(level slog.Level, text string, m *message, more ...slog.Attr) {
	attrs := append([]slog.Attr{
		slog.String(keyChannel, q.channel), slog.String("notice", m.id), slog.String("kind", m.Kind.String()),
		slog.String(keyEndpoint, m.Endpoint), slog.Int("tries", m.tries),
	}, more...)
	q.cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
}
