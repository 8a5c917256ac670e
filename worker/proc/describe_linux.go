package proc

import (
	"cmp"
	"slices"
	"strings"
)

// waits are words for what a process waits for, and with what the names of the kernel's functions begin that it waits in.
var waits = []struct {
	text      string
	functions []string
}{
	{"waits for another thread", []string{"futex"}},
	{"waits for a process that it started", []string{"do_wait", "kernel_wait"}},
	{"sleeps", []string{"hrtimer_nanosleep", "do_nanosleep"}},
	{"waits for a signal", []string{"sigsuspend", "do_sigtimedwait"}},
	{"waits for a file server (NFS)", []string{"nfs", "rpc_"}},
	{"waits for a file system in user space (FUSE)", []string{"fuse"}},
	{"waits for a lock on a file", []string{"flock", "fcntl_setlk"}},
	{"waits for a disk", []string{"io_schedule", "folio_wait", "wait_on_page", "jbd2"}},
	{"waits for data from a pipe", []string{"pipe_", "anon_pipe"}},
	{"waits for data from a process of this host", []string{"unix_"}},
	{"waits for data from the network", []string{"sk_", "inet_", "tcp_"}},
	{"waits for data", []string{"wait_woken", "ep_poll", "do_epoll", "poll_", "do_poll", "do_sys_poll", "do_select"}},
	{"waits for its terminal", []string{"n_tty"}},
}

// states are words for the other states of a process, by the kernel's letter.
var states = map[byte]string{'R': "is computing", 'S': "waits", 'D': "is stuck in the kernel (disk or network file system?)",
	'T': "is paused by a signal", 't': "is paused by a debugger", 'Z': "has ended", 'X': "has ended"}

// Describe returns in a few words what a process is doing, as far as the kernel reveals it.
func Describe(pid int) string {
	p, ok := Read(pid)
	if !ok || pid <= 0 {
		return "runs"
	}
	return describe(p.State, strings.TrimSpace(ReadOf(pid, "wchan")))
}

// describe puts the state of a process in words, and the kernel's function that it waits in, "" or "0" if that is
// unknown.
func describe(state byte, function string) string {
	if state == 'S' || state == 'D' {
		begins := func(name string) bool { return strings.HasPrefix(strings.TrimLeft(function, "_"), name) }
		for _, w := range waits {
			if slices.ContainsFunc(w.functions, begins) {
				return w.text
			}
		}
	}
	return cmp.Or(states[state], "runs")
}
