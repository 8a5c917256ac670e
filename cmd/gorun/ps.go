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
	return jobsCommand("ps", "list your detached jobs; with --cluster the jobs and hosts of a cluster", "[--cluster HOST --cluster-key-file FILE]", func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "for programs"}}
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

// clusterList is what a cluster does, for programs.
type clusterList struct {
	Members  []wire.MemberState `json:"members"`
	Jobs     []clusterJob       `json:"jobs"` // in the order in which they came
	Detached []clusterRecord    `json:"detached"`
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

func listCluster(all *wire.Jobs, detached []clusterRecord) clusterList {
	list := clusterList{append([]wire.MemberState{}, all.Members...), []clusterJob{}, []clusterRecord{}}
	for _, j := range all.Jobs {
		x := clusterJob{j, waiting, []clusterSlots{}}
		for _, s := range j.Shares {
			x.State, x.Hosts = jobs.Running, append(x.Hosts, clusterSlots{s.Host, s.Slots})
		}
		list.Jobs = append(list.Jobs, x)
	}
	for _, r := range detached {
		r.Record = stated(r.Record)
		list.Detached = append(list.Detached, r)
	}
	return list
}

// waiting is the state of a job whose launcher runs, and has no slots yet.
const waiting = "waiting"

// stated is a job as those who list it see it.
func stated(r jobs.Record) jobs.Record {
	if r.Hosts == nil {
		r.Hosts = []string{}
	}
	if r.State == jobs.Running && r.Ranks == 0 {
		r.State = waiting
	}
	return r
}

func clusterJobs(ctx context.Context, o *clusterFlags) (*wire.Jobs, []clusterRecord, error) {
	client, addr, err := clusterOf(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	all, err := client.Jobs(ctx, addr)
	if err != nil {
		return nil, nil, explainCluster(addr, err)
	}
	detached, _ := allRecords(ctx, client, all.Members)
	return all, latest(detached), nil
}

func showCluster(to io.Writer, all *wire.Jobs, detached []clusterRecord) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tADDRESS\tUSED\t")
	for _, m := range all.Members {
		state := ""
		if m.Draining {
			state = "takes no more jobs"
		}
		fmt.Fprintf(w, "%s\t%s\t%d of %d\t%s\n", m.Host, m.Addr, m.Used, m.Slots, state)
	}
	w.Flush()
	if len(detached) > 0 {
		fmt.Fprintln(w, "\nJOB\tPROGRAM\tSTARTED\tRANKS\tSTATE")
		for _, r := range detached {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", clean(r.name()), clean(r.Program), r.Started.Local().Format(time.DateTime), r.Ranks, clean(r.stand()))
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
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%s\n", clean(j.User), clean(j.Program), time.Duration(j.Seconds)*time.Second, j.Ranks, strings.Join(list, ","))
	}
	w.Flush()
}

// stand says where the launcher of a job is, if that is not where the job began.
func (r clusterRecord) stand() string {
	if r.Record.Name == "" || r.State == jobs.Unattended {
		return standOf(r.Record)
	}
	return standOf(r.Record) + ", on " + r.Host
}

// clean keeps what others wrote from moving the terminal's cursor.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
