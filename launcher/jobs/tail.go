package jobs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// poll is how often a job's output is looked at for more.
const poll = 100 * time.Millisecond

// Tail is a reader of a job's output. It has no goroutine.
type Tail struct {
	job    Job
	file   *os.File
	follow bool
	left   int64 // of what was there when it began, if it is not to follow
	ended  bool
	close  func()
	closed chan struct{}
}

// Tail reads what a job wrote: the last lines, or all of it if lines is negative, and with follow what comes until the
// job has ended.
func (j Job) Tail(lines int, follow bool) (*Tail, error) {
	f, err := os.Open(j.Output())
	if err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	from, end, err := seekLines(f, lines)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read output: %w", err)
	}
	t := &Tail{job: j, file: f, follow: follow, left: end - from, closed: make(chan struct{})}
	t.close = sync.OnceFunc(func() { close(t.closed) })
	return t, nil
}

// Read implements io.Reader; it waits for more if it is to follow.
func (t *Tail) Read(b []byte) (int, error) {
	if !t.follow { // a job may write faster than one can read
		b = b[:min(int64(len(b)), t.left)]
		if len(b) == 0 {
			return 0, io.EOF
		}
	}
	for {
		n, err := t.file.Read(b)
		t.left -= int64(n)
		if n > 0 || err != io.EOF || !t.follow || t.ended {
			return n, err
		}
		if r, err := t.job.Load(); err != nil || r.State != Running {
			t.ended = true // what was written before that is there now
			continue
		}
		pause := time.NewTimer(poll)
		select {
		case <-pause.C:
		case <-t.closed:
			pause.Stop()
			return 0, os.ErrClosed
		}
	}
}

// Write takes nothing.
func (t *Tail) Write(b []byte) (int, error) { return len(b), nil }

// Close ends a Read that waits; the file is closed with it.
func (t *Tail) Close() error {
	t.close()
	return t.file.Close()
}

// seekLines goes to where the last n lines begin, or all of them if n is negative. It returns where that is, and the end.
func seekLines(f *os.File, n int) (from, end int64, err error) {
	if end, err = f.Seek(0, io.SeekEnd); err != nil || n == 0 {
		return end, end, err
	}
	if n > 0 {
		if from, err = lastLines(f, n, end); err != nil {
			return 0, 0, err
		}
	}
	from, err = f.Seek(from, io.SeekStart)
	return from, end, err
}

// lastLines returns where the last n lines of a file begin.
func lastLines(f *os.File, n int, end int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for at, seen := end, 0; at > 0; {
		size := min(at, int64(len(buf)))
		at -= size
		if _, err := f.ReadAt(buf[:size], at); err != nil {
			return 0, err
		}
		for i := size; i > 0; {
			i = int64(bytes.LastIndexByte(buf[:i], '\n'))
			if i < 0 {
				break
			}
			if at+i+1 == end { // the end of the last line
				continue
			}
			if seen++; seen == n {
				return at + i + 1, nil
			}
		}
	}
	return 0, nil
}
