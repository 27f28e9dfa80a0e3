package egress

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// maxAnswer is how much of an answer's body is read, so that its end is seen and the connection can be kept.
	maxAnswer = 64 << 10
	// keptAnswer is how much of that goes into the log.
	keptAnswer = 1 << 10
)

// answerBuffers are for reading bodies; what is kept is copied.
var answerBuffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// answer turns an answer into the Result. whole says that its body was read to the end. There is an error only if the
// fault is in how the answer came; a status that is none of success says more than how its body ended.
func (x *exchange) answer(resp *http.Response) (whole bool, err error) {
	x.Status = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// What follows is no body: net/http hands out the bare connection, and reading it would know no time limit.
		x.Outcome, x.Detail = x.judge(resp)
		return false, nil
	}
	whole, err = x.read(resp.Body)
	if whole && untilClose(resp) && x.ctx.Err() != nil {
		// With the context net/http leaves the connection, over TLS with a word first, and a receiver that closes upon it
		// ends the body. So this end may be our own doing.
		whole, err = false, x.ctx.Err()
	}
	x.Outcome, x.Detail = x.judge(resp)
	if x.Outcome == OutcomeDelivered {
		if err != nil {
			x.Outcome = 0
		}
		return whole, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		x.RetryAfter, _ = ParseRetryAfter(resp.Header["Retry-After"], time.Now())
	}
	return whole && err == nil, nil
}

// read reads the body as far as it may, keeps its beginning and closes it.
func (x *exchange) read(body io.ReadCloser) (whole bool, err error) {
	buf := answerBuffers.Get().(*[4 << 10]byte)
	defer answerBuffers.Put(buf)
	for x.AnswerBytes < maxAnswer {
		var n int
		n, err = body.Read(buf[:min(len(buf), int(maxAnswer-x.AnswerBytes))])
		keep := min(n, keptAnswer-len(x.Answer))
		if keep > 0 {
			x.Answer = append(x.Answer, buf[:keep]...)
		}
		x.Truncated = x.Truncated || keep < n
		x.AnswerBytes += int64(n)
		if err != nil {
			break
		}
	}
	if err == io.EOF {
		whole, err = true, nil
	}
	redact(x.Answer, x.Truncated || !whole, x.secrets)
	// A body that is cut here takes its connection with it (HTTP/1) or resets its stream (HTTP/2).
	_ = body.Close()
	return whole, err
}

// untilClose says that the body of an answer of HTTP/1 ends with its connection, and not by a length or a last chunk.
func untilClose(resp *http.Response) bool {
	return resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
}

// judge names an answer by its status and by what it asks for, and says why it is a failure. Who gets requests of others as
// they came speaks HTTP, and not Standard Webhooks: nothing is asked for there.
func (x *exchange) judge(resp *http.Response) (Outcome, string) {
	status := resp.StatusCode
	what := fmt.Sprintf("%d", status)
	if text := http.StatusText(status); text != "" {
		what += " " + text
	}
	if x.sender.request == nil {
		switch asked(resp.Header["Webhook-Delivery"]) {
		case askedDisable:
			return OutcomeDisableAsked, what + " with webhook-delivery: disable"
		case askedAbort:
			return OutcomeAbortAsked, what + " with webhook-delivery: abort-message"
		}
	}
	switch {
	case status < 200 || status > 599:
		return OutcomeBadAnswer, what + " is no answer to a request"
	case status < 300:
		return OutcomeDelivered, ""
	case status < 400:
		return OutcomeRedirect, what + ": redirects are not followed"
	case status == http.StatusGone:
		return OutcomeGone, what
	case status == http.StatusTooManyRequests:
		return OutcomeThrottled, what
	case status < 500:
		return OutcomeRejected, what
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		// Over plain HTTP the mesh's own Envoy answers for a receiver that it did not reach.
		if x.endpoint.Target.Scheme == "http" && status != http.StatusGatewayTimeout && resp.Header.Get("Server") == "envoy" {
			return OutcomeMeshReset, what + " by a proxy of the mesh"
		}
		return OutcomeUnavailable, what
	}
	return OutcomeServerError, what
}

const (
	askedNothing = iota
	askedAbort
	askedDisable
)

// asked reads the webhook-delivery fields of an answer: a list of words in any case. What it does not know it leaves be.
func asked(fields []string) int {
	found := askedNothing
	for _, field := range fields {
		for word := range strings.SplitSeq(field, ",") {
			switch word = strings.Trim(word, " \t"); {
			case strings.EqualFold(word, "disable"):
				found = askedDisable
			case strings.EqualFold(word, "abort-message"):
				found = max(found, askedAbort)
			}
		}
	}
	return found
}
