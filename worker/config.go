package worker

import (
	"io"
	"os"
	"time"
)

// Config is what a daemon needs from its process.
type Config struct {
	In      io.Reader // messages of the launcher; its end stops everything
	Out     io.Writer
	Version string
	Exe     string // this binary: Python imports the binding from it
	// NoRDMA is why this daemon cannot use RDMA, if a job wants it; nil if it can, or if RDMA was not requested.
	NoRDMA error
	Env    []string // of the daemon; ranks get their machine's variables from it
	// Another is called at the end of In. It reports whether another launcher has taken over, which In brings next. It
	// may be nil.
	Another func() bool
	// Record brings signals, each of which has the whole job recorded. It may be nil.
	Record <-chan os.Signal
	// Flush waits, no longer than the timeout, until the launcher has what was written to Out; nil if it has that at
	// once.
	Flush func(timeout time.Duration) bool
	// Seen is the machine's probe.Fingerprint at some time before the job; "" if there is none.
	Seen string
	// State is a directory for what outlives the daemon, which other hosts may share; "" to keep nothing.
	State string
	// Report writes to the log of the host, for its administrators; nil if it has none.
	Report func(text string)
	// LauncherLease is shared with the connection of the launcher; nil for one of its own.
	LauncherLease *LauncherLease

	linkTimeout, shutdownGrace time.Duration // in place of the usual ones, for tests; 0 for those
}
