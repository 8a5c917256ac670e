package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
	"gorun/launcher"
	"gorun/launcher/hosts"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// launchFlags are the flags of a job, a table for each concern.
func launchFlags() []cli.Flag {
	return slices.Concat(placeFlags(), bindFlags(), connectFlags(), programFlags(), streamFlags(), lifetimeFlags(), ringFlags(), elasticFlags(), silenceFlags(), otherFlags(), mpirunFlags(), torchrunFlags(), horovodFlags(), knobFlags())
}

// lifetimeFlags say how long things may take.
func lifetimeFlags() []cli.Flag {
	startTimeout := timeFlag("start-timeout", time.Minute, "give up if the ranks do not run after this `TIME`, or their hosts have not found each other that long after: 30 (seconds), 1m30s")
	startTimeout.EnvVars = []string{"HOROVOD_START_TIMEOUT"}
	timeout := timeFlag("timeout", 0, "end the job after this `TIME`, say what each rank waits for, and exit with 124")
	timeout.DefaultText, timeout.EnvVars = "none", []string{"MPIEXEC_TIMEOUT"}
	return []cli.Flag{
		startTimeout,
		timeout,
		timeFlag("grace", 3*time.Second, "`TIME` between TERM and KILL when ranks are stopped; after Ctrl-C they get INT first, and TERM when two thirds of it have passed"),
	}
}

// otherFlags belong to no concern.
func otherFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "algorithm", Value: "auto", EnvVars: []string{"GORUN_ALGORITHM"}, Usage: "of every allreduce between hosts, `NAME`: auto (what costs least), ring, direct, recursive-doubling, rabenseifner, tree"},
		&cli.StringFlag{Name: "wire-compression", EnvVars: []string{"GORUN_WIRE_COMPRESSION"}, Usage: "how sums and averages of float32 and float64 travel between hosts, `NAME`: none, fp16, bf16, int8", DefaultText: "none"},
		&cli.BoolFlag{Name: "encrypt", EnvVars: []string{"GORUN_ENCRYPT"}, Usage: "encrypt what hosts send each other (TLS 1.3); that it comes from the job is made sure in any case"},
		&cli.BoolFlag{Name: "checksum", EnvVars: []string{"GORUN_CHECKSUM"}, Usage: "find damage that TCP does not see in large tensors too, on the way from host to host, and send them again; --encrypt does so as well"},
		&cli.IntFlag{Name: "streams", Value: 4, Usage: "TCP connections between two hosts", DefaultText: "4, or more with several --network-interfaces", Hidden: true},
		&cli.BoolFlag{Name: "dry-run", Usage: "show which rank would run where, with what environment and command, and start nothing"},
		&cli.BoolFlag{Name: "detach", Usage: "return when the ranks run; gorun ps, logs, attach, top and stop are for such jobs"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell what happens: hosts, their NICs, the ring, what daemons warn of"},
		&cli.BoolFlag{Name: "version", Usage: "print the version"},
	}
}

// launch is the main job: gorun -np 4 -H host1:2,host2:2 python train.py
func launch(c *cli.Context, hurry <-chan struct{}) error {
	if c.Bool("version") {
		return printVersion(c)
	}
	if c.Bool("check-build") {
		return checkBuild(c)
	}
	argv := c.Args().Slice()
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	programs, notes, err := readPrograms(c, argv)
	if err != nil {
		return err
	}
	if c.Bool("detach") && detachedOf(c.Context) == nil && !c.Bool("dry-run") {
		if err := checkFlags(c); err != nil {
			return err
		}
		return detach(c, programs)
	}
	return runJob(c, hurry, programs, notes)
}

// wishes is what the flags of a job say, beside which programs run where.
type wishes struct {
	changing *elasticPlan // nil if the world stays as it is
	settings settings
	wrapper  []string
	ring     ringPlan
	gpus     []string
	bind     topology.Bind
}

