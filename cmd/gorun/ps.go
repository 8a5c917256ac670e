package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// psCommand shows jobs.
func psCommand() *cli.Command {
	return &cli.Command{
		Name:      "ps",
		Usage:     "list your detached jobs; with --cluster the jobs and hosts of a cluster",
		UsageText: "gorun ps [--cluster HOST --cluster-key-file FILE]",
		Flags:     append(clusterFlags(), &cli.BoolFlag{Name: "json", Usage: "for programs"}),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usageError{errors.New("ps takes no job: it lists them all"), "gorun top JOB, gorun logs JOB"}
			}
			if !c.IsSet("cluster") {
				return listJobs(c)
			}
			all, detached, err := clusterJobs(c)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return json.NewEncoder(c.App.Writer).Encode(listCluster(all, detached))
			}
			showCluster(c, all, detached)
			return nil
		},
	}
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

func clusterJobs(c *cli.Context) (*wire.Jobs, []clusterRecord, error) {
	client, addr, err := clusterOf(c)
	if err != nil {
		return nil, nil, err
	}
	all, err := client.Jobs(c.Context, addr)
	if err != nil {
		return nil, nil, explainCluster(addr, err)
	}
	detached, _ := allRecords(c.Context, client, all.Members)
	return all, latest(detached), nil
}

func showCluster(c *cli.Context, all *wire.Jobs, detached []clusterRecord) {
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
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
