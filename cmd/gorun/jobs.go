package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"gorun/launcher/jobs"
)

// follow is how often a job's output is looked at for more.
const follow = 100 * time.Millisecond

func jobCommands(hurry <-chan struct{}) []*cli.Command {
	jobFlag := "[JOB]"
	return []*cli.Command{
		psCommand(),
		{Name: "top", Usage: "show what the ranks of a detached job use", UsageText: "gorun top " + jobFlag,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "once", Usage: "show it once, as when output is no terminal"},
				&cli.BoolFlag{Name: "json", Usage: "for programs"},
			},
			Action: top},
		{Name: "logs", Usage: "show the output of a detached job", UsageText: "gorun logs " + jobFlag,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the job ends"},
				&cli.IntFlag{Name: "lines", Aliases: []string{"n"}, Usage: "only the last `N` lines"},
			},
			Action: logs},
		{Name: "attach", Usage: "show the output of a detached job from here on, and exit as it does; Ctrl-C stops it, Ctrl-\\ leaves it", UsageText: "gorun attach " + jobFlag,
			Action: func(c *cli.Context) error { return attach(c, hurry) }},
		{Name: "stop", Usage: "stop a detached job", UsageText: "gorun stop " + jobFlag,
			Flags:  []cli.Flag{&cli.BoolFlag{Name: "now", Usage: "without giving its ranks time"}},
			Action: stop},
	}
}

// findJob reads which job is meant: the one with the number, or else the last.
func findJob(c *cli.Context, running bool) (jobs.Job, jobs.Record, error) {
	store, err := jobStore()
	if err != nil {
		return jobs.Job{}, jobs.Record{}, err
	}
	if c.NArg() > 1 {
		return jobs.Job{}, jobs.Record{}, &usageError{fmt.Errorf("%s takes one job", c.Command.Name), "gorun ps lists them"}
	}
	job, r, err := store.Find(c.Args().First(), running)
	if err != nil {
		return job, r, &usageError{err, "gorun ps lists them; gorun --detach … starts one"}
	}
	if running && r.State != jobs.Running {
		return job, r, fmt.Errorf("job %d does not run any more (%s)", r.ID, standOf(r))
	}
	if here, _ := os.Hostname(); running && r.Machine != here {
		return job, r, fmt.Errorf("job %d runs on %s, this is %s", r.ID, r.Machine, here)
	}
	return job, r, nil
}

func standOf(r jobs.Record) string {
	switch r.State {
	case jobs.Ended:
		return fmt.Sprintf("ended with %d", r.Code)
	case jobs.Lost:
		return "its launcher was killed"
	}
	return r.State
}

func listJobs(c *cli.Context) error {
	store, err := jobStore()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		if all == nil {
			all = []jobs.Record{}
		}
		return json.NewEncoder(c.App.Writer).Encode(all)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tPROGRAM\tSTARTED\tRANKS\tHOSTS\tSTATE")
	for _, r := range all {
		hosts := strings.Join(r.Hosts, ",")
		if len(r.Hosts) > 4 {
			hosts = fmt.Sprintf("%s and %d more", strings.Join(r.Hosts[:3], ","), len(r.Hosts)-3)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\n", r.ID, clean(r.Program), r.Started.Local().Format(time.DateTime), r.Ranks, clean(hosts), standOf(r))
	}
	return w.Flush()
}

func top(c *cli.Context) error {
	job, r, err := findJob(c, true)
	if err != nil {
		return err
	}
	before, err := job.Ranks(c.Context) // asks the daemons
	if err != nil {
		return err
	}
	tty := term.IsTerminal(int(os.Stdout.Fd()))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-c.Context.Done():
			return nil
		}
		now := time.Now()
		ranks, err := job.Ranks(c.Context)
		if err != nil {
			if r, gone := job.Load(); gone == nil && r.State != jobs.Running {
				return nil
			}
			return err
		}
		switch {
		case c.Bool("json"):
			if err := json.NewEncoder(c.App.Writer).Encode(ranks); err != nil {
				return err
			}
		case tty && !c.Bool("once"):
			fmt.Fprint(c.App.Writer, "\x1b[H\x1b[J") // to the corner, and clear
			fallthrough
		default:
			showRanks(c.App.Writer, r, before, ranks, now.Sub(last))
		}
		if c.Bool("once") || !tty {
			return nil
		}
		before, last = ranks, now
	}
}