func readWishes(c *cli.Context) (w wishes, err error) {
	if err := checkFlags(c); err != nil {
		return w, err
	}
	if w.changing, err = readElastic(c); err != nil {
		return w, err
	}
	if err := detachedOf(c.Context).mayGoOn(w.changing != nil); err != nil {
		return w, err
	}
	if w.settings, err = readSettings(c); err != nil {
		return w, err
	}
	if w.wrapper, err = readWrapper(c); err != nil {
		return w, err
	}
	if w.ring, err = readRing(c); err != nil {
		return w, err
	}
	if w.ring.by == topology.ByMeasured && c.IsSet("ring-order") && w.ring.file == "" && (w.changing != nil || c.IsSet("cluster")) {
		return w, &usageError{errors.New("--ring-order measured: only a job that starts its hosts by ssh, and keeps them, measures by itself"), "gorun topo -H host1,host2 --measure --save FILE, then --topology FILE"}
	}
	if w.gpus, err = gpusOf(c); err != nil {
		return w, err
	}
	w.bind, err = readBind(c)
	return w, err
}

// spec is the job as far as flags say what it is; how it is started and watched is for runJob to add.
func (w wishes) spec(c *cli.Context, placement plan.Placement, programs []program) launcher.Spec {
	env := w.settings.env
	if !c.Bool("env-none") {
		env = append(os.Environ(), env...)
	}
	var running []launcher.Program
	for _, p := range programs {
		running = append(running, p.Program)
	}
	return launcher.Spec{
		JobOptions: wire.JobOptions{
			Wrapper:        w.wrapper,
			GPUs:           w.gpus,
			TF:             c.Bool("tf-config"),
			Shim:           !c.Bool("no-horovod-shim"),
			Verbose:        c.Bool("verbose"),
			Streams:        streamsOf(c),
			RingOrder:      c.String("ring-order"),
			Bind:           w.bind,
			ReportBindings: c.Bool("report-bindings") || readBindingArgs(c).report,
			Algorithm:      c.String("algorithm"),
			Encrypt:        c.Bool("encrypt"),
			Checksum:       c.Bool("checksum"),
			Coding:         c.String("wire-compression"),
			NICs:           nicsOf(c),
			PMIPort:        c.Bool("pmi-port"),
			IfAlone:        ifAlone(c),
			Lease:          leaseOf(c),
			TimeScale:      timeScaleOf(os.Getenv(timeScale)),
			VMTools:        c.Path("vmtoolsd"),
			Grace:          timeOf(c, "grace"),
		},
		Placement:    placement,
		Programs:     running,
		Env:          env,
		Version:      version,
		StartTimeout: startTimeout(c),
		Timeout:      timeOf(c, "timeout"),
	}
}

// notes are the lines that tell users which of their wishes mean nothing here.
func (w wishes) notes(c *cli.Context, programs []program) (notes []string) {
	s := w.settings
	s.idle = slices.Concat(s.idle, w.changing.idle(c), idleMPI(c), idleTorchrun(c), idleSSH(c))
	if idle := readBindingArgs(c).idle; len(idle) > 0 {
		s.idle = append(s.idle, fmt.Sprintf("--binding-args %s (%s)", strings.Join(idle, " "), noMPI))
	}
	if set, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok && len(w.gpus) > 0 && !c.Bool("env-none") {
		notes = append(notes, fmt.Sprintf("gorun: --gpus chooses nothing for ranks on this machine: CUDA_VISIBLE_DEVICES=%s is set already", set))
	}
	if policy, err := policyOf(c); err == nil { // what is wrong with it was said
		if note := mapNote(policy, w.bind); note != "" {
			notes = append(notes, note)
		}
		if policy.RankWithin != "" {
			s.idle = append(s.idle, fmt.Sprintf("--rank-by %s (within a host ranks are numbered as they are dealt)", policy.RankWithin))
		}
	}
	if note := s.note(); note != "" {
		notes = append(notes, note)
	}
	notes = append(notes, errorFile(os.Environ(), programs)...)
	return append(notes, strayMPI(programs)...)
}

