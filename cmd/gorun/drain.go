package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher/failure"
	"gorun/launcher/jobs"
	"gorun/rendezvous/resume"
	"gorun/topology"
)

// drainPause is the pause between two looks at a host that is drained, and drainPatience how long a job may be ending, or
// its launcher be replaced, before that is an error.
const (
	drainPause    = 200 * time.Millisecond
	drainPatience = 30 * time.Second
)

func drainCommand() *cli.Command {
	return jobsCommand("drain", "have the ranks of an elastic job leave a host", "JOB HOST", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{
			timeFlag("timeout", &o.timeout, 0, "wait for this `TIME` until its ranks have left, then exit with 124; the host stays drained"),
			&cli.BoolFlag{Name: "undo", Destination: &o.undo, Usage: "let the job use the host again"}}
	}, drain)
}

// drain returns when no rank of the job runs on the host. It gives the order once, and then asks: another order wins.
func drain(ctx context.Context, o *jobsFlags) error {
	if len(o.args) != 2 {
		return &usageError{errors.New("drain takes a job and a host"), "gorun drain JOB HOST; gorun ps lists jobs"}
	}
	name, host := o.args[1], jobs.Clean(o.args[1])
	o.args = o.args[:1]
	job, err := findJob(ctx, o, true)
	if err != nil {
		return err
	}
	d, err := job.Drain(ctx, name, o.undo, false)
	if err != nil {
		return err
	}
	if o.undo {
		_, err = fmt.Fprintf(o.out, "gorun: job %s may use %s again\n", job.Label, host)
		return err
	}
	began, said := time.Now(), ""
	heard := began
	for len(d.Left) > 0 {
		switch {
		case d.Used:
			return fmt.Errorf("job %s may use %s again, and %s stayed there", job.Label, host, topology.Count(len(d.Left), "rank"))
		case o.timeout > 0 && time.Since(began) >= o.timeout:
			return stillThere(host, o.timeout, jobs.Clean(d.Waits))
		case d.Waits != said:
			said = d.Waits
			fmt.Fprintf(o.out, "gorun: %s on %s: %s\n", topology.Count(len(d.Left), "rank"), host, jobs.Clean(d.Waits))
		}
		if !resume.Pause(ctx, drainPause) {
			return context.Cause(ctx)
		}
		switch at, err := job.Drain(ctx, name, false, true); {
		case err == nil:
			d, heard = at, time.Now()
		case ended(ctx, o):
			d.Left = nil
		case time.Since(heard) > drainPatience:
			return err
		}
	}
	_, err = fmt.Fprintf(o.out, "gorun: no rank of job %s runs on %s\n", job.Label, host)
	return err
}

// stillThere is the error of a drain whose time is over.
func stillThere(host string, after time.Duration, waits string) error {
	return &failure.JobError{Why: fmt.Sprintf("ranks still run on %s after %v: %s", host, after, waits), Code: failure.ExitTimeout}
}

// ended reports whether the job that a command names does not run any more.
func ended(ctx context.Context, o *jobsFlags) bool {
	t, err := findTarget(ctx, &o.clusterFlags, o.args[0], false)
	return err == nil && t.State != jobs.Running
}
