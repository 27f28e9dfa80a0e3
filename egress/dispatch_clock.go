package egress

import "time"

// runClock tells a dispatcher the time. What is due is kept on disk by the wall clock, for a restart; while the process
// runs it waits by the monotonic one, so that a jump of the wall clock neither stalls nor storms.
type runClock struct {
	start time.Time // with its monotonic reading
	wall  func() time.Time
}

func newRunClock() runClock { return runClock{start: time.Now(), wall: time.Now} }

// mono is the time since the start.
func (c *runClock) mono() time.Duration { return time.Since(c.start) }

// now is the wall clock as it is kept: UTC, in milliseconds.
func (c *runClock) now() time.Time { return c.wall().UTC().Truncate(time.Millisecond) }

// frameSlack is by how much the wall clock may be adjusted with a frame following at once.
const frameSlack = 2 * time.Second

// frame is the wall clock at the start of the run, as the due times of one endpoint were written. It follows a jump of the
// wall clock only when nothing that was written before the jump is on disk alone: until then due times are written as if
// there had been none, because the rows do not say on which side of it they were written.
type frame struct{ start time.Time }

func (c *runClock) newFrame() frame { return frame{c.wall().UTC().Round(0).Add(-c.mono())} }

// follow takes the wall clock as it is now. all: no due time of the endpoint is on disk alone.
func (f *frame) follow(c *runClock, all bool) {
	next := c.newFrame()
	if off := next.start.Sub(f.start); all || -frameSlack < off && off < frameSlack {
		*f = next
	}
}

// deadline is when a due time is reached that is kept on disk.
func (f frame) deadline(due time.Time) time.Duration { return due.Sub(f.start) }

// due is a deadline as it is kept on disk.
func (f frame) due(deadline time.Duration) time.Time {
	return ceilMillis(f.start.Add(deadline))
}