func showRanks(to io.Writer, r jobs.Record, before, now []jobs.Rank, between time.Duration) {
	fmt.Fprintf(to, "job %d, %s, since %s\n", r.ID, clean(r.Program), r.Started.Local().Format(time.DateTime))
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RANK\tHOST\tPID\tCPU %\tMEMORY\tPROCESSES\tSTATE")
	for i, x := range now {
		share := "-"
		if i < len(before) && before[i].CPUMS > 0 && x.CPUMS >= before[i].CPUMS {
			share = fmt.Sprintf("%.0f", 100*float64(x.CPUMS-before[i].CPUMS)/float64(between.Milliseconds()))
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%d MiB\t%d\t%s\n", x.Rank, clean(x.Host), x.PID, share, x.RSS>>20, x.Processes, clean(x.State))
	}
	w.Flush()
}

func logs(c *cli.Context) error {
	job, r, err := findJob(c, false)
	if err != nil {
		return err
	}
	if c.Int("lines") < 0 {
		return &usageError{fmt.Errorf("--lines %d: must not be negative", c.Int("lines")), ""}
	}
	f, err := os.Open(job.Output())
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	defer f.Close()
	if c.IsSet("lines") {
		if err := seekLines(f, c.Int("lines")); err != nil {
			return fmt.Errorf("read output: %w", err)
		}
	}
	if !c.Bool("follow") || r.State != jobs.Running {
		_, err := io.Copy(c.App.Writer, f)
		return err
	}
	_, err = copyUntilEnd(c.Context, c.App.Writer, f, job)
	if c.Context.Err() != nil {
		return nil // Ctrl-C is how one leaves
	}
	return err
}

// seekLines goes to where the last n lines begin.
func seekLines(f *os.File, n int) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return err
	}
	buf := make([]byte, 64<<10)
	for at, seen := end, 0; at > 0; {
		size := min(at, int64(len(buf)))
		at -= size
		if _, err := f.ReadAt(buf[:size], at); err != nil {
			return err
		}
		for i := size; i > 0; {
			i = int64(bytes.LastIndexByte(buf[:i], '\n'))
			if i < 0 {
				break
			}
			if at+i+1 == end { // the end of the last line
				continue
			}
			if seen++; seen == n {
				_, err := f.Seek(at+i+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// copyUntilEnd copies what is in f, and what comes, until the job has ended. It returns the exit status.
func copyUntilEnd(ctx context.Context, to io.Writer, f io.Reader, job jobs.Job) (int, error) {
	type end struct {
		code int
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		code, err := job.Wait(ctx)
		ended <- end{code, err}
	}()
	tick := time.NewTicker(follow)
	defer tick.Stop()
	for {
		if _, err := io.Copy(to, f); err != nil {
			return 0, fmt.Errorf("show output: %w", err)
		}
		select {
		case <-tick.C:
		case e := <-ended:
			if _, err := io.Copy(to, f); err != nil {
				return 0, fmt.Errorf("show output: %w", err)
			}
			return e.code, e.err
		}
	}
}

// attach shows the output from here on. What would stop a launcher at a terminal stops the job.
func attach(c *cli.Context, hurry <-chan struct{}) error {
	job, r, err := findJob(c, true)
	if err != nil {
		return err
	}
	f, err := os.Open(job.Output())
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	defer f.Close()
	if err := seekLines(f, 10); err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	fmt.Fprintf(os.Stderr, "gorun: attached to job %d; Ctrl-C stops it, Ctrl-\\ leaves it\n", r.ID)
	ctx, leave := context.WithCancelCause(context.WithoutCancel(c.Context))
	defer leave(nil)
	defer notify(func(syscall.Signal) { leave(errLeft) }, unix.SIGQUIT)()
	defer notify(func(s syscall.Signal) { job.Signal(ctx, int(s)) }, unix.SIGUSR1, unix.SIGUSR2)()
	go func() {
		select {
		case <-c.Context.Done():
			var sig signalError
			if errors.As(context.Cause(c.Context), &sig) && sig.sig != unix.SIGINT {
				leave(errLeft) // the terminal went away: the job stays
				return
			}
			job.Signal(ctx, int(unix.SIGINT))
		case <-ctx.Done():
			return
		}
		select {
		case <-hurry:
			job.Signal(ctx, int(unix.SIGINT))
		case <-ctx.Done():
		}
	}()
	code, err := copyUntilEnd(ctx, c.App.Writer, f, job)
	switch {
	case errors.Is(context.Cause(ctx), errLeft):
		return nil
	case err != nil:
		return err
	case code != 0:
		return exitStatus(code)
	}
	return nil
}

var errLeft = errors.New("left")

func stop(c *cli.Context) error {
	job, r, err := findJob(c, true)
	if err != nil {
		return err
	}
	if err := job.Signal(c.Context, int(unix.SIGTERM)); err != nil {
		return err
	}
	if c.Bool("now") {
		job.Signal(c.Context, int(unix.SIGTERM)) // the second does not wait; or it has ended meanwhile
	}
	if _, err := job.Wait(c.Context); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "gorun: job %d has ended\n", r.ID)
	return err
}
