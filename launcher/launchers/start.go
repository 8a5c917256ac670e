package launchers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gorun/launcher/failure"
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// maxOutput bounds the output of a launcher that failed, which its user reads in place of the job's.
const maxOutput = 1 << 20

// Start starts a launcher that stays when this process ends.
//
// If the launcher fails before its ranks run, it has ended when Start returns, and nothing is left of the job, unless
// the launcher was a successor. Otherwise the caller must wait for cmd.
func Start(ctx context.Context, store jobs.Store, cmd *exec.Cmd, r jobs.Record) (*wire.Detached, error) {
	machine, _ := os.Hostname() // for people to read
	r.Machine, r.Started = machine, time.Now()
	job, lock, err := store.Create(r)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	out, err := os.OpenFile(job.Output(), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make output file: %w", err)
	}
	defer out.Close()
	ready, err := startIn(job, cmd, out, lock)
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(unix.SIGTERM) })
	defer stop()
	text, err := bufio.NewReader(ready).ReadString('\n')
	if err == nil && stop() {
		id, err := strconv.Atoi(filepath.Base(job.Dir))
		return &wire.Detached{Job: id, Text: strings.TrimSpace(text)}, err
	}
	failed := endOf(cmd.Wait(), out)
	if r.Name == "" {
		os.RemoveAll(job.Dir)
	}
	return failed, nil
}

// startIn starts a launcher in the directory of its job, and returns where it reports that the job runs.
func startIn(job jobs.Job, cmd *exec.Cmd, out, lock *os.File) (ready *os.File, err error) {
	ready, reports, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	cmd.Env = append(cmd.Env, Variable+"="+job.Dir)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{reports, lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	reports.Close()
	lock.Close()
	if err != nil {
		ready.Close()
		os.RemoveAll(job.Dir)
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	return ready, nil
}

// endOf describes the end of a launcher, with what it wrote.
func endOf(err error, out *os.File) *wire.Detached {
	d := &wire.Detached{Code: failure.ExitFailure}
	if _, err := out.Seek(0, io.SeekStart); err == nil {
		d.Output, _ = io.ReadAll(io.LimitReader(out, maxOutput))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if d.Code = exit.ExitCode(); d.Code < 0 {
			d.Code, d.Signal = failure.ExitFailure, int(exit.Sys().(syscall.WaitStatus).Signal())
		}
	}
	return d
}
