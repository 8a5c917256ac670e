// Command gorund is the program that gorun copies to the hosts of a job over SSH: the daemon and the other commands
// that the launcher runs on a host, without the launcher itself. make embeds it in gorun, so users do not install or
// start it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"gorun/worker/command"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := context.WithCancelCause(context.Background())
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() { stop(fmt.Errorf("stopped by %s", unix.SignalName((<-c).(syscall.Signal)))) }()

	serve := command.Process{Version: version, Env: os.Environ()}.Parse(os.Args[1:])
	if serve == nil {
		fmt.Fprint(os.Stderr, "gorun: error: this is only what hosts need of gorun to take part in a job\n"+
			"gorun: hint: start jobs where gorun is installed\n")
		os.Exit(2)
	}
	os.Exit(explain(serve(ctx)))
}

// explain prints an error as gorun does, and returns the exit code.
func explain(err error) int {
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[command.ExitStatus](err); ok {
		return int(status)
	}
	fmt.Fprintln(os.Stderr, "gorun: error:", err)
	return 1
}
