package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"gorun/launcher/jobs"
	"gorun/launcher/why"
)

func whyCommand() *cli.Command {
	return jobsCommand("why", "show which ranks a job waits for, and what they do", "[JOB]", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "write JSON, for programs"}}
	}, explainWait)
}

func stacksCommand() *cli.Command {
	const usage = "show the Python stacks of a job's ranks, equal ones together"
	return jobsCommand("stacks", usage, "[JOB]", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &o.json,
			Usage: "write JSON with the stacks of all threads, for programs"}}
	}, showStacks)
}

// ask has the daemons of a job find out what its ranks do.
func ask(ctx context.Context, o *jobsFlags) ([]why.Finding, error) {
	job, err := findJob(ctx, o, true)
	if err != nil {
		return nil, err
	}
	all, err := job.Job.Why(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask job %s: %w", job.Label, err)
	}
	return all, nil
}

func explainWait(ctx context.Context, o *jobsFlags) error {
	all, err := ask(ctx, o)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(o.out).Encode(all)
	}
	verdict, evidence := why.Explain(all)
	fmt.Fprintln(o.out, jobs.Clean(verdict))
	for _, line := range evidence {
		fmt.Fprintln(o.out, "  "+jobs.Clean(line))
	}
	return nil
}

func showStacks(ctx context.Context, o *jobsFlags) error {
	all, err := ask(ctx, o)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(o.out).Encode(all)
	}
	without := map[int]bool{}
	for _, f := range all {
		without[f.Rank] = true
	}
	for _, s := range why.Merge(all) {
		fmt.Fprintf(o.out, "%s:\n", rankWords(s.Ranks))
		for _, frame := range s.Frames {
			fmt.Fprintln(o.out, "  "+jobs.Clean(frame.String()))
		}
		for _, rank := range s.Ranks {
			delete(without, rank)
		}
	}
	for _, f := range all {
		if without[f.Rank] {
			fmt.Fprintf(o.out, "rank %d on %s: no stack; %s\n", f.Rank, jobs.Clean(f.Host), jobs.Clean(f.State))
		}
	}
	return nil
}

// rankWords writes "rank 3" or "ranks 0-6".
func rankWords(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	return "ranks " + why.Numbers(ranks)
}
