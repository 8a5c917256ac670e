package launcher

import (
	"syscall"
	"time"
)

// asleep notes when the user stops the launcher with Ctrl-Z: hosts wait for that as long as it takes.
type asleep struct {
	now   bool
	until time.Time // when it was last woken
}

func (a *asleep) signalled(number int, now time.Time) {
	switch {
	case syscall.Signal(number) == syscall.SIGTSTP:
		a.now = true
	case syscall.Signal(number) == syscall.SIGCONT && a.now: // it ends kill -STOP as well
		a.now, a.until = false, now
	}
}
