package main

import (
	"context"
	"os"
	"strconv"
	"sync"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/discover"
)

// silenceTable binds the flags about hosts that are silent or move.
func (o *jobFlags) silenceTable() []cli.Flag {
	return []cli.Flag{
		&cli.GenericFlag{Name: "lease", Value: (*lease)(&o.Lease),
			Usage: "give up a host that is silent for this `TIME`; auto is 30 s, or 120 s with vGPUs and for a VM that announced its move"},
		&cli.PathFlag{Name: "vmtoolsd", Destination: &o.VMTools,
			Usage: "ask this `PROGRAM` whether the VM is about to be moved", DefaultText: "vmtoolsd in VMware VMs"},
		&cli.StringFlag{Name: "moves", Destination: &o.moves,
			Usage: "run `COMMAND`, whose lines announce moves of hosts: HOST starts|ends|leaves|returns TEXT (gorun-vsphere moves does)"},
	}
}

// watchMoves runs the command of --moves beside a job and returns its announcements, nil without such a command. The
// second result ends it.
func watchMoves(ctx context.Context, o *jobFlags, note func(format string, args ...any)) (<-chan launcher.Move, func()) {
	if !o.given(&o.moves) {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	moves := make(chan launcher.Move)
	var watching sync.WaitGroup
	watching.Go(func() {
		discover.Moves{Command: o.moves, Env: os.Environ()}.Watch(ctx, func(m discover.Move) {
			select {
			case moves <- launcher.Move(m):
			case <-ctx.Done():
			}
		}, note)
	})
	return moves, func() { cancel(); watching.Wait() }
}

// timeScale is the variable in which tests set Timing.Scaled's factor for a whole job, its daemons included.
const timeScale = "GORUN_TIME_SCALE"

// blind is the variable that switches counting and recording in a job off, to measure what they cost.
const blind = "GORUN_BLIND"

// timeScaleOf returns the factor, 0 for none.
func timeScaleOf(value string) float64 {
	factor, err := strconv.ParseFloat(value, 64)
	if err != nil || factor < 0.01 || factor > 100 {
		return 0
	}
	return factor
}
