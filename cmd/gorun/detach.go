package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"gorun/launcher/failure"
	"gorun/launcher/jobs"
	"gorun/launcher/launchers"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/launcher/ship"
	"gorun/launcher/talk"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
	"gorun/worker/command"
)

// detach runs this very command again, without a terminal and in a session of its own, and returns when the job runs or
// waits for its turn.
func detach(ctx context.Context, o *jobFlags, programs []program, notes []string) error {
	if o.cluster != "" {
		return detachTo(ctx, o, programs, notes)
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	store, err := jobStore()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Args[0] = os.Args[0] // it may be called horovodrun
	cmd.Env = os.Environ()
	d, err := launchers.Start(ctx, store, cmd, jobs.Record{Program: programName(programs)})
	if err != nil {
		return err
	}
	defer cmd.Process.Release()
	return reportDetached(o.out, d, strconv.Itoa(d.Job))
}

// detachTo has a daemon of the cluster run this very command.
func detachTo(ctx context.Context, o *jobFlags, programs []program, notes []string) error {
	client, addr, err := clusterOf(ctx, &o.clusterFlags)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find working directory: %w", err)
	}
	r := wire.Detach{Program: programName(programs), Args: os.Args, Env: o.envElsewhere(os.Environ()), Dir: dir}
	d, err := o.detachWith(ctx, client, addr, r, programs, notes)
	if err != nil {
		return err
	}
	return reportDetached(o.out, d, fmt.Sprintf("%s/%d", d.Host, d.Job))
}

// envElsewhere returns what a launcher elsewhere gets of this environment.
func (o *jobFlags) envElsewhere(environ []string) []string {
	env := plan.UserEnv(environ, true)
	var ofFlags []string
	if o.envNone { // but what stands for flags
		env = nil
		for _, f := range new(jobFlags).table() {
			if info, ok := f.(cli.DocGenerationFlag); ok {
				ofFlags = append(ofFlags, info.GetEnvVars()...)
			}
		}
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if (plan.Own(name) || slices.Contains(ofFlags, name)) && !strings.HasPrefix(kv, "GORUN_CLUSTER") {
			env = append(env, kv)
		}
	}
	return env
}

// detachWith has a daemon run a launcher, and gives it the program and the environment that the job brings, since this machine may be
// gone when a host joins.
func (o *jobFlags) detachWith(ctx context.Context, client standing.Client, addr string, r wire.Detach, programs []program, notes []string) (d *wire.Detached, err error) {
	note := func(format string, args ...any) {
		fmt.Fprintln(os.Stderr, output.Printable(fmt.Sprintf(format, args...)))
	}
	tree, packages, more, err := o.brought(ctx, programs)
	if err != nil {
		return nil, err
	}
	for _, line := range slices.Concat(notes, more) {
		note("%s", line)
	}
	pythons, ctx, finish, err := o.makePackages(ctx, packages, 1, note)
	if err != nil {
		return nil, err
	}
	defer func() { err = finish(err) }()
	var files talk.Files
	if r.Tree = tree; tree != nil {
		files = ship.New(tree)
		if real, err := filepath.EvalSymlinks(r.Dir); err == nil {
			r.Dir = real
		}
	}
	if packages != nil {
		r.Python = programs[0].Argv[0]
	}
	for _, p := range programs {
		r.Programs = append(r.Programs, wire.SentProgram{Argv: p.Argv, Env: p.Env, Dir: p.Dir})
	}
	d, err = client.Detach(ctx, addr, r, func(in *wire.Reader, out *wire.Writer) (wire.Message, error) {
		return talk.Give(ctx, addr, files, pythons, note, in, out)
	})
	if err != nil {
		err = explainCluster(addr, err)
	}
	return d, err
}

// reportDetached prints the name of a job that runs, or returns the error of one that failed to start.
func reportDetached(w io.Writer, d *wire.Detached, id string) error {
	if d.Code != 0 { // as if it had not been detached
		os.Stderr.Write(d.Output)
		if d.Signal != 0 { // it had no time for an error message
			return killedAtStart(d)
		}
		return command.ExitStatus(d.Code)
	}
	id = jobs.Clean(id)
	fmt.Fprintf(os.Stderr, "gorun: job %s %s; gorun logs %s shows its output, gorun stop %s ends it\n", id, jobs.Clean(d.Text), id, id)
	_, err := fmt.Fprintln(w, id)
	return err
}

// killedAtStart returns the error of a launcher that was killed before its ranks ran. No other host continues its job.
func killedAtStart(d *wire.Detached) error {
	host, hint := d.Host, "if memory ran out there, dmesg says so"
	if host == "" {
		host, _ = os.Hostname()
	} else {
		hint += "; hosts of an elastic job keep its slots a minute longer than its --lease (auto: three minutes), which gorun ps shows"
	}
	return &failure.HostError{
		Host: host, Step: "start job", Hint: hint, Code: d.Code,
		Err: fmt.Errorf("the launcher was killed by %s before its ranks ran", unix.SignalName(syscall.Signal(d.Signal))),
	}
}

type detachedKey struct{}

// detachedOf returns what this process has in place of a terminal, nil if it is no detached launcher.
func detachedOf(ctx context.Context) *launchers.Launcher {
	d, _ := ctx.Value(detachedKey{}).(*launchers.Launcher)
	return d
}

// openDetached returns what launchers.Start has prepared for this process, nil if it has not.
func openDetached() (*launchers.Launcher, error) {
	dir := os.Getenv(launchers.Variable)
	if dir == "" {
		return nil, nil
	}
	hosted := os.Getenv(launchers.HostedVariable) != ""
	os.Unsetenv(launchers.Variable) // it is not for the programs that this one starts
	os.Unsetenv(launchers.HostedVariable)
	if hosted { // it gets the cluster's key
		if err := hide(); err != nil {
			return nil, err
		}
	}
	return launchers.Open(dir, os.Exit)
}

// stateDir is command.StateDir with a hint for the user if it fails.
func stateDir() (string, error) {
	dir, err := command.StateDir(os.Getenv)
	if err != nil {
		return "", &usageError{err, "set HOME, or XDG_STATE_HOME to where jobs are to be kept"}
	}
	return dir, nil
}

// jobStore returns the user's jobs.
func jobStore() (jobs.Store, error) {
	dir, err := stateDir()
	return launchers.JobsIn(dir), err
}
