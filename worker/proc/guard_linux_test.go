package proc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/contrib/must"
	"gorun/worker/proc"
)

// helper is what the test binary does in its other roles.
func helper(mode string) int {
	switch mode {
	case "supervisor":
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), helperMode+"=daemon")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		code, err := proc.Guard(context.Background(), cmd)
		if err != nil {
			fmt.Fprintln(os.Stderr, "supervisor:", err)
		}
		return code
	case "daemon":
		return daemon()
	case "sweep":
		if err := proc.Sweep("no job"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	return 99
}

// daemon runs the script given in its environment as a rank, until that ends, TERM, or its supervisor's death.
func daemon() int {
	term, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	ctx, release, err := proc.Lifeline(term)
	if err != nil {
		fmt.Fprintln(os.Stderr, "daemon:", err)
		return 98
	}
	defer release()
	g, err := proc.Open(proc.Config{Job: os.Getenv("TEST_JOB")})
	if err != nil {
		fmt.Fprintln(os.Stderr, "daemon:", err)
		return 98
	}
	defer g.Close()
	spec := proc.Spec{Argv: []string{"sh", "-c", os.Getenv("TEST_SCRIPT")}, Env: []string{"PATH=" + os.Getenv("PATH")}}
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "daemon:", err)
		return 98
	}
	fmt.Printf("slack %d supervisor %d daemon %d rank %d\n", slack, os.Getppid(), os.Getpid(), g.Start(spec, os.Stdout, os.Stderr))
	select {
	case e := <-g.Exits():
		return e.Code
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), proc.ErrSupervisorDied) {
			fmt.Println("lost its supervisor")
			return 77
		}
		return 78
	}
}

// guarded is a supervisor with a daemon with a rank.
type guarded struct {
	cmd          *exec.Cmd
	out          *sink
	job          string
	daemon, rank int
	slack        time.Duration // of the daemon's timers
}

var started = regexp.MustCompile(`slack \d+ supervisor \d+ daemon \d+ rank \d+\n`)

func startGuarded(t *testing.T, script string) *guarded {
	t.Helper()
	serial++
	g := &guarded{job: fmt.Sprintf("guardtest-%d-%d", os.Getpid(), serial), out: &sink{}}
	g.cmd = exec.Command("/proc/self/exe")
	g.cmd.Env = append(os.Environ(), helperMode+"=supervisor", "TEST_JOB="+g.job, "TEST_SCRIPT="+script)
	// Through a pipe of our own, so that Wait does not wait for who holds it.
	r, w, err := os.Pipe()
	must.Do(t, err)
	g.cmd.Stdout, g.cmd.Stderr = w, w
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(g.out, r)
	}()
	must.Do(t, g.cmd.Start())
	w.Close()
	t.Cleanup(func() {
		g.cmd.Process.Kill()
		g.cmd.Wait()
		must.Soon(t, "nothing of "+g.job, func() bool { return len(carrying(g.job)) == 0 })
		// A daemon that lost its supervisor was adopted by this process, if an earlier test held a group.
		syscall.Wait4(g.daemon, nil, 0, nil)
		<-copied // everybody who could write has ended
		r.Close()
	})
	must.Soon(t, "the daemon has started its rank", func() bool {
		var supervisor int
		line := started.FindString(g.out.String()) // a rank may write before it
		n, _ := fmt.Sscanf(line, "slack %d supervisor %d daemon %d rank %d\n", &g.slack, &supervisor, &g.daemon, &g.rank)
		return n == 4
	})
	return g
}

// ends waits for the end of the supervisor, with that code.
func (g *guarded) ends(t *testing.T, code int) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.cmd.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(within):
		t.Fatalf("the supervisor did not end; output: %s", g.out)
	}
	if got := g.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d; output: %s", got, code, g.out)
	}
}

func TestGuardPassesCode(t *testing.T) {
	g := startGuarded(t, "exit 7")
	g.ends(t, 7)
}

// The runtime of a daemon looks after its threads less often than others do; its ranks do not notice.
func TestSlack(t *testing.T) {
	g := startGuarded(t, "echo slack of rank: $(cat /proc/self/timerslack_ns)")
	g.ends(t, 0)
	if g.slack != time.Millisecond || !strings.Contains(g.out.String(), "slack of rank: 50000\n") {
		t.Errorf("timers of the daemon may be %v late, want 1ms; of its rank, 50000 ns: %s", g.slack, g.out)
	}
}

func TestDaemonKilled(t *testing.T) {
	n := nap()
	mark := fmt.Sprintf("sleep\x00%d", n)
	g := startGuarded(t, fmt.Sprintf(detach, n)+"wait; sleep 1000")
	must.Soon(t, "4 sleepers", func() bool { return len(carrying(mark)) == 4 })
	syscall.Kill(g.daemon, syscall.SIGKILL)
	g.ends(t, 137)
	if left := carrying(mark); len(left) > 0 {
		t.Errorf("the supervisor has ended, %v is left", left)
	}
}

func TestSupervisorKilled(t *testing.T) {
	n := nap()
	mark := fmt.Sprintf("sleep\x00%d", n)
	g := startGuarded(t, fmt.Sprintf(detach, n)+"wait; sleep 1000")
	must.Soon(t, "4 sleepers", func() bool { return len(carrying(mark)) == 4 })
	g.cmd.Process.Kill()
	g.ends(t, -1)
	must.Soon(t, "nothing is left", func() bool { return len(carrying(mark)) == 0 && len(carrying(g.job)) == 0 })
	// The daemon is sent TERM as well, which is not why it ends.
	must.Soon(t, "the daemon says why it ends", func() bool { return strings.Contains(g.out.String(), "lost its supervisor") })
}

func TestGuardSignals(t *testing.T) {
	g := startGuarded(t, "exec sleep 1000")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		g.cmd.Process.Signal(sig)
	}
	begun := time.Now()
	g.cmd.Process.Signal(syscall.SIGTERM)
	g.ends(t, 78)
	if took := time.Since(begun); took >= 2*time.Second {
		t.Errorf("the daemon ends %v after TERM: it waits for a lifeline that nobody closes", took)
	}
	// A rank must be able to get an interrupt: nothing above it may have set it to be ignored.
	g = startGuarded(t, `grep SigIgn /proc/self/status; echo end`)
	g.ends(t, 0)
	_, mask, _ := strings.Cut(g.out.String(), "SigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	if ignored, err := strconv.ParseUint(mask, 16, 64); err != nil || ignored&(1<<(syscall.SIGINT-1)|1<<(syscall.SIGQUIT-1)) != 0 {
		t.Errorf("a rank ignores signals %s (%v)", mask, err)
	}
}

func TestNoSupervisor(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperMode+"=daemon")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "this process has no supervisor") {
		t.Errorf("%v: %s", err, out)
	}
}
