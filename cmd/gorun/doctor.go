package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/output"
	"gorun/topology/doctor"
	"gorun/worker/command"
)

// doctorFlags are those of gorun doctor; hosts are named and reached as in a launch.
type doctorFlags struct {
	jobFlags
	json bool
}

func (o *doctorFlags) table() []cli.Flag {
	return append([]cli.Flag{&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "write the findings as JSON"}},
		pick(o.jobFlags.table(), "hosts", "hostfile", "ssh-port", "ssh-identity-file", "ssh-config", "ssh-command", "start-timeout", "connect-retry", "network-interfaces")...)
}

// doctorCommand looks for what makes jobs fail or slow on a host, before there is a job.
func doctorCommand() *cli.Command {
	o := new(doctorFlags)
	return &cli.Command{
		Name:        "doctor",
		Usage:       "check hosts for what makes jobs fail or slow, and say how to mend it",
		UsageText:   "gorun doctor [-H host1,host2] [--network-interfaces LIST] [--json]",
		Description: "The exit status is 1 if any check says FAIL. WARN costs speed, or may cost a job.",
		Flags:       o.table(),

		CustomHelpTemplate: commandHelp,
		Action: func(c *cli.Context) error {
			o.read(c)
			return runDoctor(c.Context, o)
		},
	}
}

func runDoctor(ctx context.Context, o *doctorFlags) error {
	if len(o.args) > 0 {
		return &usageError{fmt.Errorf("unexpected argument %s", o.args[0]), "gorun doctor -H host1,host2"}
	}
	if err := checkStart(&o.jobFlags); err != nil {
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
	findings, err := examine(ctx, hostNames(placement), nicsOf(&o.jobFlags), o.startTimeout, d.doing)
	if err != nil {
		return err
	}
	if err := writeFindings(o.out, findings, o.json); err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	if slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Status == doctor.Fail }) {
		return command.ExitStatus(launcher.ExitFailure)
	}
	return nil
}

// examine asks every host at once and judges the answers. A host that does not answer is a finding, too.
//
// Those that answer are then asked about the ways between them over the NICs that the user's list means, by what doing returns.
func examine(ctx context.Context, names, nics []string, patience time.Duration, doing func(args ...string) launcher.Dialer) ([]doctor.Finding, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	d := doing("doctor", "--facts")
	answers, errs := make([]doctor.Answer, len(names)), make([]error, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() { answers[i], errs[i] = askFacts(ctx, d, name) })
	}
	asking.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, launcher.ErrStopped) {
		return nil, cause // Ctrl-C is no fault of the hosts
	}
	var findings []doctor.Finding
	var well []doctor.Answer
	for i, name := range names {
		if errs[i] != nil {
			findings = append(findings, unreachable(name, errs[i]))
			continue
		}
		answers[i].Facts.Host.Name = name
		findings = append(findings, doctor.Judge(answers[i].Facts)...)
		well = append(well, answers[i])
	}
	findings = append(findings, doctor.Compare(well, nics)...)
	findings = append(findings, probeWays(ctx, doctor.Ways(well, nics), doing)...)
	if cause := context.Cause(ctx); errors.Is(cause, launcher.ErrStopped) {
		return nil, cause
	}
	slices.SortStableFunc(findings, func(a, b doctor.Finding) int {
		return slices.Index(names, a.Host) - slices.Index(names, b.Host)
	})
	return findings, nil
}

// probeWays has hosts find out what packets reach each other.
func probeWays(ctx context.Context, ways []doctor.Way, doing func(args ...string) launcher.Dialer) []doctor.Finding {
	found := make([]doctor.Finding, len(ways))
	var probing sync.WaitGroup
	for i, w := range ways {
		probing.Go(func() {
			var arrive int
			_, _, err := interrogate(ctx, doing("doctor", "--path", w.Addr.String(), "--bytes", strconv.Itoa(w.Bytes)), w.From, func(text []byte, _ *launcher.Daemon) error { return json.Unmarshal(text, &arrive) })
			found[i] = doctor.JudgeWay(w, arrive, err)
		})
	}
	probing.Wait()
	return found
}

func unreachable(name string, err error) doctor.Finding {
	f := doctor.Finding{Host: name, Check: "reach", Status: doctor.Fail, Text: err.Error()}
	var failed *launcher.HostError
	if errors.As(err, &failed) {
		f.Text, f.Fix = fmt.Sprintf("%s: %v", failed.Stage(), failed.Err), failed.Hint
	}
	f.Fix = cmp.Or(f.Fix, "ssh -v "+name+" true")
	return f
}

// askFacts runs gorun doctor --facts on the host.
func askFacts(ctx context.Context, d launcher.Dialer, host string) (a doctor.Answer, err error) {
	a.Asked, a.Came, err = interrogate(ctx, d, host, func(text []byte, _ *launcher.Daemon) error { return json.Unmarshal(text, &a.Facts) })
	return a, err
}

// interrogate parses what a host says, and tells when it did.
func interrogate(ctx context.Context, d launcher.Dialer, host string, parse func(text []byte, d *launcher.Daemon) error) (asked, came time.Time, err error) {
	daemon, err := d.Dial(ctx, host)
	if err != nil {
		return asked, came, err
	}
	defer context.AfterFunc(ctx, func() { daemon.Close() })()
	daemon.In.Close() // it reads nothing
	asked = time.Now()
	text, err := io.ReadAll(io.LimitReader(daemon.Out, mostFacts))
	came = time.Now()
	if len(text) == mostFacts {
		err = fmt.Errorf("it answered with more than %d bytes", mostFacts)
		daemon.Close() // or it would wait for a reader
	}
	said, ended := daemon.Wait()
	daemon.Close()
	if cause := context.Cause(ctx); cause != nil {
		return asked, came, cause
	}
	if err = cmp.Or(err, parse(text, daemon)); err != nil && (said != "" || ended != nil) {
		err = errors.New(cmp.Or(reason(said), fmt.Sprint(ended)))
	}
	return asked, came, err
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
	_, err := fmt.Fprintf(w, "%s\n", strings.Join([]string{fmt.Sprint(count[doctor.Pass], " passed"), fmt.Sprint(count[doctor.Warn], " to look at"), fmt.Sprint(count[doctor.Fail], " failed")}, ", "))
	return err
}
