package counters

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/contrib/must"
)

// TestAsk: a process whose threads sleep is asked for all stacks, one that runs for that of its main thread.
func TestAsk(t *testing.T) {
	const asked = `trap "echo all >$0" 47; trap "echo main >$0" 48; echo; `
	for script, want := range map[string]string{
		asked + `while :; do :; done`:                        "main\n",
		asked + `while :; do read -t 1000 <>/dev/ptmx; done`: "all\n",
	} {
		stacks, err := NewStacks()
		must.Do(t, err)
		t.Cleanup(stacks.Close)
		cmd := exec.Command("bash", "-c", script, stacks.Path())
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		must.Do(t, err)
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		got := ""
		for end := time.Now().Add(30 * time.Second); got != want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			got = stacks.Ask(cmd.Process.Pid, Counts{Signal: 47, MainSignal: 48}) // which may come while the shell begins to sleep
		}
		if got != want {
			t.Errorf("%s: it writes %q, want %q", script, got, want)
		}
		if got := stacks.Ask(cmd.Process.Pid, Counts{}); got != "" {
			t.Errorf("a process that offers none writes %q", got)
		}
		stacks.Close()
		stacks.Ask(cmd.Process.Pid, Counts{MainSignal: int(unix.SIGKILL)})
		must.Do(t, cmd.Process.Signal(unix.SIGTERM))
		if cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGTERM {
			t.Errorf("after Close a process is asked: %v", cmd.ProcessState)
		}
	}
}
