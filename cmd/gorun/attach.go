package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"gorun/launcher/jobs"
	"gorun/worker/command"
)

// attachLines is how many of the job's last lines attach shows first.
const attachLines = 10

func attachCommand() *cli.Command {
	return jobsCommand("attach", "follow the output of a detached job, and exit as it does", "[JOB]", inCluster,
		func(o *jobsFlags) []cli.Flag {
			return []cli.Flag{&cli.DurationFlag{Name: "wait", Destination: &o.timeout, Hidden: true, Usage: "wait up to `TIME` for a job that is brought to pods, and show all of its output"}}
		}, attach)
}

// errLeft is the cause when the user leaves a job to itself.
var errLeft = errors.New("left")

// attach shows the output from here on. What would stop a launcher at a terminal stops the job.
func attach(parent context.Context, o *jobsFlags) error {
	job, err := findJob(parent, o, o.timeout == 0)
	for until := time.Now().Add(o.timeout); err != nil && time.Now().Before(until) && parent.Err() == nil; job, err = findJob(parent, o, false) {
		time.Sleep(drainPause)
	}
	if err != nil {
		return err
	}
	if err := noOutput(job); err != nil {
		return err
	}
	ctx, leave := context.WithCancelCause(context.WithoutCancel(parent))
	defer leave(nil)
	var present atomic.Pointer[jobs.Target] // which gets the signals
	present.Store(&job)
	// Each group of signals has its own notify, so that the user can leave although the launcher does not answer.
	defer notify(func(syscall.Signal) { leave(errLeft) }, unix.SIGQUIT)()
	defer notify(func(s syscall.Signal) { leave(signalError{s}) }, endings()...)() // of this command: the job stays
	defer notify(func(s syscall.Signal) { passOn(ctx, present.Load(), s) }, unix.SIGINT, unix.SIGUSR1, unix.SIGUSR2)()
	if parent.Err() != nil { // stopped before it was known which job
		return context.Cause(parent)
	}
	lines := -1
	if o.timeout == 0 {
		lines = attachLines
		fmt.Fprintf(os.Stderr, "gorun: attached to job %s; Ctrl-C stops it, Ctrl-\\ leaves it\n", job.Label)
	}
	code, err := job.Attach(ctx, o.out, lines, func(next jobs.Target) {
		fmt.Fprintf(os.Stderr, "gorun: job %s goes on by another launcher\n", next.Label)
		present.Store(&next)
	})
	var sig signalError
	switch {
	case errors.Is(context.Cause(ctx), errLeft):
		return nil
	case errors.As(context.Cause(ctx), &sig):
		return command.ExitStatus(128 + int(sig.sig))
	case err != nil:
		return err
	case code != 0:
		return command.ExitStatus(code)
	}
	return nil
}

// passOn sends a signal to a job's launcher and prints a note if that fails.
func passOn(ctx context.Context, to *jobs.Target, s syscall.Signal) {
	if err := to.Signal(ctx, int(s), stopper()); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "gorun: note: %s did not reach job %s: %v\ngorun: hint: Ctrl-\\ leaves it\n", unix.SignalName(s), to.Label, err)
	}
}
