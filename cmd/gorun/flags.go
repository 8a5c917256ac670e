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
	return withSettings(slices.Concat(about("hosts", o.placeTable()), about("binding", o.bindTable()), about("ssh", o.sshTable()), about("ssh", o.launcherTable()),
		about("cluster", o.clusterTable("start the job by the resident daemons of a cluster, one of which is at `HOST[:PORT]`, instead of ssh")),
		about("kubernetes", o.kubernetesTable()),
		about("program", append(o.programTable(), o.shipTable()...)), about("output", o.streamTable()), about("time", o.lifetimeTable()), about("topology", o.ringTable()),
		about("elastic", o.elasticTable()), about("moves", o.silenceTable()), about("network", o.networkTable()), about("job", o.otherTable()),
		about("mpirun", o.mpirunTable()), about("torchrun", o.torchrunTable()), about("horovodrun", slices.Concat(o.horovodTable(), o.knobTable()))))
}

// lifetimeTable binds the flags for limits of time.
func (o *jobFlags) lifetimeTable() []cli.Flag {
	startTimeout := timeFlag("start-timeout", &o.startTimeout, time.Minute, "give up if the ranks do not run after this `TIME`, or their hosts have not found each other in as long again")
	startTimeout.EnvVars = []string{"HOROVOD_START_TIMEOUT"}
	timeout := timeFlag("timeout", &o.timeout, 0, "end the job after this `TIME`, print what each rank waits for, and exit with 124")
	timeout.DefaultText, timeout.EnvVars = "none", []string{"MPIEXEC_TIMEOUT"}
	return []cli.Flag{
		startTimeout,
		timeout,
		timeFlag("grace", &o.Grace, 3*time.Second, "`TIME` between TERM and KILL when ranks are stopped; after Ctrl-C they get INT first, and TERM when two thirds of it have passed"),
	}
}

// networkTable binds the JobOptions about data between hosts.
func (o *jobFlags) networkTable() []cli.Flag {
	algorithms := strings.Join(schedule.AlgorithmNames()[1:], ", ")
	return []cli.Flag{
		&cli.StringFlag{Name: "algorithm", Destination: &o.Algorithm, Value: "auto", EnvVars: []string{"GORUN_ALGORITHM"},
			Usage: "algorithm of every allreduce between hosts, by `NAME`: auto (what costs least), " + algorithms},
		&cli.StringFlag{Name: "wire-compression", Destination: &o.Coding, EnvVars: []string{"GORUN_WIRE_COMPRESSION"},
			Usage: "how sums and averages of float32 and float64 travel between hosts, `NAME`: none, fp16, bf16, int8", DefaultText: "none"},
		&cli.BoolFlag{Name: "encrypt", Destination: &o.Encrypt, EnvVars: []string{"GORUN_ENCRYPT"},
			Usage: "encrypt what hosts send each other, over RDMA too; they authenticate each other in any case"},
		&cli.BoolFlag{Name: "checksum", Destination: &o.Checksum, Value: true, EnvVars: []string{"GORUN_CHECKSUM"},
			Usage: "authenticate large tensors of numbers too, as all else always is: what was damaged, or changed by others on the path, is sent again"},
		&cli.StringFlag{Name: "rdma", Destination: &o.RDMA, Value: "off", EnvVars: []string{"GORUN_RDMA"},
			Usage: "`WHERE` data goes over RDMA instead of TCP: off, auto (where both hosts can), on (the same, and report why not), or names of devices with commas"},
		&cli.StringFlag{Name: "rdma-options", Destination: &o.RDMATune, EnvVars: []string{"GORUN_RDMA_OPTIONS"},
			Usage: "`KEY=VALUE,…` for queue pairs: gid, roce, mtu, class, hops, timeout, retries, rnr, rest (time on TCP after failures)"},
		&cli.StringFlag{Name: "rdma-library", Destination: &o.Verbs, Category: "network", Hidden: true,
			Usage: "`FILE` on hosts in place of libibverbs.so.1", DefaultText: "the system's"},
		&cli.IntFlag{Name: "streams", Destination: &o.Streams, Value: 4,
			Usage: "`N` TCP connections between two hosts", DefaultText: "4, or more with several --network-interfaces", Category: "network", Hidden: true},
	}
}

// otherTable binds the flags of no other group.
func (o *jobFlags) otherTable() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Destination: &o.dryRun,
			Usage: "show which rank would run where, with what environment and command, and start nothing"},
		&cli.BoolFlag{Name: "detach", Destination: &o.detach,
			Usage: "return when the ranks run; gorun logs and attach show their output"},
		&cli.StringFlag{Name: "metrics", Destination: &o.metrics, EnvVars: []string{"GORUN_METRICS"},
			Usage: "serve the job's metrics for Prometheus at `[HOST]:PORT`, on this machine alone without HOST, until it ends"},
		&cli.StringFlag{Name: "web", Destination: &o.web, EnvVars: []string{"GORUN_WEB"},
			Usage: "serve a page that shows the job at `[HOST]:PORT`, on this machine alone without HOST, until it ends"},
		&cli.BoolFlag{Name: "verbose", Destination: &o.Verbose, Aliases: []string{"v"},
			Usage: "show what happens: hosts, their NICs, the ring, warnings of daemons"},
		&cli.BoolFlag{Name: "version", Destination: &o.version, Aliases: []string{"V"}, Usage: "print the version"},
	}
}
