package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher/failure"
	"gorun/launcher/jobs"
	"gorun/launcher/output"
	"gorun/launcher/survey"
	"gorun/worker/cached"
	"gorun/worker/command"
)

// cleanFlags are the flags of gorun clean; hosts are named and reached as in a launch.
type cleanFlags struct {
	jobFlags
	older     time.Duration
	onlyShown bool
}

func (o *cleanFlags) table() []cli.Flag {
	return o.toHosts([]cli.Flag{
		timeFlag("older-than", &o.older, 24*time.Hour, "remove what ended, or was used last, this `TIME` ago or earlier"),
		&cli.BoolFlag{Name: "dry-run", Destination: &o.onlyShown, Usage: "show what would be removed, and remove nothing"},
	}, "connect-retry")
}

// cleanCommand removes what gorun keeps.
func cleanCommand() *cli.Command {
	o := new(cleanFlags)
	return &cli.Command{
		Name:      "clean",
		Usage:     "remove jobs that ended, and programs cached on hosts",
		UsageText: "gorun clean [-H host1,host2] [--older-than TIME] [--dry-run]",
		Description: "Hosts keep the programs that gorun has sent them, and this machine the records and output of jobs that ended. " +
			"What runs or may be in use is never removed. Without this command, hosts keep three programs and what they used within a day; " +
			"detached jobs are kept for a month, others for a day.",
		Flags: o.table(),
		Action: func(c *cli.Context) error {
			o.read(c)
			return clean(c.Context, o)
		},
	}
}

func clean(ctx context.Context, o *cleanFlags) error {
	if o.older < 0 {
		return &usageError{fmt.Errorf("--older-than %v: must not be negative", o.older), ""}
	}
	if err := cmp.Or(o.noArgs(), checkStart(&o.jobFlags)); err != nil {
		return err
	}
	if err := cleanJobs(o); err != nil {
		return err
	}
	if !o.namesHosts() {
		here, _ := os.Hostname()
		found := cached.Clean(cached.Places(os.Getenv), o.older, time.Now(), !o.onlyShown)
		return showPrograms(o, []string{here}, [][]cached.Program{found}, make([]survey.Answer, 1))
	}
	return cleanHosts(ctx, o)
}

// cleanJobs removes the user's jobs on this machine.
func cleanJobs(o *cleanFlags) error {
	store, err := jobStore()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	here, _ := os.Hostname()
	limits := jobs.Limits{Detached: o.older, Foreground: o.older, Most: len(all)}
	old := limits.Expired(all, time.Now(), here)
	var names []string
	for i := len(old) - 1; i >= 0; i-- { // the oldest first
		if !o.onlyShown {
			if err := store.Remove(old[i].ID); err != nil {
				return err
			}
		}
		names = append(names, fmt.Sprint(old[i].ID))
	}
	if names == nil {
		_, err = fmt.Fprintln(o.out, "removed: no jobs")
		return err
	}
	_, err = fmt.Fprintf(o.out, "%s: jobs that ended: %s\n", o.does(), strings.Join(names, ", "))
	return err
}

func (o *cleanFlags) does() string {
	if o.onlyShown {
		return "would be removed"
	}
	return "removed"
}

// cleanHosts removes programs on the hosts that the flags name.
func cleanHosts(ctx context.Context, o *cleanFlags) error {
	placement, err := place(&o.jobFlags)
	if err != nil {
		return err
	}
	d, err := newDialer(&o.jobFlags)
	if err != nil {
		return err
	}
	defer d.close()
	args := []string{"clean", "--programs", o.older.String()}
	if !o.onlyShown {
		args = append(args, "--remove")
	}
	names := hostNames(placement)
	found := make([][]cached.Program, len(names))
	answers, err := survey.Each(ctx, d.doing(args...), names, o.startTimeout, func(host int, text []byte) error {
		return json.Unmarshal(text, &found[host])
	})
	if err != nil {
		return err
	}
	return showPrograms(o, names, found, answers)
}

// showPrograms prints what hosts have, or had, and why the others did not answer.
func showPrograms(o *cleanFlags, names []string, found [][]cached.Program, answers []survey.Answer) error {
	if len(slices.Concat(found...)) == 0 && !slices.ContainsFunc(answers, func(a survey.Answer) bool { return a.Err != nil }) {
		_, err := fmt.Fprintln(o.out, "no programs are cached")
		return err
	}
	w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tPROGRAM\tSIZE\tLAST USED\tSTATE")
	failed := false
	for i, host := range names {
		if err := answers[i].Err; err != nil {
			failed = true
			fmt.Fprintf(w, "%s\t-\t-\t-\t%s\n", output.Printable(host), output.Printable("failed: "+err.Error()))
		}
		for _, p := range found[i] {
			used := p.Used.Local().Format(time.DateTime)
			fmt.Fprintf(w, "%s\t%s\t%.1f MB\t%s\t%s\n",
				output.Printable(host), output.Printable(p.Kind()+p.Hash()), float64(p.Size)/1e6, used, o.programState(p))
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	if failed {
		return command.ExitStatus(failure.ExitTransport)
	}
	return nil
}

func (o *cleanFlags) programState(p cached.Program) string {
	switch {
	case p.Removed && p.Written:
		return o.does() + ", with what ranks wrote into it"
	case p.Removed:
		return o.does()
	case p.InUse:
		return "in use"
	case p.MayRun(time.Now()):
		return "kept: may be in use on another host"
	}
	return "kept: used recently"
}
