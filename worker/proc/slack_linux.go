package proc

import (
	"os"
	"strconv"
	"strings"
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

// SlackenSelf does so for all threads of this process, and what it starts, if its user may do that.
func SlackenSelf() {
	eachThread(func(id int) error {
		file := "/proc/" + strconv.Itoa(id) + "/timerslack_ns"
		now, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(now)) != strconv.Itoa(int(usualSlack)) {
			return nil // somebody chose another one
		}
		return os.WriteFile(file, []byte(strconv.Itoa(int(daemonSlack))), 0)
	})
}

// changeSlack changes that of the calling thread, which all threads of a process that it starts inherit. If somebody chose another
// one than from, it stays.
func changeSlack(from, to time.Duration) (restore func()) {
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || now != int(from) || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(to), 0, 0, 0) != nil {
		return func() {}
	}
	return func() { unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(from), 0, 0, 0) }
}
