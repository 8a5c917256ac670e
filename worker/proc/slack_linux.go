package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// How late timers may be, by threads (PR_SET_TIMERSLACK). As long as a Go program does anything, its runtime sleeps for 20 µs at
// a time between two looks at its threads, and takes away the processor of each that was in one system call meanwhile, as a socket
// is that copies half a megabyte: another thread has to wake up then and go on. On a virtual machine a look costs some 10 µs of a
// CPU. Nothing that a daemon waits for has to be more exact than daemonSlack.
const (
	usualSlack  = 50 * time.Microsecond // of every process, if nobody says otherwise
	daemonSlack = time.Millisecond
)

// changeSlack changes that of the calling thread, which all threads of a process that it starts inherit. If somebody chose another
// one than from, it stays.
func changeSlack(from, to time.Duration) (restore func()) {
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || now != int(from) || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(to), 0, 0, 0) != nil {
		return func() {}
	}
	return func() { unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(from), 0, 0, 0) }
}
