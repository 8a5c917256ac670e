package proc

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// How late timers may be, by thread (PR_SET_TIMERSLACK). While a Go program does anything, its runtime sleeps 20 µs at
// a time between checks of its threads, and takes the processor from each that spent that time in one system call, such
// as one on a socket that copies half a megabyte: another thread then has to wake up and continue. On a virtual machine
// a check costs some 10 µs of a CPU. Nothing that a daemon waits for needs more precision than daemonSlack.
const (
	usualSlack  = 50 * time.Microsecond // the default of every process
	daemonSlack = time.Millisecond
)

// SlackenSelf sets daemonSlack for all threads of this process, and for what it starts, if its user may.
func SlackenSelf() {
	eachThread(func(id int) error {
		file := "/proc/" + strconv.Itoa(id) + "/timerslack_ns"
		now, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(now)) != strconv.Itoa(int(usualSlack)) {
			return nil // another value was set on purpose
		}
		return os.WriteFile(file, []byte(strconv.Itoa(int(daemonSlack))), 0)
	})
}

// changeSlack changes the slack of the calling thread, which processes it starts inherit, unless it differs from the
// given one.
func changeSlack(from, to time.Duration) (restore func()) {
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || now != int(from) || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(to), 0, 0, 0) != nil {
		return func() {}
	}
	return func() { unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(from), 0, 0, 0) }
}
