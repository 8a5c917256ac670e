package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/resume"
	"gorun/worker/command"
)

// openOutput reads what a job wrote: the last lines, all if that is negative, and what comes if it is to follow.
type openOutput func(ctx context.Context, lines int, follow bool) (io.ReadCloser, error)

// jobsFlags are those of the commands about detached jobs, of which each has some.
type jobsFlags struct {
	invocation
	clusterFlags
	json, once, follow, now bool
	lines                   int
}

// jobsCommand makes a command about detached jobs, given the flags that it has beside those of a cluster.
func jobsCommand(name, usage, takes string, own func(o *jobsFlags) []cli.Flag, run func(ctx context.Context, o *jobsFlags) error) *cli.Command {
	o := new(jobsFlags)
	return &cli.Command{Name: name, Usage: usage, UsageText: "gorun " + name + " " + takes, Flags: append(o.clusterTable(), own(o)...),
		Action: func(c *cli.Context) error {
			o.read(c)
			return run(c.Context, o)
		}}
}

func jobCommands() []*cli.Command {
	const takes = "[JOB]"
	none := func(*jobsFlags) []cli.Flag { return nil }
	return []*cli.Command{
		psCommand(),
		jobsCommand("top", "show what the ranks of a detached job use", takes, func(o *jobsFlags) []cli.Flag {
			return []cli.Flag{
				&cli.BoolFlag{Name: "once", Destination: &o.once, Usage: "show it once, as when output is no terminal"},
				&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "for programs"},
			}
		}, top),
		jobsCommand("logs", "show the output of a detached job", takes, func(o *jobsFlags) []cli.Flag {
			return []cli.Flag{
				&cli.BoolFlag{Name: "follow", Destination: &o.follow, Aliases: []string{"f"}, Usage: "go on until the job ends"},
				&cli.IntFlag{Name: "lines", Destination: &o.lines, Aliases: []string{"n"}, Usage: "only the last `N` lines"},
			}
		}, logs),
		jobsCommand("attach", "show the output of a detached job from here on, and exit as it does; Ctrl-C stops it, Ctrl-\\ leaves it", takes, none, attach),
		jobsCommand("stop", "stop a detached job", takes, func(o *jobsFlags) []cli.Flag {
			return []cli.Flag{&cli.BoolFlag{Name: "now", Destination: &o.now, Usage: "without giving its ranks time"}}
		}, stop),
	}
}

// found is a job that a command is about.
type found struct {
	jobs.Job
	jobs.Record
	name   string
	output openOutput
	// next returns the job by the launcher that has taken over from this one, if there is one, or how it ended; nil if no
	// other ever does. It asks all hosts. runs asks the one of this launcher whether that is there.
	next func(ctx context.Context) (found, bool)
	runs func(ctx context.Context) bool
}

// findJob reads which job is meant: the one with the number, or else the last.
func findJob(ctx context.Context, o *jobsFlags, running bool) (found, error) {
	var f found
	id := ""
	switch len(o.args) {
	case 0:
	case 1:
		id = o.args[0]
	default:
		return f, &usageError{fmt.Errorf("%s takes one job", o.command), "gorun ps lists them"}
	}
	if o.cluster != "" {
		r, client, err := findClusterJob(ctx, &o.clusterFlags, id, running)
		if err != nil {
			return f, err
		}
		f = r.found(client)
	} else {
		store, err := jobStore()
		if err != nil {
			return f, err
		}
		if f.Job, f.Record, err = store.Find(id, running); err != nil {
			return f, &usageError{err, "gorun ps lists them; gorun --detach … starts one"}
		}
		f.name = strconv.Itoa(f.ID)
		f.output = func(_ context.Context, lines int, follow bool) (io.ReadCloser, error) { return f.Tail(lines, follow) }
	}
	if running && f.State != jobs.Running {
		return f, fmt.Errorf("job %s does not run any more (%s)", f.name, standOf(f.Record))
	}
	if here, _ := os.Hostname(); running && f.Dial == nil && f.Machine != here {
		return f, fmt.Errorf("job %s runs on %s, this is %s", f.name, f.Machine, here)
	}
	return f, nil
}

