package main

import (
	"errors"

	"github.com/urfave/cli/v2"
)

// workerCommand is the daemon that outlives jobs. That of a job is started by command lines of its own, which package command knows.
func workerCommand(hurry <-chan struct{}) *cli.Command {
	return &cli.Command{
		Name:  "worker",
		Usage: "serve one job on this host, for the launcher that started it; with --cluster-key-file serve those who hold the key",
		Flags: serveFlags(),
		Action: func(c *cli.Context) error {
			switch {
			case c.Args().Present():
				return &usageError{errors.New("worker takes no arguments"), "to run a program of that name: gorun -np N worker …"}
			case c.IsSet("cluster-key-file"):
				return serveCluster(c, hurry)
			}
			return &usageError{errors.New("a worker is started by gorun, which speaks with it on standard input"), "gorun -H host1,host2 program, or gorun worker --cluster-key-file FILE for a daemon that stays"}
		},
	}
}
