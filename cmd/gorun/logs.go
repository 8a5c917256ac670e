package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
)

func logsCommand() *cli.Command {
	return jobsCommand("logs", "show the output of a job", "[JOB]", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{
			&cli.BoolFlag{Name: "follow", Destination: &o.follow, Aliases: []string{"f"}, Usage: "follow the output until the job ends"},
			&cli.IntFlag{Name: "lines", Destination: &o.lines, Aliases: []string{"n"},
				Usage: "show only the last `N` lines", DefaultText: "all"},
		}
	}, logs)
}

func logs(ctx context.Context, o *jobsFlags) error {
	job, err := findJob(ctx, o, false)
	if err != nil {
		return err
	}
	if err := noOutput(job); err != nil {
		return err
	}
	lines := -1
	if o.given(&o.lines) {
		if lines = o.lines; lines < 0 {
			return &usageError{fmt.Errorf("--lines %d: must not be negative", lines), ""}
		}
	}
	err = job.Show(ctx, o.out, lines, o.follow)
	if ctx.Err() != nil {
		return nil // Ctrl-C is how users leave
	}
	return err
}
