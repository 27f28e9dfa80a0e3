package egress

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// maxKeptBuffer is the size past which a buffer is not kept for the next request.
const maxKeptBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// takeBuffer returns a buffer of any content, to be given back with giveBuffer.
func takeBuffer() *[]byte { return buffers.Get().(*[]byte) }

func giveBuffer(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		buffers.Put(b)
	}
}

// read reads the body of a request, at most MaxEventBytes, into room if it is large enough. Before it holds a byte it
// reserves as many as the body has, or may have; the caller calls done once the event is stored.
func (in *Intake) read(w http.ResponseWriter, r *http.Request, room []byte) (body []byte, done func(), p *problem) {
	most := int64(in.settings.Load().MaxEventBytes)
	size := r.ContentLength
	if size > most {
		return nil, nil, in.tooLarge()
	}
	reserve := size
	if size < 0 {
		reserve = most
	}
	if !in.bytes.TryAcquire(reserve) {
		return nil, nil, newProblem(problemBusy, "")
	}
	if size >= 0 {
		if int64(cap(room)) < size {
			room = make([]byte, size)
		}
		body = room[:size]
		_, err := io.ReadFull(r.Body, body)
		p = in.readProblem(err)
	} else {
		body, p = in.readUnknown(http.MaxBytesReader(w, r.Body, most), room)
	}
	if p != nil {
		in.bytes.Release(reserve)
		return nil, nil, p
	}
	return body, func() { in.bytes.Release(reserve) }, nil
}

// readUnknown reads a body whose length is not said beforehand.
func (in *Intake) readUnknown(r io.Reader, room []byte) ([]byte, *problem) {
	body := room[:0]
	for {
		if len(body) == cap(body) {
			body = append(body, make([]byte, max(4096, len(body)))...)[:len(body)]
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, in.readProblem(err)
		}
	}
}

// readProblem says what it means that a body could not be read.
func (in *Intake) readProblem(err error) *problem {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return in.tooLarge()
	}
	return newProblem(problemIncompleteBody, "the connection ended, or stood still for too long, before the body was whole")
}

// tooLarge is the refusal of an event over the limit.
func (in *Intake) tooLarge() *problem {
	return newProblem(problemTooLarge,
		"an event has at most "+strconv.Itoa(in.settings.Load().MaxEventBytes)+" bytes as it is posted (egress.max_event)")
}
