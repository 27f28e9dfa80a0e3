package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sidehook/sidehook/egress/netguard"
)

// noticeSender is a Sender that keeps what it was given and answers as it is told.
type noticeSender struct {
	result func(n int) Result // of the n-th call, from 0

	mu   sync.Mutex // covers sent
	sent []noticePost
}

type noticePost struct {
	at      time.Duration // since the test began
	id      string
	attempt int
	body    noticeBody
}

var noticeTaken = func(int) Result { return Result{Outcome: OutcomeDelivered, Status: 200} }

func (s *noticeSender) Send(_ context.Context, e *Endpoint, ev *Event, attempt int) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := noticePost{at: time.Since(noticeStart), id: ev.ID, attempt: attempt}
	if err := json.Unmarshal(ev.Body, &p.body); err != nil || e.ID != noticeEndpoint {
		return Result{Outcome: OutcomeInternal, Detail: fmt.Sprint(e.ID, err)}
	}
	s.sent = append(s.sent, p)
	return s.result(len(s.sent) - 1)
}

func (s *noticeSender) posts() []noticePost {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// noticeStart is when a bubble begins.
var noticeStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// noticeRig is a notifier with a webhook and what it counted and logged.
type noticeRig struct {
	*Notifier
	sender *noticeSender
	mu     sync.Mutex // covers counts and targets
	counts map[string]int
	target NoticeTargets
	log    noticeLog
}

// noticeLog is a log in memory.
type noticeLog struct {
	mu  sync.Mutex // covers buf
	buf bytes.Buffer
}

func (l *noticeLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *noticeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newNoticeRig(t *testing.T, result func(n int) Result) *noticeRig {
	t.Helper()
	r := &noticeRig{sender: &noticeSender{result: result}, counts: make(map[string]int), target: NoticeTargets{Webhook: new(NoticeWebhook)}}
	n, err := NewNotifier(NotifierConfig{
		Targets: func() NoticeTargets {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.target
		},
		Sender: r.sender,
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
		Count: func(channel, result string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.counts[channel+" "+result]++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Notifier = n
	return r
}

// run runs the notifier until the returned function is called.
func (r *noticeRig) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func (r *noticeRig) counted() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

func disabledNotice(endpoint string) Notice {
	return Notice{Kind: NoticeDisabled, Endpoint: endpoint, At: time.Now(), Disabled: DisabledGone, Outcome: OutcomeGone}
}

// Once per cause and hour: what another endpoint, kind or reason is, is told; the rest is counted and said later.
func TestNotifierOncePerCauseAndHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newNoticeRig(t, noticeTaken)
		defer r.run(t)()
		first := disabledNotice("acme")
		r.Tell(first)
		for range 5 {
			time.Sleep(time.Minute)
			r.Tell(disabledNotice("acme")) // another time, the same cause
		}
		for _, other := range []func(*Notice){
			func(n *Notice) { n.Endpoint = "other" },
			func(n *Notice) { n.Kind = NoticeRecovered },
			func(n *Notice) { n.Disabled = DisabledAsked },
			func(n *Notice) { n.Outcome = OutcomeRejected },
			func(n *Notice) { n.Percent = 90 },
			func(n *Notice) { n.NotReached = true },
		} {
			n := first
			other(&n)
			r.Tell(n)
		}
		time.Sleep(55*time.Minute - time.Millisecond)
		r.Tell(first)
		synctest.Wait()
		if n := len(r.sender.posts()); n != 7 {
			t.Errorf("%d notices within the hour, want the first and six of other causes", n)
		}
		time.Sleep(time.Millisecond)
		r.Tell(first)
		synctest.Wait()
		posts := r.sender.posts()
		if len(posts) != 8 || posts[7].body.Data.Suppressed != 6 || posts[0].body.Data.Suppressed != 0 {
			t.Errorf("after an hour: %d notices, the last %+v; want one that says that 6 were not told", len(posts), posts[len(posts)-1].body)
		}
		time.Sleep(noticeEvery)
		r.Tell(first)
		synctest.Wait()
		if posts = r.sender.posts(); len(posts) != 9 || posts[8].body.Data.Suppressed != 0 {
			t.Errorf("after another hour: %d notices, the last %+v", len(posts), posts[len(posts)-1].body)
		}
		if diff := cmp.Diff(map[string]int{"webhook sent": 9, "webhook suppressed": 6}, r.counted()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	})
}

// A notice is tried four times with the same id, and then given up; it holds up no other.
func TestNotifierRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := Result{Outcome: OutcomeServerError, Status: 500, Detail: "status 500"}
		r := newNoticeRig(t, func(n int) Result {
			if n == 1 {
				return Result{Outcome: OutcomeDelivered, Status: 204}
			}
			return bad
		})
		defer r.run(t)()
		r.Tell(disabledNotice("failing"))
		r.Tell(disabledNotice("fine"))
		time.Sleep(24 * time.Hour)
		var got []string
		ids := make(map[string]bool)
		for _, p := range r.sender.posts() {
			got = append(got, fmt.Sprint(p.body.Data.Endpoint, " ", p.attempt, " ", p.at))
			ids[p.id] = true
		}
		want := []string{"failing 1 0s", "fine 1 0s", "failing 2 15s", "failing 3 2m15s", "failing 4 17m15s"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("posts (-want +got):\n%s", diff)
		}
		if len(ids) != 2 {
			t.Errorf("%d ids, want one for each notice", len(ids))
		}
		if diff := cmp.Diff(map[string]int{"webhook sent": 1, "webhook failed": 1}, r.counted()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
		if !strings.Contains(r.log.String(), `msg="notice not sent" channel=webhook`) {
			t.Errorf("log %s", &r.log)
		}
	})
}

func TestNotifierGivesUpOnGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newNoticeRig(t, func(int) Result { return Result{Outcome: OutcomeGone, Status: 410} })
		defer r.run(t)()
		r.Tell(disabledNotice("acme"))
		time.Sleep(24 * time.Hour)
		if n := len(r.sender.posts()); n != 1 {
			t.Errorf("%d tries of a webhook that is gone, want 1", n)
		}
	})
}

