package proc

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"gorun/contrib/must"

	"golang.org/x/sys/unix"
)

// TestLifelineTerm: a daemon that gets TERM knows whether its supervisor forwards it, dies, or has nothing to do with
// it. A supervisor that dies closes the lifeline long after the kernel's TERM on a busy machine.
func TestLifelineTerm(t *testing.T) {
	stopped := errors.New("TERM")
	for _, c := range []struct {
		name    string
		before  func(supervisor *os.File)
		after   func(supervisor *os.File)
		want    error
		atLeast time.Duration
		atMost  time.Duration
	}{
		{"forwarded", func(s *os.File) { s.Write([]byte{termAnnounced}) }, nil, stopped, 0, closeDelay / 2},
		{"forwarded twice", func(s *os.File) { s.Write([]byte{termAnnounced, termAnnounced}) }, nil, stopped, 0, closeDelay / 2},
		{"dead before", func(s *os.File) { s.Close() }, nil, ErrSupervisorDied, 0, closeDelay / 2},
		{"dead, and slow to close", nil, func(s *os.File) { time.Sleep(closeDelay / 4); s.Close() }, ErrSupervisorDied, closeDelay / 4, closeDelay},
		{"sent by another", nil, nil, stopped, closeDelay, 10 * closeDelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			daemon, supervisor, err := os.Pipe()
			must.Do(t, err)
			defer supervisor.Close()
			fd, err := unix.Dup(int(daemon.Fd())) // the lifeline owns it
			daemon.Close()
			must.Do(t, err)
			term, cancel := context.WithCancelCause(t.Context())
			ctx, release, err := lifeline(term, fd)
			must.Do(t, err)
			defer release()
			if c.before != nil {
				c.before(supervisor)
			}
			begun := time.Now()
			cancel(stopped)
			if c.after != nil {
				c.after(supervisor)
			}
			<-ctx.Done()
			if took := time.Since(begun); took < c.atLeast || took > c.atMost {
				t.Errorf("the daemon knew after %v", took)
			}
			if cause := context.Cause(ctx); cause != c.want {
				t.Errorf("the daemon ends because: %v", cause)
			}
		})
	}
}
