package proc

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"gorun/contrib/must"
)

// TestDescribe: users read words, whatever the kernel calls its functions.
func TestDescribe(t *testing.T) {
	for _, tc := range []struct {
		state    byte
		function string
		want     string
	}{
		{'R', "0", "is computing"},
		{'R', "futex_wait", "is computing"},
		{'S', "futex_wait_queue", "waits for another thread"},
		{'S', "__futex_wait", "waits for another thread"},
		{'S', "hrtimer_nanosleep", "sleeps"},
		{'S', "do_sys_poll", "waits for data"},
		{'D', "nfs_wait_bit_killable", "waits for a file server (NFS)"},
		{'D', "folio_wait_bit_common", "waits for a disk"},
		{'D', "some_driver_thing", "is stuck in the kernel (disk or network file system?)"},
		{'S', "some_driver_thing", "waits"},
		{'S', "0", "waits"},
		{'S', "", "waits"},
		{'T', "do_signal_stop", "is paused by a signal"},
		{'t', "ptrace_stop", "is paused by a debugger"},
		{'Z', "0", "has ended"},
		{'I', "", "runs"},
	} {
		if got := describe(tc.state, tc.function); got != tc.want {
			t.Errorf("%c in %q: %q, want %q", tc.state, tc.function, got, tc.want)
		}
	}
}

// TestDescribeProcess: the words follow what a process does.
func TestDescribeProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo; read line; while :; do :; done")
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	becomes := func(begin string) {
		t.Helper()
		must.Soon(t, begin, func() bool { return strings.HasPrefix(Describe(cmd.Process.Pid), begin) })
	}
	becomes("waits")
	in.Write([]byte("\n"))
	becomes("is computing")
	cmd.Process.Signal(syscall.SIGSTOP)
	becomes("is paused by a signal")
	cmd.Process.Signal(syscall.SIGCONT)
	becomes("is computing")
}