// A queue that is full blocks nobody: what does not fit is dropped, counted and said.
func TestNotifierQueueFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newNoticeRig(t, noticeTaken)
		for i := range maxNotices + 100 { // nobody sends yet
			r.Tell(disabledNotice(fmt.Sprint("e", i)))
		}
		if got := r.counted()["webhook dropped"]; got != 100 {
			t.Errorf("%d dropped, want 100", got)
		}
		if !strings.Contains(r.log.String(), "notice dropped") {
			t.Errorf("log %q", &r.log)
		}
		stop := r.run(t)
		synctest.Wait()
		if n := len(r.sender.posts()); n != maxNotices {
			t.Errorf("%d sent, want %d", n, maxNotices)
		}
		stop()
	})
}

// Those that wait to be sent again are bounded too: one more is given up at once.
func TestNotifierRetriesBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newNoticeRig(t, func(int) Result { return Result{Outcome: OutcomeServerError, Status: 500} })
		defer r.run(t)()
		for i := range maxNotices + 10 {
			r.Tell(disabledNotice(fmt.Sprint("e", i)))
			synctest.Wait()
		}
		if diff := cmp.Diff(map[string]int{"webhook failed": 10}, r.counted()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
		if got := r.counted()["webhook failed"]; got != maxNotices+10 {
			t.Errorf("%d failed in the end, want all", got)
		}
	})
}

// The causes that are remembered are bounded, and forgotten after their hour.
func TestNotifierCausesBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newNoticeRig(t, noticeTaken)
		defer r.run(t)()
		for i := range maxCauses + 10 {
			r.Tell(disabledNotice(fmt.Sprint("e", i)))
			if i%100 == 0 {
				synctest.Wait() // the queue is not what this test is about
			}
		}
		if got := r.counted(); got["webhook dropped"] != 10 {
			t.Errorf("counted %v, want 10 dropped", got)
		}
		time.Sleep(noticeEvery)
		r.Tell(disabledNotice("late"))
		synctest.Wait()
		if n := len(r.sender.posts()); n != maxCauses+1 {
			t.Errorf("%d sent, want %d", n, maxCauses+1)
		}
	})
}

func TestNotifierNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newNoticeRig(t, noticeTaken)
		defer r.run(t)()
		r.mu.Lock()
		r.target = NoticeTargets{Mail: &MailServer{Server: "127.0.0.1:1"}} // for owners alone
		r.mu.Unlock()
		r.Tell(disabledNotice("acme"))
		synctest.Wait()
		if got := r.counted(); len(got) != 0 || len(r.sender.posts()) != 0 {
			t.Errorf("an endpoint without an owner: counted %v", got)
		}
	})
}

// A notice that waits to be sent again goes where the configuration says by then; here nowhere.
func TestNotifierReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newNoticeRig(t, func(int) Result { return Result{Outcome: OutcomeServerError, Status: 500} })
		defer r.run(t)()
		r.Tell(disabledNotice("acme"))
		synctest.Wait()
		r.mu.Lock()
		r.target = NoticeTargets{}
		r.mu.Unlock()
		time.Sleep(24 * time.Hour)
		if n := len(r.sender.posts()); n != 1 {
			t.Errorf("%d tries, want the one before the reload", n)
		}
		if diff := cmp.Diff(map[string]int{"webhook failed": 1}, r.counted()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	})
}

// What is not sent when the process stops is said in the log.
func TestNotifierStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newNoticeRig(t, func(int) Result { return Result{Outcome: OutcomeServerError, Status: 500} })
		stop := r.run(t)
		r.Tell(disabledNotice("acme"))
		synctest.Wait()
		stop()
		if !strings.Contains(r.log.String(), "notices are not sent") || !strings.Contains(r.log.String(), "left=1") {
			t.Errorf("log %s", &r.log)
		}
	})
}

