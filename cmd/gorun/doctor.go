package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"gorun/launcher/failure"
	"gorun/launcher/output"
	"gorun/launcher/survey"
	"gorun/topology/doctor"
	"gorun/worker/command"
)

// doctorFlags are the flags of gorun doctor; hosts are named and reached as in a launch.
type doctorFlags struct {
	jobFlags
	json bool
}

func (o *doctorFlags) table() []cli.Flag {
	return o.toHosts([]cli.Flag{&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "write the findings as JSON"}}, "connect-retry", "network-interfaces")
}

// doctorCommand looks for what makes jobs fail or slow on a host, before there is a job.
func doctorCommand() *cli.Command {
	o := new(doctorFlags)
	return &cli.Command{
		Name:        "doctor",
		Usage:       "check hosts for what makes jobs fail or slow",
		UsageText:   "gorun doctor [-H host1,host2] [--network-interfaces LIST] [--json]",
		Description: "Each finding that is not in order has a line with what to do. The exit status is 1 if any check says FAIL. WARN costs speed, or may cost a job.",
		Flags:       o.table(),
		Action: func(c *cli.Context) error {
			o.read(c)
			return runDoctor(c.Context, o)
		},
	}
}

func runDoctor(ctx context.Context, o *doctorFlags) error {
	if err := cmp.Or(o.noArgs(), checkStart(&o.jobFlags)); err != nil {
		return err
	}
	placement, err := place(&o.jobFlags)
	if err != nil {
		return err
	}
	d, err := newDialer(&o.jobFlags)
	if err != nil {
		return err
	}
	defer d.close()
	findings, err := survey.Examine(ctx, hostNames(placement), nicsOf(&o.jobFlags), o.startTimeout, d.doing)
	if err != nil {
		return err
	}
	if err := writeFindings(o.out, findings, o.json); err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	if slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Status == doctor.Fail }) {
		return command.ExitStatus(failure.ExitFailure)
	}
	return nil
}

// writeFindings prints a table with the way out under what is wrong, or JSON.
func writeFindings(w io.Writer, findings []doctor.Finding, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"findings": findings})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	count := map[doctor.Status]int{}
	for _, f := range findings {
		count[f.Status]++
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Status, output.Printable(f.Host), output.Printable(f.Check), output.Printable(f.Text))
		if f.Status != doctor.Pass && f.Fix != "" {
			fmt.Fprintf(t, "\t\t\t→ %s\n", output.Printable(f.Fix))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d passed, %d to look at, %d failed\n", count[doctor.Pass], count[doctor.Warn], count[doctor.Fail])
	return err
}
