package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// maxLinesInHand is how many lines of one request are stored at one time: enough that they share a sync of the disk.
	maxLinesInHand = 64
	// maxUnread bounds the answers that a client has not read. Most clients read nothing before they have sent all: they
	// get by with it up to some tens of thousands of lines.
	maxUnread = 8 << 20
	// lineIdle is how long a client may send nothing between two lines.
	lineIdle = 2 * time.Minute
	// lineStall is how long it may take to send some more of a line, or to read some more of the answer.
	lineStall = 30 * time.Second
)

// takeLines takes NDJSON: an event a line, each on its own. The answer is 200 and has a line for each line that is not
// blank, in their order: {"status":202,…} as for an event alone, or a problem, which has a status too. Lines are answered
// as they come, so that a client may also keep a request open, and send and read in turn.
func (in *Intake) takeLines(w http.ResponseWriter, r *http.Request) {
	if r.Header["Idempotency-Key"] != nil {
		in.refuse(w, newProblem(problemInvalidEvent, "each line has its own id: leave Idempotency-Key out"))
		return
	}
	s := &lineStream{in: in, ctx: r.Context(), body: bufio.NewReader(r.Body), w: w, control: http.NewResponseController(w),
		inHand: make(chan *line, maxLinesInHand)}
	s.unread.cond.L = &s.unread.mu
	// Without it HTTP/1.1 reads the rest of the body before the first answer goes out. Where it is not supported the
	// answers go out at the end.
	_ = s.control.EnableFullDuplex()
	w.Header().Set("Content-Type", typeNDJSON)

	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		select {
		case <-in.stop:
			s.readBy(time.Now()) // wakes read, which sees why
		case <-ended:
		}
	})
	wg.Go(func() {
		s.read(&wg)
		close(s.inHand)
	})
	wg.Go(s.collect)
	s.write()
	close(ended)
	wg.Wait()
	s.writeBy(time.Now().Add(lineStall)) // the end of the answer is still to be written, which may be long after a line
}

// lineStream is one request of NDJSON: read puts lines in hand, each is stored by a goroutine of its own, collect
// gathers their answers in order, write sends them.
type lineStream struct {
	in      *Intake
	ctx     context.Context // the request's
	body    *bufio.Reader
	w       http.ResponseWriter
	control *http.ResponseController
	inHand  chan *line
	unread  unread
}

// line is a line in hand.
type line struct {
	done   chan struct{} // closed when answer is there
	answer []byte
}

// read reads lines until the body ends, the client stalls or the intake stops.
func (s *lineStream) read(wg *sync.WaitGroup) {
	for {
		most := int64(s.in.settings.Load().MaxEventBytes)
		s.readBy(time.Now().Add(lineIdle))
		if s.in.stopped() || s.unread.failed() {
			return
		}
		_, err := s.body.Peek(1)
		if err == nil {
			err = s.in.bytes.Acquire(s.ctx, most)
		}
		if err != nil {
			// Whatever it was came between two lines, so nothing was begun. The deadline would end the context, and
			// with it what is in hand.
			s.readBy(time.Time{})
			return
		}
		s.readBy(time.Now().Add(lineStall))
		buf := takeBuffer()
		text, err := s.line((*buf)[:0], int(most))
		*buf = text
		s.in.bytes.Release(most - int64(len(text)))
		l := &line{done: make(chan struct{})}
		switch whole := err == nil || errors.Is(err, io.EOF); {
		case whole && len(bytes.Trim(text, " \t\r\n")) == 0:
			s.in.bytes.Release(int64(len(text)))
			giveBuffer(buf)
			continue
		case whole:
			wg.Go(func() {
				receipt, refusal := s.in.takeLine(s.ctx, text)
				s.in.bytes.Release(int64(len(text)))
				giveBuffer(buf)
				l.end(s.in, &receipt, refusal)
			})
		default:
			s.in.bytes.Release(int64(len(text)))
			giveBuffer(buf)
			l.end(s.in, nil, s.in.lineProblem(err))
		}
		s.inHand <- l
		if err != nil && !errors.Is(err, errLongLine) {
			s.readBy(time.Time{})
			return
		}
	}
}

