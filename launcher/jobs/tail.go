package jobs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// poll is the interval between checks for more of a job's output.
const poll = 100 * time.Millisecond

// Tail is a reader of a job's output. It has no goroutine.
type Tail struct {
	job    Job
	file   *os.File
	follow bool
	left   int64 // bytes to read of what was there at the start, if it does not follow
	ended  bool
	close  func()
	closed chan struct{}
}

// Tail reads a job's output: the last lines, or everything if lines is negative. With follow it also reads what is
// added until the job ends.
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

// Read implements io.Reader. It waits for more output if it follows.
func (t *Tail) Read(b []byte) (int, error) {
	if !t.follow { // a job may write faster than this reads
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
			t.ended = true // everything written before that is there now
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

// Write discards b.
func (t *Tail) Write(b []byte) (int, error) { return len(b), nil }

// Close unblocks a waiting Read and closes the file.
func (t *Tail) Close() error {
	t.close()
	return t.file.Close()
}

// seekLines seeks to the start of the last n lines, or of all if n is negative. It returns that offset, and the end.
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

// lastLines returns the offset of the last n lines of a file.
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
