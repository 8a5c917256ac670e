package launch

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// stubborn is a rank that prints its signals and does not end for any that can be caught.
const stubborn = `trap "" TERM INT; trap "echo usr1 at $RANK" USR1; trap "echo usr2 at $RANK" USR2; echo "ready $RANK"; while :; do sleep 0.1; done`

// TestTerminal is a job on two hosts and its user at a terminal: the line that shows the start, colours, signals that
// reach ranks elsewhere, Ctrl-Z, and the second Ctrl-C for ranks that do not want to end.
func TestTerminal(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	term := e2etest.NewTerminal(t)
	cmd, _, _ := c.Command("-np", "2", "-H", "host1,host2", "--grace", "30m", "sh", "-c", stubborn)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	term.Run(cmd.Cmd)
	must.Do(t, cmd.Start())
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	for rank, colour := range []int{36, 32} {
		term.Await(fmt.Sprintf(`\x1b\[%dm\[%d\]<stdout>:\x1b\[0mready %d`, colour, rank, rank))
	}
	start, rest, _ := strings.Cut(term.Shows(), "\x1b[3")
	if !regexp.MustCompile(`gorun: \d/2 hosts reached`).MatchString(start) || !strings.HasSuffix(start, "\r\x1b[K") || strings.Contains(rest, "gorun: ") {
		t.Errorf("the line that tells of the start is not there, or does not vanish:\n%q", term.Shows())
	}

	for name, sig := range map[string]syscall.Signal{"usr1": syscall.SIGUSR1, "usr2": syscall.SIGUSR2} {
		must.Do(t, cmd.Process.Signal(sig))
		for rank := range 2 {
			term.Await(fmt.Sprintf("%s at %d", name, rank))
		}
	}

	// states of the ranks' shells, and of the launcher.
	stopped := func() (n int) {
		for _, h := range c.Hosts() {
			for _, p := range h.Processes() {
				if strings.HasPrefix(p.Args, "sh -c trap") && p.State == 'T' {
					n++
				}
			}
		}
		for _, p := range c.Launcher().Processes() {
			if p.PID == cmd.Process.Pid && p.State == 'T' {
				n++
			}
		}
		return n
	}
	term.Types(e2etest.CtrlZ)
	c.Await("stop of both ranks and the launcher", func() bool { return stopped() == 3 })
	must.Do(t, cmd.Process.Signal(syscall.SIGCONT))
	c.Await("way on of both ranks and the launcher", func() bool { return stopped() == 0 })

	term.Types(e2etest.CtrlC)
	term.Await("gorun: stopping the ranks[^\n]* again")
	select {
	case <-ended:
		t.Errorf("the launcher did not wait for its ranks:\n%q", term.Shows())
	case <-time.After(time.Second):
	}
	term.Types(e2etest.CtrlC)
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Fatalf("the second Ctrl-C does not end the job:\n%q", term.Shows())
	}
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130:\n%q", code, term.Shows())
	}
	c.ExpectNothingLeft(5 * time.Second)
}
