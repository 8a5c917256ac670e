package main

import (
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/collective/schedule"
)

// table returns the flags, bound to their fields.
func (o *jobFlags) table() []cli.Flag {
	return slices.Concat(o.placeTable(), o.bindTable(), o.connectTable(), o.programTable(), o.streamTable(), o.lifetimeTable(), o.ringTable(),
		o.elasticTable(), o.silenceTable(), o.otherTable(), o.mpirunTable(), o.torchrunTable(), o.horovodTable(), o.knobTable())
}

// lifetimeTable binds the fields of lifetimeFlags.
func (o *jobFlags) lifetimeTable() []cli.Flag {
	startTimeout := timeFlag("start-timeout", &o.startTimeout, time.Minute, "give up if the ranks do not run after this `TIME`, or their hosts have not found each other that long after: 30 (seconds), 1m30s")
	startTimeout.EnvVars = []string{"HOROVOD_START_TIMEOUT"}
	timeout := timeFlag("timeout", &o.timeout, 0, "end the job after this `TIME`, say what each rank waits for, and exit with 124")
	timeout.DefaultText, timeout.EnvVars = "none", []string{"MPIEXEC_TIMEOUT"}
	return []cli.Flag{
		startTimeout,
		timeout,
		timeFlag("grace", &o.Grace, 3*time.Second, "`TIME` between TERM and KILL when ranks are stopped; after Ctrl-C they get INT first, and TERM when two thirds of it have passed"),
	}
}

// otherTable binds the fields of otherFlags.
func (o *jobFlags) otherTable() []cli.Flag {
	algorithms := strings.Join(schedule.AlgorithmNames()[1:], ", ")
	return []cli.Flag{
		&cli.StringFlag{Name: "algorithm", Destination: &o.Algorithm, Value: "auto", EnvVars: []string{"GORUN_ALGORITHM"},
			Usage: "of every allreduce between hosts, `NAME`: auto (what costs least), " + algorithms},
		&cli.StringFlag{Name: "wire-compression", Destination: &o.Coding, EnvVars: []string{"GORUN_WIRE_COMPRESSION"}, Usage: "how sums and averages of float32 and float64 travel between hosts, `NAME`: none, fp16, bf16, int8", DefaultText: "none"},
		&cli.BoolFlag{Name: "encrypt", Destination: &o.Encrypt, EnvVars: []string{"GORUN_ENCRYPT"}, Usage: "encrypt what hosts send each other (TLS 1.3); that it comes from the job is made sure in any case"},
		&cli.BoolFlag{Name: "checksum", Destination: &o.Checksum, EnvVars: []string{"GORUN_CHECKSUM"}, Usage: "find damage that TCP does not see in large tensors too, on the way from host to host, and send them again; --encrypt does so as well"},
		&cli.IntFlag{Name: "streams", Destination: &o.Streams, Value: 4, Usage: "TCP connections between two hosts", DefaultText: "4, or more with several --network-interfaces", Hidden: true},
		&cli.BoolFlag{Name: "dry-run", Destination: &o.dryRun, Usage: "show which rank would run where, with what environment and command, and start nothing"},
		&cli.BoolFlag{Name: "detach", Destination: &o.detach, Usage: "return when the ranks run; gorun ps, logs, attach, top and stop are for such jobs"},
		&cli.BoolFlag{Name: "verbose", Destination: &o.Verbose, Aliases: []string{"v"}, Usage: "tell what happens: hosts, their NICs, the ring, what daemons warn of"},
		&cli.BoolFlag{Name: "version", Destination: &o.version, Usage: "print the version"},
	}
}
