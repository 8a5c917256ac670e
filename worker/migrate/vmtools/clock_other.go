//go:build !linux

package vmtools

import "time"

// SinceBoot is how long ago the program was started: elsewhere the kernel is not asked.
func SinceBoot() time.Duration { return time.Since(started) }

var started = time.Now()
