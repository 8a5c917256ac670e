package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gorun/launcher/jobs"
	screen "gorun/launcher/top"
)

func topCommand() *cli.Command {
	return jobsCommand("top", "show the CPU time, memory and waits of a job's ranks", "[JOB]", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{
			&cli.BoolFlag{Name: "once", Destination: &o.once, Usage: "print it once and end, as when the output is no terminal"},
			&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "write JSON each second, for programs"},
		}
	}, top)
}

func top(ctx context.Context, o *jobsFlags) error {
	job, err := findJob(ctx, o, true)
	if err != nil {
		return err
	}
	terminal := term.IsTerminal(int(os.Stdout.Fd()))
	if terminal && !o.once && !o.json && term.IsTerminal(int(os.Stdin.Fd())) && os.Getenv("TERM") != "dumb" {
		return showScreen(ctx, o, job)
	}
	before, err := job.Status(ctx) // asks the daemons, and returns what they answered to who asked last
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for begin := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		state, err := job.Status(ctx)
		if err != nil {
			if now, gone := findJob(ctx, o, false); gone == nil && now.State != jobs.Running {
				return nil
			}
			return err
		}
		if !o.json && stale(before.Ranks, begin) && time.Since(begin) < 2*time.Second {
			before = state
			continue
		}
		if !o.json {
			fmt.Fprint(o.out, screen.Table(job.Label, before, state))
			return nil
		}
		if err := json.NewEncoder(o.out).Encode(state.Ranks); err != nil {
			return err
		}
		if o.once || !terminal {
			return nil
		}
	}
}

// showScreen fills the terminal with the job until it ends or the user leaves.
func showScreen(ctx context.Context, o *jobsFlags, job jobs.Target) error {
	end, err := screen.Show(ctx, job.Job, job.Label, os.Stdin, os.Stdout, os.Environ())
	if err == nil && end.Ended {
		fmt.Fprintf(o.errs, "gorun: job %s has ended with %d\n", job.Label, end.Code)
	}
	return err
}

// stale reports whether answers are from long before a moment, or there are none, although ranks run.
func stale(ranks []jobs.RankStatus, then time.Time) bool {
	return slices.ContainsFunc(ranks, func(r jobs.RankStatus) bool { return !r.Ended() && r.At < then.Add(-2*time.Second).UnixMicro() })
}
