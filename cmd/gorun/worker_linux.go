package main

import (
	"errors"

	"github.com/urfave/cli/v2"
)

// workerCommand is the resident daemon. The daemon of a single job is started by command lines of its own, which
// package command reads.
func workerCommand(hurry <-chan struct{}) *cli.Command {
	o := new(serveFlags)
	return &cli.Command{
		Name:  "worker",
		Usage: "serve one job on this host, for the launcher that started it; with --cluster-key-file serve those who hold the key",
		Flags: o.table(),
		Action: func(c *cli.Context) error {
			o.read(c)
			switch {
			case len(o.args) > 0:
				return &usageError{errors.New("worker takes no arguments"), "to run a program of that name: gorun -np N worker …"}
			case o.given(&o.keyFile):
				return serveCluster(c.Context, o, hurry)
			}
			return &usageError{errors.New("a worker is started by gorun, which speaks with it on standard input"), "gorun -H host1,host2 program, or gorun worker --cluster-key-file FILE for a daemon that stays"}
		},
	}
}
