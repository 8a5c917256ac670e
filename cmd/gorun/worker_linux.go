package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gorun/worker"
	"gorun/worker/proc"
)

// workerCommand is the daemon. It is two processes: this command first becomes the guardian, which runs
// itself again as the daemon and cleans up behind it, however it ends.
func workerCommand(hurry <-chan struct{}) *cli.Command {
	return &cli.Command{
		Name:  "worker",
		Usage: "serve one job on this host, for the launcher that started it; with --cluster-key-file serve those who hold the key",
		Flags: append(serveFlags(), &cli.BoolFlag{Name: "daemon", Usage: "be the daemon under a guardian", Hidden: true}),
		Action: func(c *cli.Context) error {
			switch {
			case c.Args().Present():
				return &usageError{errors.New("worker takes no arguments"), "to run a program of that name: gorun -np N worker …"}
			case c.Bool("daemon"):
				return daemon(c.Context)
			case c.IsSet("cluster-key-file"):
				return serveCluster(c, hurry)
			case term.IsTerminal(int(os.Stdin.Fd())):
				return &usageError{errors.New("a worker is started by gorun, which speaks with it on standard input"), "gorun -H host1,host2 program, or gorun worker --cluster-key-file FILE for a daemon that stays"}
			}
			return guardian()
		},
	}
}

// guardian runs the daemon. It does not share the launcher's handling of signals: who is stopped when is
// for the launcher to say.
func guardian() error {
	// The very same file, even if its name has gone to a newer build by now.
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"gorun", "worker", "--daemon"}, Env: os.Environ()}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	code, err := proc.Guard(context.Background(), cmd)
	if err != nil {
		return fmt.Errorf("guard daemon: %w", err)
	}
	if code > 128 {
		fmt.Fprintf(os.Stderr, "the daemon was killed by signal %d\n", code-128)
	}
	return exitStatus(code)
}

func daemon(ctx context.Context) error {
	ctx, release, err := proc.Lifeline(ctx)
	if err != nil {
		return fmt.Errorf("hold lifeline: %w", err)
	}
	defer release()
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	return worker.Run(ctx, worker.Config{In: os.Stdin, Out: os.Stdout, Version: version, Exe: exe, Env: os.Environ()})
}
