package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// psCommand shows jobs.
func psCommand() *cli.Command {
	return jobsCommand("ps", "list your jobs, or the jobs and hosts of a cluster", "[--json] [--cluster HOST --cluster-key-file FILE]",
		"list the jobs and hosts of the cluster that has a daemon at `HOST[:PORT]`", func(o *jobsFlags) []cli.Flag {
			return []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "write JSON, for programs"}}
		}, ps)
}

func ps(ctx context.Context, o *jobsFlags) error {
	if len(o.args) > 0 {
		return &usageError{errors.New("ps takes no job: it lists them all"), "gorun top JOB, gorun logs JOB"}
	}
	if o.cluster == "" {
		return listJobs(o)
	}
	all, detached, err := clusterJobs(ctx, &o.clusterFlags)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(o.out).Encode(listCluster(all, detached))
	}
	showCluster(o.out, all, detached)
	return nil
}

// listJobs shows the jobs of this machine.
func listJobs(o *jobsFlags) error {
	store, err := jobStore()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	if o.json {
		list := []jobs.Record{}
		for _, r := range all {
			list = append(list, r.Listed())
		}
		return json.NewEncoder(o.out).Encode(list)
	}
	w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tPROGRAM\tSTARTED\tRANKS\tHOSTS\tSTATE")
	for _, r := range all {
		hosts := strings.Join(r.Hosts, ",")
		if len(r.Hosts) > 4 {
			hosts = fmt.Sprintf("%s and %d more", strings.Join(r.Hosts[:3], ","), len(r.Hosts)-3)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\n", r.ID, jobs.Clean(r.Program), r.Started.Local().Format(time.DateTime), r.Ranks, jobs.Clean(hosts), jobs.Clean(r.StateText()))
	}
	return w.Flush()
}

// clusterList is what a cluster does, for programs.
type clusterList struct {
	Members  []wire.MemberState `json:"members"`
	Jobs     []clusterJob       `json:"jobs"` // in the order in which they came
	Detached []jobs.Entry       `json:"detached"`
}

// clusterJob is a job that has slots or waits for them.
type clusterJob struct {
	wire.JobState
	State string         `json:"state"` // running or waiting
	Hosts []clusterSlots `json:"hosts"`
}

// clusterSlots is a host's part of a job.
type clusterSlots struct {
	Host  string `json:"host"`
	Slots int    `json:"slots"`
}

func listCluster(all *wire.Jobs, detached []jobs.Entry) clusterList {
	list := clusterList{append([]wire.MemberState{}, all.Members...), []clusterJob{}, []jobs.Entry{}}
	for _, j := range all.Jobs {
		x := clusterJob{j, jobs.Waiting, []clusterSlots{}}
		for _, s := range j.Shares {
			x.State, x.Hosts = jobs.Running, append(x.Hosts, clusterSlots{s.Host, s.Slots})
		}
		list.Jobs = append(list.Jobs, x)
	}
	for _, r := range detached {
		r.Record = r.Listed()
		list.Detached = append(list.Detached, r)
	}
	return list
}

func clusterJobs(ctx context.Context, o *clusterFlags) (*wire.Jobs, []jobs.Entry, error) {
	client, addr, err := clusterOf(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	all, err := client.Jobs(ctx, addr)
	if err != nil {
		return nil, nil, explainCluster(addr, err)
	}
	detached, _ := jobs.ListCluster(ctx, client, all.Members)
	return all, detached, nil
}

func showCluster(to io.Writer, all *wire.Jobs, detached []jobs.Entry) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tADDRESS\tUSED\t")
	for _, m := range all.Members {
		state := ""
		if m.Draining {
			state = "takes no more jobs"
		}
		fmt.Fprintf(w, "%s\t%s\t%d of %d\t%s\n", jobs.Clean(m.Host), jobs.Clean(m.Addr), m.Used, m.Slots, state)
	}
	w.Flush()
	if len(detached) > 0 {
		fmt.Fprintln(w, "\nJOB\tPROGRAM\tSTARTED\tRANKS\tSTATE")
		for _, r := range detached {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", jobs.Clean(r.Label()), jobs.Clean(r.Program), r.Started.Local().Format(time.DateTime), r.Ranks, jobs.Clean(r.StateText()))
		}
		w.Flush()
	}
	if len(all.Jobs) == 0 {
		return
	}
	fmt.Fprintln(w, "\nUSER\tPROGRAM\tSINCE\tRANKS\tHOSTS")
	for _, j := range all.Jobs {
		var list []string
		for _, s := range j.Shares {
			list = append(list, fmt.Sprintf("%s:%d", s.Host, s.Slots))
		}
		if list == nil {
			list = []string{"waits"}
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%s\n", jobs.Clean(j.User), jobs.Clean(j.Program), time.Duration(j.Seconds)*time.Second, j.Ranks, jobs.Clean(strings.Join(list, ",")))
	}
	w.Flush()
}