func standOf(r jobs.Record) string {
	switch r.State {
	case jobs.Ended:
		if r.Abandoned != "" {
			return fmt.Sprintf("ended with %d: %s", r.Code, clean(r.Abandoned))
		}
		return fmt.Sprintf("ended with %d", r.Code)
	case jobs.Lost:
		return "its launcher was killed"
	case jobs.Moved:
		return "another host carries it on"
	case jobs.Unattended:
		return fmt.Sprintf("no answer from its launcher on %s, heard last at %s; another host carries it on a --lease after that", clean(r.Machine), r.Silent[r.Machine].Local().Format(time.TimeOnly))
	}
	state := stated(r).State
	for _, host := range slices.Sorted(maps.Keys(r.Silent)) {
		state += fmt.Sprintf(", %s silent since %s", clean(host), r.Silent[host].Local().Format(time.TimeOnly))
	}
	for _, a := range r.Partitions {
		state += fmt.Sprintf(", %s silent to %s since %s", clean(a.Host), clean(a.To), a.Since.Local().Format(time.TimeOnly))
	}
	return state
}

func listJobs(o *jobsFlags) error {
	_, all, err := recorded()
	if err != nil {
		return err
	}
	if o.json {
		list := []jobs.Record{}
		for _, r := range all {
			list = append(list, stated(r))
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
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\n", r.ID, clean(r.Program), r.Started.Local().Format(time.DateTime), r.Ranks, clean(hosts), standOf(r))
	}
	return w.Flush()
}

func top(ctx context.Context, o *jobsFlags) error {
	job, err := findJob(ctx, o, true)
	if err != nil {
		return err
	}
	before, err := job.Job.Ranks(ctx) // asks the daemons
	if err != nil {
		return err
	}
	tty := term.IsTerminal(int(os.Stdout.Fd()))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		ranks, err := job.Job.Ranks(ctx)
		if err != nil {
			if now, gone := findJob(ctx, o, false); gone == nil && now.State != jobs.Running {
				return nil
			}
			return err
		}
		switch {
		case o.json:
			if err := json.NewEncoder(o.out).Encode(ranks); err != nil {
				return err
			}
		case tty && !o.once:
			fmt.Fprint(o.out, "\x1b[H\x1b[J") // to the corner, and clear
			fallthrough
		default:
			showRanks(o.out, job, before, ranks, now.Sub(last))
		}
		if o.once || !tty {
			return nil
		}
		before, last = ranks, now
	}
}

func showRanks(to io.Writer, r found, before, now []jobs.Rank, between time.Duration) {
	fmt.Fprintf(to, "job %s, %s, since %s\n", r.name, clean(r.Program), r.Started.Local().Format(time.DateTime))
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

func logs(ctx context.Context, o *jobsFlags) error {
	job, err := findJob(ctx, o, false)
	if err != nil {
		return err
	}
	lines := -1
	if o.given(&o.lines) {
		if lines = o.lines; lines < 0 {
			return &usageError{fmt.Errorf("--lines %d: must not be negative", lines), ""}
		}
	}
	err = show(ctx, o.out, job, lines, o.follow)
	if ctx.Err() != nil {
		return nil // Ctrl-C is how one leaves
	}
	return err
}

// show copies what a job wrote, until its end if it is to follow.
func show(ctx context.Context, to io.Writer, job found, lines int, follow bool) error {
	from, err := job.output(ctx, lines, follow)
	if err != nil {
		return err
	}
	defer from.Close()
	defer context.AfterFunc(ctx, func() { from.Close() })()
	if _, err := io.Copy(to, from); err != nil {
		return fmt.Errorf("show output: %w", err)
	}
	return nil
}

// attach shows the output from here on. What would stop a launcher at a terminal stops the job.
func attach(told context.Context, o *jobsFlags) error {
	job, err := findJob(told, o, true)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancelCause(context.WithoutCancel(told))
	defer leave(nil)
	var present atomic.Pointer[found] // whom signals are for
	present.Store(new(job))
	// Each kind has a notify of its own: a launcher that does not answer must not keep anybody here.
	defer notify(func(syscall.Signal) { leave(errLeft) }, unix.SIGQUIT)()
	defer notify(func(s syscall.Signal) { leave(signalError{s}) }, endings()...)() // of this command: the job stays
	defer notify(func(s syscall.Signal) {
		to := present.Load()
		if err := to.Signal(ctx, int(s)); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "gorun: note: %s did not reach job %s: %v\ngorun: hint: Ctrl-\\ leaves it\n", unix.SignalName(s), to.name, err)
		}
	}, unix.SIGINT, unix.SIGUSR1, unix.SIGUSR2)()
	if told.Err() != nil { // before it was known which job
		return context.Cause(told)
	}
	fmt.Fprintf(os.Stderr, "gorun: attached to job %s; Ctrl-C stops it, Ctrl-\\ leaves it\n", job.name)
	code, err := job.follow(ctx, o.out, 10)
	for job.next != nil && errors.Is(err, errMoved) {
		next, ok := job.successor(ctx)
		if !ok {
			break
		}
		if next.State == jobs.Ended {
			code, err = next.Code, nil
			show(ctx, o.out, next, map[bool]int{true: -1, false: 0}[next.Term > job.Term], false)
			break
		}
		fmt.Fprintf(os.Stderr, "gorun: job %s goes on by another launcher\n", job.name)
		job = next
		present.Store(&next)
		code, err = job.follow(ctx, o.out, -1)
	}
	var sig signalError
	switch {
	case errors.Is(context.Cause(ctx), errLeft):
		return nil
	case errors.As(context.Cause(ctx), &sig):
		return command.ExitStatus(128 + int(sig.sig))
	case err != nil:
		return err
	case code != 0:
		return command.ExitStatus(code)
	}
	return nil
}

