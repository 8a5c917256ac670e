package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher/jobs"
	"gorun/launcher/why"
)

func whyCommand() *cli.Command {
	return jobsCommand("why", "show which ranks a job waits for, or what they did last", "[JOB | FILE]", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "write JSON, for programs"}}
	}, explainWait)
}

func stacksCommand() *cli.Command {
	const usage = "show the stacks of a job's ranks, equal ones together"
	return jobsCommand("stacks", usage, "[JOB]", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &o.json,
			Usage: "write JSON with the stacks of all threads, for programs"},
			&cli.BoolFlag{Name: "native", Destination: &o.native,
				Usage: "also show functions of C, by py-spy, eu-stack or gdb of the hosts, which stops each rank for a moment"}}
	}, showStacks)
}

// ask has the daemons of a job find out what its ranks do.
func ask(ctx context.Context, o *jobsFlags) ([]why.Finding, error) {
	job, err := findJob(ctx, o, true)
	if err != nil {
		return nil, err
	}
	all, err := job.Job.Why(ctx, o.native)
	if err != nil {
		return nil, fmt.Errorf("ask job %s: %w", job.Label, err)
	}
	return all, nil
}

func explainWait(ctx context.Context, o *jobsFlags) error {
	recording, err := recordingOf(ctx, o)
	if err != nil {
		return err
	}
	if recording != nil {
		if o.json {
			return json.NewEncoder(o.out).Encode(recording)
		}
		verdict, evidence := recording.Explain()
		return showVerdict(o, verdict, evidence)
	}
	all, err := ask(ctx, o)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(o.out).Encode(all)
	}
	verdict, evidence := why.Explain(all)
	return showVerdict(o, verdict, evidence)
}

// showVerdict prints what is wrong with a job, and why.
func showVerdict(o *jobsFlags, verdict string, evidence []string) error {
	fmt.Fprintln(o.out, jobs.Clean(verdict))
	for _, line := range evidence {
		fmt.Fprintln(o.out, "  "+jobs.Clean(line))
	}
	return nil
}

// recordingOf reads the recording that the user names, or that a job which has ended left behind; nil if the job runs.
func recordingOf(ctx context.Context, o *jobsFlags) (*why.Recording, error) {
	if len(o.args) != 1 {
		return nil, nil
	}
	name := o.args[0]
	if _, err := strconv.Atoi(name); err == nil || !strings.ContainsAny(name, "/.") {
		job, err := findJob(ctx, o, false)
		if err != nil || job.State == jobs.Running || job.Dir == "" {
			return nil, err
		}
		if name = job.Recording(); !isFile(name) {
			return nil, nil // ask says that the job has ended
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, &usageError{fmt.Errorf("read recording: %w", err), "gorun why takes a job, or the flight.jsonl that it left behind"}
	}
	defer f.Close()
	recording, err := why.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return recording, nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

func showStacks(ctx context.Context, o *jobsFlags) error {
	all, err := ask(ctx, o)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(o.out).Encode(all)
	}
	for _, s := range why.Merge(all) {
		fmt.Fprintf(o.out, "%s:\n", why.Ranks(s.Ranks))
		for _, frame := range s.Frames {
			fmt.Fprintln(o.out, "  "+jobs.Clean(frame.String()))
		}
	}
	for _, n := range why.Notes(all) {
		fmt.Fprintf(o.out, "%s on %s: %s\n", why.Ranks(n.Ranks), jobs.Clean(n.Host), jobs.Clean(n.Text))
	}
	for _, f := range all {
		if len(why.Main(f.Stack)) == 0 && f.Native == "" {
			fmt.Fprintf(o.out, "rank %d on %s: no Python stack; %s\n", f.Rank, jobs.Clean(f.Host), jobs.Clean(f.State))
		}
	}
	return nil
}
