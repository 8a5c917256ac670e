package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gorun/launcher/follow"
	"gorun/launcher/jobs"
	screen "gorun/launcher/top"
	"gorun/rendezvous/wire"
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
	before, err := job.Job.Ranks(ctx) // asks the daemons, and returns what they answered to who asked last
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
		ranks, err := job.Job.Ranks(ctx)
		if err != nil {
			if now, gone := findJob(ctx, o, false); gone == nil && now.State != jobs.Running {
				return nil
			}
			return err
		}
		if !o.json && stale(before, begin) && time.Since(begin) < 2*time.Second {
			before = ranks
			continue
		}
		if !o.json {
			showRanks(o.out, job, before, ranks)
			return nil
		}
		if err := json.NewEncoder(o.out).Encode(ranks); err != nil {
			return err
		}
		if o.once || !terminal {
			return nil
		}
	}
}

// showScreen fills the terminal with the job until it ends or the user leaves.
func showScreen(ctx context.Context, o *jobsFlags, job follow.Target) error {
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

func showRanks(to io.Writer, job follow.Target, before, now []jobs.RankStatus) {
	fmt.Fprintf(to, "job %s, %s, since %s\n", job.Label, jobs.Clean(job.Program), job.Started.Local().Format(time.DateTime))
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RANK\tHOST\tPID\tCPU %\tMEMORY\tPROCESSES\tSTEP\tDATA %\tCOMM %\tOTHERS %\tSTATE")
	for i, x := range now {
		share := "-"
		var earlier *wire.Split
		if i < len(before) {
			if cpus := x.CPUs(before[i]); cpus >= 0 {
				share = fmt.Sprintf("%.0f", 100*cpus)
			}
			earlier = before[i].Split
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%d MiB\t%d\t%s\t%s\n", x.Rank, jobs.Clean(x.Host), x.PID, share, x.RSS>>20, x.Processes,
			splitColumns(x.Split, earlier), jobs.Clean(x.State))
	}
	w.Flush()
}

// splitColumns returns the length of a rank's last step, and which shares of the time since an earlier look it waited
// for data, for communication and for other ranks.
func splitColumns(now, earlier *wire.Split) string {
	if now == nil {
		return "-\t-\t-\t-"
	}
	step := "-"
	if now.Step > 0 {
		step = fmt.Sprintf("%.3g s", float64(now.Step)/1e6)
	}
	s := now.Since(earlier)
	share := func(t int64) string { return fmt.Sprintf("%.0f", 100*float64(max(t, 0))/float64(max(s.Elapsed, 1))) }
	return step + "\t" + share(s.Data) + "\t" + share(s.Communication) + "\t" + share(s.Others)
}
