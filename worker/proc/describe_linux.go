package proc

import (
	"fmt"
	"os"
	"strings"
)

// waits describes in words what a process waits for, by the beginning of the name of the kernel's function it waits in.
var waits = []struct{ function, text string }{
	{"futex", "waits for another thread"},
	{"do_wait", "waits for a process that it started"},
	{"kernel_wait", "waits for a process that it started"},
	{"hrtimer_nanosleep", "sleeps"},
	{"do_nanosleep", "sleeps"},
	{"sigsuspend", "waits for a signal"},
	{"do_sigtimedwait", "waits for a signal"},
	{"nfs", "waits for a file server (NFS)"},
	{"rpc_", "waits for a file server (NFS)"},
	{"fuse", "waits for a file system in user space (FUSE)"},
	{"flock", "waits for a lock on a file"},
	{"fcntl_setlk", "waits for a lock on a file"},
	{"io_schedule", "waits for a disk"},
	{"folio_wait", "waits for a disk"},
	{"wait_on_page", "waits for a disk"},
	{"jbd2", "waits for a disk"},
	{"pipe_", "waits for data from a pipe"},
	{"anon_pipe", "waits for data from a pipe"},
	{"unix_", "waits for data from a process of this host"},
	{"sk_", "waits for data from the network"},
	{"inet_", "waits for data from the network"},
	{"tcp_", "waits for data from the network"},
	{"wait_woken", "waits for data"},
	{"ep_poll", "waits for data"},
	{"do_epoll", "waits for data"},
	{"poll_", "waits for data"},
	{"do_poll", "waits for data"},
	{"do_sys_poll", "waits for data"},
	{"do_select", "waits for data"},
	{"n_tty", "waits for its terminal"},
}

// Describe returns in a few words what a process is doing, as far as the kernel reveals it.
func Describe(pid int) string {
	read := func(name string) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)) // "" if it has ended or access is denied
		return strings.TrimSpace(string(b))
	}
	_, stat, ok := strings.Cut(read("stat"), ") ")
	if !ok || pid <= 0 {
		return "runs"
	}
	return describe(stat[0], read("wchan"))
}

// describe puts the state of a process in words, and the kernel's function that it waits in, "" or "0" if that is
// unknown.
func describe(state byte, function string) string {
	if state == 'S' || state == 'D' {
		for _, w := range waits {
			if strings.HasPrefix(strings.TrimLeft(function, "_"), w.function) {
				return w.text
			}
		}
	}
	switch state {
	case 'R':
		return "is computing"
	case 'S':
		return "waits"
	case 'D':
		return "is stuck in the kernel (disk or network file system?)"
	case 'T':
		return "is paused by a signal"
	case 't':
		return "is paused by a debugger"
	case 'Z', 'X':
		return "has ended"
	}
	return "runs"
}