var (
	errLeft  = errors.New("left")
	errMoved = errors.New("the job's launcher is gone")
)

const (
	// lookAgain is how often one who is attached looks for another launcher when this one is gone.
	lookAgain = 2 * time.Second
	// lookAfter is how often one asks after a launcher of which nothing bad is known.
	lookAfter = 5 * time.Second
	// lookAtAll is how often one asks all hosts, whatever that one's host says: a launcher that stands still is there too.
	lookAtAll = time.Minute
)

// follow shows a job's output until its end, and returns its exit status.
func (f found) follow(ctx context.Context, to io.Writer, lines int) (int, error) {
	here, leave := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer leave(nil)
	type end struct {
		code int
		err  error
	}
	ended := make(chan end, 1)
	watching.Go(func() {
		code, err := f.Wait(here) // asked before the end, so that it is told
		ended <- end{code, err}
	})
	if f.next != nil {
		watching.Go(func() {
			if f.succeeded(here) {
				leave(errMoved)
			}
		})
	}
	err := show(here, to, f, lines, true)
	if err != nil && here.Err() == nil && f.next == nil {
		return 0, err
	}
	e := <-ended
	if e.err != nil && f.next != nil && ctx.Err() == nil {
		return 0, errMoved
	}
	return e.code, e.err
}

// succeeded waits until another launcher has taken over from this one, whose host may be without power, and does not say so.
func (f found) succeeded(ctx context.Context) bool {
	for waits := lookAfter; resume.Pause(ctx, lookAfter); waits += lookAfter {
		if waits%lookAtAll != 0 && f.runs(ctx) {
			continue
		}
		// How it ended is for this launcher to say, as long as it may be there.
		if next, ok := f.next(ctx); ok && next.Term > f.Term {
			return true
		}
	}
	return false
}

// successor waits for the launcher that takes over from one that is gone, or for its end.
func (f found) successor(ctx context.Context) (found, bool) {
	limit, cancel := context.WithTimeout(ctx, 3*authority.SuccessionTimeout)
	defer cancel()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		if next, ok := f.next(limit); ok {
			return next, true
		}
		select {
		case <-tick.C:
		case <-limit.Done():
			return found{}, false
		}
	}
}

func stop(ctx context.Context, o *jobsFlags) error {
	job, err := findJob(ctx, o, true)
	if err != nil {
		return err
	}
	if err := job.Signal(ctx, int(unix.SIGTERM)); err != nil {
		return err
	}
	if o.now {
		job.Signal(ctx, int(unix.SIGTERM)) // the second does not wait; or it has ended meanwhile
	}
	if _, err := job.Wait(ctx); err != nil {
		if o.cluster == "" {
			return err
		}
		// It may have ended before it was asked to say when it does, as one that waits does at once.
		if now, _, gone := findClusterJob(ctx, &o.clusterFlags, job.name, false); gone != nil || now.State != jobs.Ended {
			return err
		}
	}
	_, err = fmt.Fprintf(o.out, "gorun: job %s has ended\n", job.name)
	return err
}