// Case 33: an endpoint stays disabled though nobody could be told, there is one notice of it, and none about notices.
func TestNotifierFailingChangesNothing(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		n := newNoticeRig(t, func(int) Result { return Result{Outcome: OutcomeGone, Status: 503} })
		defer n.run(t)()
		r := newDispatchRig(t, dispatchEndpoint("acme", 1))
		r.cfg.Notify = n.Tell
		r.sender.send = func(context.Context, *Endpoint, *Event, int) Result { return Result{Outcome: OutcomeGone, Status: 410} }
		r.start()
		defer r.finish()
		r.outbox.accept("acme", 3)
		time.Sleep(48 * time.Hour)
		if h := r.outbox.healthOf("acme"); h.Disabled != DisabledGone {
			t.Errorf("disabled: %d, want by 410", h.Disabled)
		}
		posts := n.sender.posts()
		if len(posts) != 1+len(noticeWaits) {
			t.Errorf("%d posts, want four tries of one notice", len(posts))
		}
		for _, p := range posts {
			if p.body.Type != "endpoint.disabled" || p.body.Data.Endpoint != "acme" || p.body.Data.Reason != "gone" {
				t.Errorf("told %+v", p.body)
			}
		}
	})
}

// The operational webhook is signed as any attempt: the official library accepts it, and it goes through the filter.
func TestNotifierWebhookIsSigned(t *testing.T) {
	t.Parallel()
	verifier, err := standardwebhooks.NewWebhook(sendSecret)
	if err != nil {
		t.Fatal(err)
	}
	bodies := make(chan []byte, 1)
	url := sendHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = verifier.Verify(body, r.Header)
		}
		if err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v, content type %q", err, r.Header.Get("Content-Type"))
		}
		bodies <- body
	}))
	e := sendEndpoint(t, url+"/notices?token="+sendToken)
	results := make(chan string, 1)
	n, err := NewNotifier(NotifierConfig{
		Targets:  func() NoticeTargets { return NoticeTargets{Webhook: &NoticeWebhook{e.Target, e.Filter, e.Keys}} },
		Sender:   sendSender(t),
		Instance: "pod-1",
		Count:    func(channel, result string) { results <- channel + " " + result },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	n.Tell(Notice{
		Kind: NoticeDead, Endpoint: "acme", Tenant: "t1", At: testTime, Outcome: OutcomeTimeoutBody, NotReached: true, Since: testTime.Add(-time.Hour),
		DeliveryID: DeliveryID{Event: 1, Endpoint: 1}, EventID: "evt_1",
	})
	const want = `{"type":"delivery.dead","timestamp":"2021-02-25T15:02:10.000Z","data":{"instance":"pod-1","endpoint":"acme","tenant":"t1",` +
		`"outcome":"timeout_body","not_reached":true,"since":"2021-02-25T14:02:10.000Z","delivery":"dlv_0000000000002000000g","event":"evt_1"}}`
	if got := string(<-bodies); got != want {
		t.Errorf("body %s, want %s", got, want)
	}
	if got := <-results; got != "webhook sent" {
		t.Error(got)
	}
}

// An address that the filter refuses is not called, also not for a notice.
func TestNotifierWebhookIsFiltered(t *testing.T) {
	t.Parallel()
	url := sendHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a refused address was called") }))
	e := sendEndpoint(t, url)
	strict, err := netguard.New(netguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewNotifier(NotifierConfig{
		Targets: func() NoticeTargets { return NoticeTargets{Webhook: &NoticeWebhook{e.Target, strict, e.Keys}} }, Sender: sendSender(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	retry, err := n.sendWebhook(t.Context(), &message{Notice: disabledNotice("acme"), id: "ntc_1"})
	if err == nil || !retry || !strings.Contains(err.Error(), OutcomeAddressRefused.String()) || strings.Contains(err.Error(), url) {
		t.Errorf("retry %t, %v", retry, err)
	}
}

// Every kind and reason has words, and no value outside the enums breaks anything.
func TestNoticeWords(t *testing.T) {
	t.Parallel()
	subjects := make(map[string]bool)
	for k := NoticeKind(1); k < noticeKinds; k++ {
		for d := DisableReason(0); d <= disableReasons; d++ {
			m := &message{Notice: Notice{Kind: k, Endpoint: "acme", At: testTime, Disabled: d, Outcome: outcomes}, suppressed: 2}
			subjects[m.subject()] = true
			text := m.text("pod-1")
			if !strings.Contains(text, "acme") || !strings.Contains(text, "2 more of the same") || strings.Contains(text, "%!") {
				t.Errorf("%s, %d: %s", k, d, text)
			}
			for line := range strings.Lines(text) {
				if len(line) > 78 {
					t.Errorf("%s: a line of %d: %s", k, len(line), line)
				}
			}
			if _, err := m.body(""); err != nil {
				t.Error(err)
			}
		}
	}
	if len(subjects) != int(noticeKinds)-1 {
		t.Errorf("%d subjects for %d kinds", len(subjects), noticeKinds-1)
	}
	for d := DisableReason(1); d < disableReasons; d++ {
		if disableReasonName(d) == "" || disableReasonTexts[d] == "" {
			t.Errorf("reason %d has no words", d)
		}
	}
}
