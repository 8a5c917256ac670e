package main

import (
	"context"
	"os"

	"gorun/launcher/jobs"
	"gorun/launcher/launchers"
	"gorun/worker/command"
)

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
