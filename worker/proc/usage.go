package proc

import "time"

// Usage is what a process and its descendants use.
type Usage struct {
	CPU       time.Duration // includes children that have ended
	RSS       int64         // bytes; shared memory counts for each process
	Processes int
}
