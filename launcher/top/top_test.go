//go:build linux

package top

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

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

// terminal is a pseudo terminal: the user's side and the program's.
type terminal struct {
	user, program *os.File
	mu            sync.Mutex
	shown         strings.Builder
}

func open(t *testing.T, width, height uint16) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must.Do(t, err)
	x := &terminal{user: os.NewFile(uintptr(fd), "terminal")}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	must.Do(t, err)
	if x.program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	x.resize(t, width, height)
	var reading sync.WaitGroup
	reading.Go(func() {
		for buf := make([]byte, 64<<10); ; {
			n, err := x.user.Read(buf)
			x.mu.Lock()
			x.shown.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { x.program.Close(); x.user.Close(); reading.Wait() })
	return x
}

func (x *terminal) resize(t *testing.T, width, height uint16) {
	t.Helper()
	must.Do(t, unix.IoctlSetWinsize(int(x.program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

// await waits until the terminal shows a text, and forgets what it has shown.
func (x *terminal) await(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(x.text(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the terminal does not show %q:\n%q", want, x.text())
		}
	}
	x.mu.Lock()
	x.shown.Reset()
	x.mu.Unlock()
}

func (x *terminal) types(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(x.user, keys); err != nil {
		t.Fatal(err)
	}
}

func (x *terminal) state(t *testing.T) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(x.program.Fd()), unix.TCGETS)
	must.Do(t, err)
	return *s
}

// show shows a job on a terminal; the channel delivers how that ended.
func show(t *testing.T, x *terminal, j *job, env ...string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		end, err := Show(t.Context(), j, "7", x.program, x.program, append([]string{"TERM=xterm-256color"}, env...))
		if err == nil && end.Ended {
			err = errors.New("ended with " + strconv.Itoa(end.Code))
		}
		ended <- err
	}()
	return ended
}

func TestTerminal(t *testing.T) {
	x := open(t, 80, 24)
	before := x.state(t)
	ended := show(t, x, &job{})
	x.await(t, "python3 train.py")
	x.types(t, "?")
	x.await(t, "Any key leads back")
	x.types(t, "x/ho")
	x.await(t, "o\x1b[7m ") // the last letter and the cursor, as what comes before may be there already
	x.types(t, "\x1b")
	x.await(t, "q quit")
	x.types(t, "F")
	x.await(t, "▸ host2")
	x.types(t, "q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	x.await(t, "\x1b[?1049l") // the screen from before
	if x.state(t) != before {
		t.Error("the terminal is not as it was")
	}
}

// TestColors: without NO_COLOR there are colours, with it there are none.
func TestColors(t *testing.T) {
	for env, colored := range map[string]bool{"CLICOLOR=1": true, "NO_COLOR=1": false} {
		x := open(t, 200, 50)
		j := &job{}
		ended := show(t, x, j, env)
		for {
			j.mu.Lock()
			asked := j.asked
			j.mu.Unlock()
			if asked > 2 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		shown := x.text()
		if got := strings.Contains(shown, "34m"); got != colored || !strings.Contains(shown, "█") {
			t.Errorf("%s: colours: %v\n%q", env, got, shown)
		}
		x.types(t, "\x03")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestJobEnds: the screen ends with the job.
func TestJobEnds(t *testing.T) {
	x, j := open(t, 80, 24), &job{ends: make(chan int)}
	ended := show(t, x, j)
	x.await(t, "python3 train.py")
	j.ends <- 3
	if err := <-ended; err == nil || err.Error() != "ended with 3" {
		t.Error(err)
	}
	x, j = open(t, 80, 24), &job{ends: make(chan int), err: errors.New("the launcher is gone")}
	ended = show(t, x, j)
	j.ends <- 0
	if err := <-ended; err == nil || err.Error() != "the launcher is gone" {
		t.Error(err)
	}
}

// TestResize: the screen follows the size of its terminal.
func TestResize(t *testing.T) {
	x := open(t, 80, 24)
	ended := show(t, x, &job{})
	x.await(t, "python3 train.py")
	x.resize(t, 200, 50)
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil { // as the kernel does to the terminal's own processes
		t.Fatal(err)
	}
	x.await(t, "WHERE THE TIME GOES")
	x.types(t, "q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