// runJob starts programs on the hosts that the flags name, and returns when all of it has ended.
func runJob(c *cli.Context, hurry <-chan struct{}, programs []program, notes []string) error {
	w, err := readWishes(c)
	if err != nil {
		return err
	}
	var where room
	var mux *output.Mux
	var varying *launcher.ElasticSpec
	var watch func(context.Context) error
	switch {
	case w.changing == nil:
		// Last, since it may wait until other jobs have ended.
		where, err = placeJob(c, cmp.Or(ranksOf(programs), c.Int("np")), programs)
	case len(programs) > 1:
		err = &usageError{errors.New("an elastic job has one program"), "leave --min-np and what else makes it elastic out, or start a job for each program"}
	case c.IsSet("cluster"):
		where, varying, watch, err = w.changing.onCluster(c, programs)
	default:
		varying, watch, err = w.changing.spec(c, func(format string, args ...any) { mux.Note(format, args...) })
	}
	if err != nil {
		return err
	}
	defer where.release()
	placement := where.placement
	dry := c.Bool("dry-run")
	if dry && varying != nil {
		if placement, err = w.changing.first(c.Context, varying); err != nil {
			return err
		}
	}
	if len(programs) == 1 { // it may not have said
		programs[0].Ranks = len(placement.Ranks)
	}
	spec := w.spec(c, placement, programs)
	if dry {
		return dryRun(c, spec, varying != nil, append(notes, w.notes(c, programs)...))
	}
	readers, err := readersOf(c, len(placement.Ranks), varying != nil)
	if err != nil {
		return err
	}
	dial, err := where.dialer(c)
	if err != nil {
		return err
	}
	seats := &places{host: map[int]string{}}
	if mux, err = newMux(c, placement, seats, varying != nil); err != nil {
		return err
	}
	spec.Dial = dial
	if d, ok := dial.(*dialer); ok {
		d.speakThrough(mux)
		spec.Relay = d.remote
	}
	if varying != nil {
		varying.Admit = seats.admit(mux)
		spec.Elastic = varying
	} else {
		announce(mux, placement)
		if c.Bool("display-map") {
			notes = append(notes, mapOf(placement)...)
		}
	}
	var names []string
	for _, h := range placement.Hosts {
		names = append(names, h.Name)
	}
	if where.from != "" && spec.Verbose {
		notes = append(notes, fmt.Sprintf("gorun: %s from %s", topology.Count(len(names), "host"), where.from))
	}
	for _, note := range slices.Concat(notes, w.notes(c, programs), w.ring.notes(names, spec.Verbose)) {
		mux.Note("%s", note)
	}
	if err := w.ring.measure(c, names); err != nil {
		return err
	}
	spec.Topology = w.ring.text
	// In the background of a terminal, reading is an error (and rank 0 sees the end of its input) instead
	// of a reason to stop the launcher.
	signal.Ignore(syscall.SIGTTIN)
	signals := make(chan int, 8)
	defer forwardSignals(signals)()

	spec.Signals, spec.Hurry = signals, hurry
	spec.Stdin, spec.Readers = input(c), readers
	showOn(mux, &spec)
	var unsaved error
	if file := c.Path("save-topology"); file != "" || c.Bool("json") { // others do not wait for measurements
		spec.Measured = func(hosts []topology.Host, edges []topology.Edge) {
			tellEdges(mux, hosts, edges)
			unsaved = saveTopology(file, hosts, edges)
		}
	}
	if err := detachedOf(c.Context).attach(&spec, placement); err != nil {
		return err
	}
	if where.lease != nil {
		client, _, err := clusterOf(c)
		if err == nil {
			err = detachedOf(c.Context).keep(c.Context, client, &spec, where.lease, placement)
		}
		if err != nil {
			return err
		}
	}
	moves, unwatch := watchMoves(c, mux.Note)
	spec.Moves = moves
	corrections, unread := watchFacts(c.Context, w.ring, names, mux.Note)
	spec.Facts = corrections
	told := tellSlowStop(c.Context, spec.Grace, mux.Note)
	err = runRestarting(c, spec, watch, mux.Note)
	if lesser, ok := errors.AsType[*launcher.MinorityError](err); ok {
		err = errors.Join(err, detachedOf(c.Context).deserted(lesser))
	}
	told()
	unwatch()
	unread()
	for rank := range placement.Ranks {
		mux.Close(rank)
	}
	conclude(mux, err)
	return errors.Join(err, showRest(c.Context, mux, hurry), unsaved)
}

