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
		Name:      "worker",
		Usage:     "run this host's resident daemon, which serves a cluster",
		UsageText: "gorun worker --cluster-key-file FILE [--join HOST[:PORT]] [--slots N]",
		Description: "The daemons that hold the same key form a cluster. They start jobs without ssh, one after the other where slots are short. " +
			"The key is at least 32 random bytes in base64 or hexadecimal digits:\n  (umask 077; head -c 32 /dev/urandom | base64 >FILE)\n" +
			"gorun starts the daemons of a single job by itself.",
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
