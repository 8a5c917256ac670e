package vmtools

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot returns the time since boot, including sleep.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return time.Since(started)
	}
	return time.Duration(t.Nano())
}

var started = time.Now()
