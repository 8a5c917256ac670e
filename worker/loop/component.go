package loop

import (
	"fmt"
	"log/slog"

	"gorun/rendezvous/wire"
)

// Component is what every component of a daemon has.
type Component struct {
	Job  *wire.Job
	Loop *Loop
	Out  *wire.Writer // to the launcher
	Log  *slog.Logger
}

// Say shows a line to users.
func (c Component) Say(format string, args ...any) {
	c.Out.Write(&wire.Log{Text: fmt.Sprintf(format, args...)})
}

// Tell shows a line to users of -v.
func (c Component) Tell(format string, args ...any) {
	if c.Job.Verbose {
		c.Say(format, args...)
	}
}

// Fail reports to the launcher that this host cannot go on; the launcher decides what that means.
func (c Component) Fail(step string, err error, hint string) {
	c.Out.Write(&wire.Failed{Step: step, Text: err.Error(), Hint: hint, Code: 255, Peer: c.Job.HostID})
}
