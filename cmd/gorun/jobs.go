package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher/jobs"
)

// jobsFlags are the flags of the commands about detached jobs. Each command has some of them.
type jobsFlags struct {
	invocation
	clusterFlags
	json, once, follow, now, native bool
	undo                            bool
	timeout                         time.Duration
	lines                           int
	listen                          string // where a page is served
}

// inCluster is what commands about one job do with a cluster.
const inCluster = "look for the job in the cluster that has a daemon at `HOST[:PORT]`"

// jobsCommand makes a command about detached jobs, given its own flags. It also has the flags of a cluster,
// whose meaning is does.
func jobsCommand(name, usage, takes, does string, own func(o *jobsFlags) []cli.Flag, run func(ctx context.Context, o *jobsFlags) error) *cli.Command {
	o := new(jobsFlags)
	return &cli.Command{Name: name, Usage: usage, UsageText: "gorun " + name + " " + takes, Flags: append(own(o), o.clusterTable(does)...),
		Action: func(c *cli.Context) error {
			o.read(c)
			return run(c.Context, o)
		}}
}

// findJob reads which job is meant: the one with the number, or else the last.
func findJob(ctx context.Context, o *jobsFlags, running bool) (jobs.Target, error) {
	var none jobs.Target
	id := ""
	switch len(o.args) {
	case 0:
	case 1:
		id = o.args[0]
	default:
		return none, &usageError{fmt.Errorf("%s takes one job", o.command), "gorun ps lists them"}
	}
	t, err := findTarget(ctx, &o.clusterFlags, id, running)
	if err != nil {
		return none, err
	}
	if running && t.State != jobs.Running {
		return none, fmt.Errorf("job %s does not run any more (%s)", t.Label, t.StateText())
	}
	if here, _ := os.Hostname(); running && t.Dial == nil && t.Machine != here {
		return none, fmt.Errorf("job %s runs on %s, this is %s", t.Label, t.Machine, here)
	}
	return t, nil
}

// findTarget looks for a job on this machine, or in the cluster that the flags name.
func findTarget(ctx context.Context, o *clusterFlags, id string, running bool) (jobs.Target, error) {
	if o.cluster == "" {
		store, err := jobStore()
		if err != nil {
			return jobs.Target{}, err
		}
		t, err := jobs.FindHere(store, id, running)
		if err != nil {
			return t, &usageError{err, "gorun ps lists them; gorun --detach … starts one"}
		}
		return t, nil
	}
	client, addr, err := clusterOf(ctx, o)
	if err != nil {
		return jobs.Target{}, err
	}
	t, err := jobs.FindInCluster(ctx, client, addr, id, running)
	if missing, ok := errors.AsType[*jobs.NotFoundError](err); ok {
		return t, explainMissing(missing, addr)
	}
	if err != nil {
		err = explainCluster(addr, err)
	}
	return t, err
}

// explainMissing adds what to do about a job that is not on the hosts that answer.
func explainMissing(err *jobs.NotFoundError, addr string) error {
	if err.Silent == nil {
		return &usageError{err, "gorun ps --cluster " + addr + " lists them"}
	}
	return &usageError{err, "if the job's launcher was there, another host carries it on when its lease is over: ask again"}
}