// showOn has a job show what it does.
func showOn(mux *output.Mux, spec *launcher.Spec) {
	spec.Output, spec.Note = ranksOutput{mux}, mux.Note
	spec.Progress = func(p launcher.Progress) { mux.Status(output.Start(p).String()) }
	spec.Watch, spec.WatchHosts = watchRanks(mux), watchHosts(mux)
}

// showRest shows what ranks wrote in full, unless the user no longer wants to wait for it.
func showRest(ctx context.Context, mux *output.Mux, hurry <-chan struct{}) error {
	finish, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		select {
		case <-hurry:
			mux.Abandon()
			cancel()
		case <-finish.Done():
		}
	}()
	return mux.Finish(finish)
}

// runWatching runs a job while something else, which may be nil, runs beside it.
func runWatching(ctx context.Context, spec launcher.Spec, watch func(context.Context) error) error {
	if watch == nil {
		return launcher.Run(ctx, spec)
	}
	watching, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := watch(watching); err != nil {
			cancel(err) // and with it the job
		}
	})
	err := launcher.Run(watching, spec)
	cancel(nil)
	wg.Wait()
	return err
}

// streamsOf is how many streams links have: if the user names several NICs, one for small segments and two on each
// NIC.
func streamsOf(c *cli.Context) int {
	if n := len(nicsOf(c)); n > 1 && !c.IsSet("streams") {
		return min(1+2*n, 16)
	}
	return c.Int("streams")
}

// startTimeout is how long a start may take. In an MPIJob the workers may only now be made.
func startTimeout(c *cli.Context) time.Duration {
	if !c.IsSet("start-timeout") && hosts.InMPIJob(surroundings()) {
		return mpiJobPatience + timeOf(c, "start-timeout")
	}
	return timeOf(c, "start-timeout")
}

// checkStart is checkFlags for commands that only ask hosts.
func checkStart(c *cli.Context) error {
	if patience := timeOf(c, "start-timeout"); patience <= 0 {
		return &usageError{fmt.Errorf("--start-timeout %v: must be positive", patience), "--start-timeout 60, in seconds"}
	}
	for _, nic := range nicsOf(c) {
		if _, err := netip.ParsePrefix(nic); err != nil && strings.Contains(nic, "/") { // no interface or driver has one in its name
			return &usageError{fmt.Errorf("--network-interfaces %s: not a network", nic), "--network-interfaces eth0,10.0.0.0/8"}
		}
	}
	return nil
}

// checkFlags finds mistakes before anything is contacted.
func checkFlags(c *cli.Context) error {
	wrong := func(name, why string) error {
		return &usageError{fmt.Errorf("--%s %v: %s", name, c.Value(name), why), ""}
	}
	switch {
	case c.Int("ssh-port") < 0 || c.Int("ssh-port") > 65535:
		return wrong("ssh-port", "not a port")
	case c.Int("streams") < 1 || c.Int("streams") > 64:
		return wrong("streams", "must be 1 to 64")
	case timeOf(c, "connect-retry") < 0:
		return wrong("connect-retry", "must not be negative")
	case timeOf(c, "timeout") < 0:
		return wrong("timeout", "must not be negative")
	case timeOf(c, "grace") < 0:
		return wrong("grace", "must not be negative")
	case c.Int("max-restarts") < 0:
		return wrong("max-restarts", "must not be negative")
	}
	if err := checkStart(c); err != nil {
		return err
	}
	if _, err := schedule.ParseAlgorithm(c.String("algorithm")); err != nil {
		return &usageError{fmt.Errorf("--algorithm: %w", err), ""}
	}
	if _, err := kernel.ParseCoding(c.String("wire-compression")); err != nil {
		return &usageError{fmt.Errorf("--wire-compression: %w", err), ""}
	}
	for _, key := range c.StringSlice("ssh-identity-file") {
		if _, err := os.Stat(key); err != nil {
			return &usageError{fmt.Errorf("--ssh-identity-file: %w", err), ""}
		}
	}
	return nil
}