// errLongLine says that a line was passed over because it has more bytes than an event may have.
var errLongLine = errors.New("line too long")

// line appends the next line to buf, without the byte that ends it. io.EOF: it is the last one and may be empty.
// errLongLine: it was passed over. Any other error: it is not whole.
func (s *lineStream) line(buf []byte, most int) ([]byte, error) {
	long := false
	for {
		part, err := s.body.ReadSlice('\n')
		if n := len(part); n > 0 && part[n-1] == '\n' {
			part = part[:n-1]
		}
		if long = long || len(buf)+len(part) > most; long {
			buf = buf[:0]
		} else {
			buf = append(buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			s.readBy(time.Now().Add(lineStall))
		case long && (err == nil || errors.Is(err, io.EOF)):
			return buf, errLongLine
		default:
			return buf, err
		}
	}
}

// readBy sets the time by which the client has to send more; zero: there is none.
func (s *lineStream) readBy(t time.Time) {
	_ = s.control.SetReadDeadline(t) // where there are no deadlines there is nobody who stalls
}

// writeBy sets the time by which the client has to have read what is written.
func (s *lineStream) writeBy(t time.Time) {
	_ = s.control.SetWriteDeadline(t) // as in readBy
}

// takeLine stores one line.
func (in *Intake) takeLine(ctx context.Context, text []byte) (Receipt, *problem) {
	p, refusal := readEnvelope(text)
	if refusal == nil {
		refusal = p.identify(nil, "id")
	}
	if refusal != nil {
		return Receipt{}, refusal
	}
	return in.accept(ctx, &p)
}

// lineProblem says why a line was not read.
func (in *Intake) lineProblem(err error) *problem {
	if errors.Is(err, errLongLine) {
		return in.tooLarge()
	}
	return in.readProblem(err)
}

// end makes the answer to a line: the receipt's, or the problem's.
func (l *line) end(in *Intake, receipt *Receipt, p *problem) {
	if p != nil {
		in.cfg.Count(problems[p.code].name)
		l.answer = p.appendTo(nil)
	} else {
		l.answer = appendReceipt([]byte(`{"status":202,`), receipt)
	}
	l.answer = append(l.answer, '\n')
	close(l.done)
}

// collect gathers the answers in the order of the lines.
func (s *lineStream) collect() {
	for l := range s.inHand {
		<-l.done
		s.unread.add(l.answer)
	}
	s.unread.close()
}

// write sends answers as they come, until there are no more or the client does not take them.
func (s *lineStream) write() {
	var buf []byte
	for {
		var ok bool
		if buf, ok = s.unread.take(buf); !ok {
			return
		}
		s.writeBy(time.Now().Add(lineStall))
		_, err := s.w.Write(buf)
		if err == nil {
			err = s.control.Flush()
		}
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			s.unread.fail()
			s.readBy(time.Now()) // nobody would read what comes of the rest
			return
		}
	}
}

// unread holds the answers that wait to be written. One goroutine adds, one takes.
type unread struct {
	mu             sync.Mutex // covers what follows
	cond           sync.Cond
	bytes          []byte
	closed, broken bool
}

// add waits until there is room, and forgets answer where nobody reads any more.
func (u *unread) add(answer []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.bytes) > maxUnread && !u.broken {
		u.cond.Wait()
	}
	if !u.broken {
		u.bytes = append(u.bytes, answer...)
		u.cond.Broadcast()
	}
}

// take waits for answers and returns all of them; spare is room for those to come. It reports false when there are no
// more.
func (u *unread) take(spare []byte) ([]byte, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.bytes) == 0 && !u.closed {
		u.cond.Wait()
	}
	taken := u.bytes
	u.bytes = spare[:0]
	u.cond.Broadcast()
	return taken, len(taken) > 0
}

// close says that nothing is added any more.
func (u *unread) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	u.cond.Broadcast()
}

// fail says that nothing is taken any more.
func (u *unread) fail() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.broken = true
	u.cond.Broadcast()
}

func (u *unread) failed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.broken
}
