//go:build linux

package top

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
	"gorun/launcher/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is a source that grows by two seconds each time it is asked, and ends when it should.
type job struct {
	mu    sync.Mutex
	asked int
	ends  chan int
	err   error
}

func (j *job) Status(context.Context) (jobs.State, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked++
	return after(10+2*j.asked, 2, 4), nil
}

func (j *job) Wait(ctx context.Context) (int, error) {
	select {
	case code := <-j.ends:
		return code, j.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// show shows a job on a terminal; the channel delivers how that ended.
func show(t *testing.T, x *e2etest.Terminal, width, height uint16, j *job, env ...string) <-chan error {
	t.Helper()
	program := x.Device
	must.Do(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
	ended := make(chan error, 1)
	go func() {
		end, err := Show(t.Context(), j, "7", program, program, append([]string{"TERM=xterm-256color"}, env...))
		if err == nil && end.Ended {
			err = errors.New("ended with " + strconv.Itoa(end.Code))
		}
		ended <- err
	}()
	return ended
}

func TestTerminal(t *testing.T) {
	x := e2etest.NewTerminal(t)
	state := func() unix.Termios {
		s, err := unix.IoctlGetTermios(int(x.Device.Fd()), unix.TCGETS)
		must.Do(t, err)
		return *s
	}
	before := state()
	ended := show(t, x, 80, 24, &job{})
	x.Await("python3 train.py")
	x.Types("?")
	x.Await("Any key leads back")
	x.Types("x/ho")
	x.Await(`o\x1b\[7m `) // the last letter and the cursor, as what comes before may be there already
	x.Types("\x7f\x7f\r ")
	x.Await("▸")
	x.Types("q")
	must.Do(t, <-ended)
	x.Await(`\x1b\[\?1049l`) // the screen from before
	if state() != before {
		t.Error("the terminal is not as it was")
	}
}

// TestColors: without NO_COLOR there are colours, with it there are none.
func TestColors(t *testing.T) {
	for env, colored := range map[string]bool{"CLICOLOR=1": true, "NO_COLOR=1": false} {
		x := e2etest.NewTerminal(t)
		ended := show(t, x, 200, 50, &job{}, env)
		x.Await("█")
		if got := strings.Contains(x.Shows(), "34m"); got != colored {
			t.Errorf("%s: colours: %v\n%q", env, got, x.Shows())
		}
		x.Types("\x03")
		must.Do(t, <-ended)
	}
}

// TestJobEnds: the screen ends with the job.
func TestJobEnds(t *testing.T) {
	x, j := e2etest.NewTerminal(t), &job{ends: make(chan int)}
	ended := show(t, x, 80, 24, j)
	x.Await("python3 train.py")
	j.ends <- 3
	if err := <-ended; err == nil || err.Error() != "ended with 3" {
		t.Error(err)
	}
	x, j = e2etest.NewTerminal(t), &job{ends: make(chan int), err: errors.New("the launcher is gone")}
	ended = show(t, x, 80, 24, j)
	j.ends <- 0
	if err := <-ended; err == nil || err.Error() != "the launcher is gone" {
		t.Error(err)
	}
}
