package egress

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// sendInstant is a receiver that reads and says yes.
func sendInstant(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "ok")
}

// BenchmarkSend is an attempt with a body of 1 KiB to an instant receiver on a kept connection. It takes turns with its
// yardstick, net/http's Transport posting the same bytes with the same headers, so that a busy machine slows both: x-bare
// is our time divided by that one's.
func BenchmarkSend(b *testing.B) {
	for _, scheme := range []string{"http", "https"} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			if scheme == "http" && protocol == "h2" {
				continue
			}
			b.Run(scheme+" "+protocol, func(b *testing.B) { benchmarkSend(b, scheme, protocol) })
		}
	}
}

func benchmarkSend(b *testing.B, scheme, protocol string) {
	ca := newSendCA(b)
	at := ""
	if scheme == "http" {
		at = sendHTTP(b, http.HandlerFunc(sendInstant))
	} else {
		at = sendHTTPS(b, ca.issue(b, nil), http.HandlerFunc(sendInstant), protocol)
	}
	e, s := sendEndpoint(b, at+"/in", sendTrusting(ca.pool)), sendSender(b)
	ev := sendEvent()
	ev.Body = bytes.Repeat([]byte("x"), 1024)
	bare := newTransport(e.Filter)
	bare.DialContext = nil
	defer bare.CloseIdleConnections()
	const turn = 20
	var ours, theirs time.Duration
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		start := time.Now()
		for i := range turn {
			if r := s.Send(b.Context(), e, ev, i); r.Outcome != OutcomeDelivered {
				b.Fatal(r.Outcome, r.Detail)
			}
		}
		middle := time.Now()
		for range turn {
			if err := sendBare(bare, e.Target.URL, ev); err != nil {
				b.Fatal(err)
			}
		}
		if n > 0 { // the first turn dials
			ours, theirs = ours+middle.Sub(start), theirs+time.Since(middle)
		}
	}
	b.ReportMetric(float64(ours)/float64(theirs), "x-bare")
	b.ReportMetric(float64(ours.Nanoseconds())/float64(max(b.N-1, 1)*turn), "ns/attempt")
}

func sendBare(t *http.Transport, url string, ev *Event) error {
	r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(ev.Body))
	if err != nil {
		return err
	}
	for _, h := range [][2]string{
		{"Content-Type", ev.ContentType}, {"User-Agent", "sidehook/1.2.3"}, {"Webhook-Id", ev.ID}, {"Webhook-Timestamp", strconv.Itoa(1700000000)},
		{"Webhook-Signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}, {"Webhook-Attempt", "1"},
	} {
		r.Header.Set(h[0], h[1])
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errorsFirst(err, resp.Body.Close())
}

func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
