package proc

import "time"

// Usage is what a process and all below it use.
type Usage struct {
	CPU       time.Duration // so far, that of children that have ended included
	RSS       int64         // bytes; what processes share counts for each
	Processes int
}
