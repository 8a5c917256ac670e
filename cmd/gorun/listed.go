package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"gorun/launcher/jobs"
	"gorun/launcher/launchers"
	"gorun/launcher/output"
	"gorun/worker/command"
)

// listJob lists a job, so that ps, top and stop find it. The caller calls end with the error that ended the job.
func listJob(ctx context.Context, programs []program) (listed *launchers.Registration, end func(error)) {
	if d := detachedOf(ctx); d != nil { // it ends with the process
		listed = d.Registration()
		release := listed.StoppingAfter(ctx, stoppedBy)
		return listed, func(error) { release() }
	}
	dir, err := command.StateDir(os.Getenv)
	if err != nil {
		return nil, func(error) {} // without a state directory no job is listed
	}
	listed = launchers.Begin(launchers.JobsIn(dir), jobs.Record{Program: programName(programs)})
	release := listed.StoppingAfter(ctx, stoppedBy)
	return listed, func(err error) {
		release()
		listed.End(explain(io.Discard, err), endText(err))
	}
}

// stoppedBy describes in a list of jobs what ended a launcher.
func stoppedBy(cause error) string {
	sig, ok := errors.AsType[signalError](cause)
	switch {
	case ok && sig.sig == syscall.SIGINT:
		return "Ctrl-C"
	case ok && sig.sig == syscall.SIGHUP:
		return "the end of its terminal (SIGHUP)"
	}
	return strings.TrimPrefix(fmt.Sprint(cause), "stopped by ") // as lists put that before it
}

// endText describes in a list of jobs the error with which one ended, "" for none.
func endText(err error) string {
	if known, ok := errors.AsType[explained](err); ok {
		err = known
	}
	if _, ok := errors.AsType[command.ExitStatus](err); err == nil || ok {
		return ""
	}
	return output.Printable(err.Error())
}

// stopper names this user in a list of jobs, as the one who stopped one.
func stopper() string {
	host, _ := os.Hostname() // for people to read
	return userName() + "@" + host
}

// noOutput is the error of a command that would show the output of a job, if gorun does not keep it.
func noOutput(job jobs.Target) error {
	if !job.Foreground || job.Dir != "" && isFile(job.Output()) { // a job that failed has left the end of its output
		return nil
	}
	hint := "gorun --detach keeps the output for gorun logs, --output-filename DIR a copy of each rank's"
	if info, err := os.Stat(job.OutputTo); err == nil && info.Mode().IsRegular() {
		hint = "tail -f " + job.OutputTo
	}
	to := cmp.Or(job.OutputTo, "its user")
	return &usageError{fmt.Errorf("job %s is in the foreground: its output goes to %s, and gorun keeps no copy", job.Label, to), hint}
}
