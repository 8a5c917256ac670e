package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"gorun/launcher/jobs"
)

func stopCommand() *cli.Command {
	return jobsCommand("stop", "stop a job", "[JOB]", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{&cli.BoolFlag{Name: "now", Destination: &o.now, Usage: "kill its ranks at once, without time to end by themselves"}}
	}, stop)
}

func stop(ctx context.Context, o *jobsFlags) error {
	job, err := findJob(ctx, o, true)
	if err != nil {
		return err
	}
	if job.Paused && job.Dial == nil {
		unix.Kill(job.PID, unix.SIGCONT) // or it could not answer
	}
	if err := job.Signal(ctx, int(unix.SIGTERM), stopper()); err != nil {
		return err
	}
	if o.now {
		job.Signal(ctx, int(unix.SIGTERM), stopper()) // the second does not wait; it fails if the job has ended meanwhile
	}
	if _, err := job.Wait(ctx); err != nil {
		if o.cluster == "" {
			return err
		}
		// The launcher may have ended before Wait reached it.
		if now, gone := findTarget(ctx, &o.clusterFlags, job.Label, false); gone != nil || now.State != jobs.Ended {
			return err
		}
	}
	_, err = fmt.Fprintf(o.out, "gorun: job %s has ended\n", job.Label)
	return err
}
