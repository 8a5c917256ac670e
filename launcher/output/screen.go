package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
)

const (
	// maxQueued bounds the output that waits for a slow terminal; beyond that, ranks wait.
	maxQueued = 4 << 20
	// mostQueued bounds what is queued by those who do not wait; beyond that, it is lost.
	mostQueued = 16 << 20
	// atOnce is how much a terminal gets at a time, so that it shows whether anybody reads it.
	atOnce = 64 << 10
)

// eraseLine moves the cursor to the start of the line and clears it.
const eraseLine = "\r\x1b[K"

// screen writes whole lines to standard output and standard error in order of arrival, and keeps a status line below
// them. New output gathers while a write is in progress, so that a busy screen needs one system call for many lines.
type screen struct {
	err io.Writer

	mu       sync.Mutex
	changed  sync.Cond // something to write, space in the queue, or the end
	queue    []run
	queued   int
	status   string // the status line to show
	drawn    string // the status line that the goroutine last took
	hurried  bool   // nobody waits for space
	lost     int    // bytes that found no space
	taken    int    // bytes that were written
	closed   bool
	writeErr error
	idle     chan struct{} // closed when the goroutine has ended

	shown string // the status line on the terminal; belongs to the goroutine
}

// run is consecutive output for one destination, written at once.
type run struct {
	to   io.Writer
	data []byte
}

func newScreen(stderr io.Writer) *screen {
	s := &screen{err: stderr, idle: make(chan struct{})}
	s.changed.L = &s.mu
	go s.loop()
	return s
}

// put queues lines without waiting. After finish it does nothing.
func (s *screen) put(to io.Writer, lines []byte) {
	if len(lines) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.hurried && s.queued >= mostQueued {
		s.lost += len(lines)
		return
	}
	s.queued += len(lines)
	if n := len(s.queue); n > 0 && s.queue[n-1].to == to {
		s.queue[n-1].data = append(s.queue[n-1].data, lines...)
	} else {
		s.queue = append(s.queue, run{to, append([]byte(nil), lines...)})
	}
	s.changed.Broadcast()
}

// wait waits while too much is queued.
func (s *screen) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.queued >= maxQueued && !s.hurried && !s.closed {
		s.changed.Wait()
	}
}

// hurry unblocks callers of wait for good.
func (s *screen) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = true
	s.changed.Broadcast()
}

// setStatus replaces the status line; "" erases it.
func (s *screen) setStatus(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != text && !s.closed {
		s.status = text
		s.changed.Broadcast()
	}
}

// clearStatus erases the status line and waits until that is done.
func (s *screen) clearStatus() {
	s.setStatus("")
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.drawn != "" && !s.closed {
		s.changed.Wait()
	}
}

// finish waits until everything is written, or until ctx ends.
func (s *screen) finish(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.status = ""
	s.changed.Broadcast()
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
		return fmt.Errorf("write output: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeErr
}

// abandon unblocks callers that wait for space, and takes no more.
func (s *screen) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
}

func (s *screen) loop() {
	defer close(s.idle)
	for {
		queue, status, more := s.take()
		if s.shown != "" && (len(queue) > 0 || status != s.shown) {
			s.write(s.err, []byte(eraseLine))
			s.shown = ""
		}
		for _, r := range queue {
			s.write(r.to, r.data)
		}
		if status != s.shown {
			s.write(s.err, []byte(status))
			s.shown = status
		}
		if !more {
			return
		}
	}
}

// take waits for something to do. It gives away the queue's memory, which would otherwise stay as large as the largest
// batch.
func (s *screen) take() (queue []run, status string, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn != s.shown {
		s.drawn = s.shown
		s.changed.Broadcast()
	}
	for len(s.queue) == 0 && s.status == s.shown && !s.closed {
		s.changed.Wait()
	}
	queue = s.queue
	if s.lost > 0 {
		queue = append(queue, run{s.err, fmt.Appendf(nil, "gorun: %d KiB of output are lost here: nobody read it\n", (s.lost+1023)>>10)})
		s.lost = 0
	}
	s.queue, s.queued = nil, 0
	s.changed.Broadcast()
	return queue, s.status, !s.closed
}

// write records the first error and continues: the ranks' files, and the job, do not depend on the terminal. A full
// disk is reported at once, since the job may run for days; the user who closed a pipe knows.
func (s *screen) write(to io.Writer, data []byte) {
	var err error
	for part := range slices.Chunk(data, atOnce) {
		if _, err = to.Write(part); err != nil {
			break
		}
		s.mu.Lock()
		s.taken += len(part)
		s.mu.Unlock()
	}
	if err == nil {
		return
	}
	s.mu.Lock()
	first := s.writeErr == nil
	if first {
		s.writeErr = fmt.Errorf("write output: %w", err)
	}
	s.mu.Unlock()
	if first && to != s.err && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintf(s.err, "gorun: write output: %v; what ranks write is lost while that is so, the job goes on\n", err)
	}
}
