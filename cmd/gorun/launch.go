package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
	"gorun/collective/verbs"
	"gorun/launcher"
	"gorun/launcher/failure"
	"gorun/launcher/launchers"
	"gorun/launcher/metrics"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/launcher/ship"
	"gorun/launcher/web"
	"gorun/topology"
	"gorun/worker/shipped"
)

// launch is the main job: gorun -np 4 -H host1:2,host2:2 python train.py
func launch(ctx context.Context, o *jobFlags, hurry <-chan struct{}) error {
	switch {
	case o.version && calledHorovodrun(os.Args):
		return printHorovodVersion(o.out, o.errs)
	case o.version:
		return printVersion(o.out)
	}
	if o.checkBuild {
		return checkBuild(ctx, o.out)
	}
	if idleTask(o) {
		return nil
	}
	programs, notes, err := readPrograms(ctx, o)
	if err != nil {
		return err
	}
	if err := cmp.Or(checkKubernetes(o, programs), checkFlags(o)); err != nil {
		return err
	}
	if o.kubernetes {
		tree, packages, _, err := o.brought(ctx, programs)
		if err != nil {
			return err
		}
		for _, note := range notes {
			fmt.Fprintln(os.Stderr, output.Printable(note))
		}
		if o.dryRun {
			fmt.Fprint(os.Stderr, output.PrintableLines(describeGiven(tree, packages)))
		}
		return inKubernetes(o, programs[0])
	}
	if o.detach && detachedOf(ctx) == nil && !o.dryRun {
		return detach(ctx, o, programs, notes)
	}
	return runJob(ctx, o, hurry, programs, notes)
}

// jobPlan holds the meaning of a job's flags, except for its programs and JobOptions.
type jobPlan struct {
	*jobFlags
	listed   *launchers.Registration
	changing *elasticPlan // nil if the world stays as it is
	settings settings
	ring     ringPlan
	depth    int // of jobs within one another
}

// validate finds what is wrong with the flags, before anything is contacted, and completes the JobOptions.
func (o *jobFlags) validate(ctx context.Context) (p jobPlan, err error) {
	p.jobFlags = o
	if err := checkFlags(o); err != nil {
		return p, err
	}
	if p.depth, err = depthOf(os.Getenv(depthVariable)); err != nil {
		return p, err
	}
	if p.changing, err = readElastic(o); err != nil {
		return p, err
	}
	if err := mayContinue(ctx, o, p.changing != nil); err != nil {
		return p, err
	}
	if p.settings, err = readSettings(o); err != nil {
		return p, err
	}
	if o.Wrapper, err = readWrapper(o); err != nil {
		return p, err
	}
	if p.ring, err = readRing(o); err != nil {
		return p, err
	}
	if p.ring.by == topology.ByMeasured && o.given(&o.RingOrder) && p.ring.file == "" && (p.changing != nil || o.cluster != "") {
		return p, &usageError{errors.New("--ring-order measured: only a job that starts its hosts by ssh, and keeps them, measures by itself"), "gorun topo -H host1,host2 --measure --save FILE, then --topology FILE"}
	}
	if o.GPUs, err = gpusOf(o); err != nil {
		return p, err
	}
	if o.Bind, err = readBind(o); err != nil {
		return p, err
	}
	o.Shim, o.NICs, o.Streams, o.IfAlone = !o.noShim, nicsOf(o), streamsOf(o), ifAlone(o)
	o.TimeScale, o.Blind = timeScaleOf(os.Getenv(timeScale)), os.Getenv(blind) == "1"
	o.ReportBindings = o.ReportBindings || readBindingArgs(o).report
	return p, nil
}

// mayContinue returns an error if this launcher has taken over a job that is not elastic, and so cannot go on.
func mayContinue(ctx context.Context, o *jobFlags, elastic bool) error {
	d := detachedOf(ctx)
	if !d.Successor() || elastic {
		return nil
	}
	client, _, err := clusterOf(ctx, &o.clusterFlags)
	if err != nil {
		return err
	}
	return d.RefuseFixed(client)
}

// spec returns the job that the flags describe; runJob adds how it is started and watched.
func (p jobPlan) spec(placement plan.Placement, programs []program) launcher.Spec {
	env := p.settings.env
	if !p.envNone {
		env = append(os.Environ(), env...)
	}
	var running []launcher.Program
	for _, p := range programs {
		running = append(running, p.Program)
	}
	return launcher.Spec{
		JobOptions: p.JobOptions,

		EvictStragglers: p.evictStragglers,
		Placement:       placement,
		Programs:        nested(running, p.depth),
		Env:             env,
		Version:         version,
		StartTimeout:    startTimeout(p.jobFlags),
		Timeout:         p.timeout,
	}
}

// notes returns the lines that tell users which of their flags have no effect.
func (p jobPlan) notes() (notes []string) {
	if set, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok && len(p.GPUs) > 0 && !p.envNone {
		notes = append(notes, fmt.Sprintf("gorun: --gpus chooses nothing for ranks on this machine: CUDA_VISIBLE_DEVICES=%s is set already", set))
	}
	if idle := append(p.settings.idle, p.idle()...); len(idle) > 0 {
		notes = append(notes, "gorun: note: without effect here: "+strings.Join(idle, ", "))
	}
	return notes
}

// idle returns the flags that have no effect in this job, with the reason. An elastic job fills its hosts one after the other, with a
// rank in each slot.
func (p jobPlan) idle() (idle []string) {
	o, elastic := p.jobFlags, p.changing != nil
	policy, _ := policyOf(o) // its mistakes were reported before
	unbound := o.Bind.To == "" || o.Bind.To == topology.BindNone
	binding := strings.Join(readBindingArgs(o).idle, " ")
	o.mca.each(func(key, _ string) {
		if !choosesNICs(key) && !isAgent(key) {
			idle = append(idle, "-mca "+key)
		}
	})
	for _, f := range []struct {
		given       bool
		flag, value string
		why         string
	}{
		{elastic && o.displayMap, "display-map", "", "in an elastic job"},
		{elastic && policy.MapByNode, "map-by", " node", "in an elastic job"},
		{elastic && policy.RankByNode && o.given(&o.rankBy), "rank-by", " " + o.rankBy, "in an elastic job"},
		{elastic && policy.Oversubscribe, "oversubscribe", "", "in an elastic job"},
		{elastic && o.maxRestarts > 0, "max-restarts", "", "an elastic job goes on instead; --reset-limit sets how often"},
		{o.standalone && (o.namesHosts() || o.cluster != ""), "standalone", "", "hosts are named"},
		{binding != "", "binding-args", " " + binding, noMPI},
		{policy.Within != "" && unbound, "map-by", " " + o.mapBy, "ranks fill host by host; --bind-to spreads them within hosts"},
		{policy.RankWithin != "", "rank-by", " " + o.rankBy, "within a host ranks are numbered as they are dealt"},
	} {
		if f.given {
			idle = append(idle, fmt.Sprintf("--%s%s (%s)", f.flag, f.value, f.why))
		}
	}
	for _, field := range []any{&o.sshPort, &o.identityFiles, &o.sshConfig, &o.sshCommand, &o.launcher} {
		if o.cluster != "" && o.given(field) {
			idle = append(idle, "--"+o.names[field]+" (a cluster is reached without ssh)")
		}
	}
	return idle
}

// place finds out where a job runs. note prints what goes wrong with a discovery script.
func (p jobPlan) place(ctx context.Context, programs []program, note func(format string, args ...any)) (room, error) {
	switch {
	case p.changing == nil:
		// Last, since it may wait until other jobs have ended.
		return placeJob(ctx, p.jobFlags, cmp.Or(ranksOf(programs), p.np), programs)
	case len(programs) > 1:
		return room{}, &usageError{errors.New("an elastic job has one program"), "leave out --min-np and --host-discovery-script, or start a job for each program"}
	case p.cluster != "":
		return p.changing.onCluster(ctx, p.jobFlags, programs)
	}
	return p.changing.room(p.jobFlags, note)
}

// runJob starts programs on the hosts that the flags name, and returns when all of it has ended.
func runJob(ctx context.Context, o *jobFlags, hurry <-chan struct{}, programs []program, notes []string) (err error) {
	p, err := o.validate(ctx)
	if err != nil {
		return err
	}
	if !o.dryRun {
		listed, end := listJob(ctx, programs)
		defer func() { end(err) }()
		p.listed = listed
	}
	defer keepGiven(ctx, detachedOf(ctx).Request())() // before the job waits for slots, perhaps for days
	tree, packages, more, err := o.brought(ctx, programs)
	if err != nil {
		return err
	}
	notes = append(notes, more...)
	var mux *output.Mux
	where, err := p.place(ctx, programs, func(format string, args ...any) { mux.Note(format, args...) })
	if err != nil {
		return err
	}
	defer where.release()
	placement, varying := where.placement, where.varying
	if o.dryRun && varying != nil {
		if placement, err = p.changing.first(ctx, varying); err != nil {
			return err
		}
	}
	if len(programs) == 1 { // its number of ranks may not be known before
		programs[0].Ranks = len(placement.Ranks)
	}
	spec := p.spec(placement, programs)
	if o.dryRun {
		return dryRun(ctx, o, programs, spec, tree, packages, varying != nil, slices.Concat(notes, where.notes(false), p.notes()))
	}
	if spec.Readers, err = readersOf(o, len(placement.Ranks), varying != nil); err != nil {
		return err
	}
	dial, err := where.dialer(o)
	if err != nil {
		return err
	}
	seats := &places{host: map[int]string{}}
	if mux, err = newMux(o, placement, seats, varying != nil); err != nil {
		return err
	}
	spec.Dial = dial
	if tree != nil {
		files := ship.New(tree)
		if detachedOf(ctx).Request() != nil {
			if store, err := shipped.Open(os.Getenv); err == nil {
				defer store.Close()
				files.Kept = store.Open
			}
		}
		spec.Files = files
	}
	hosts := len(placement.Hosts)
	if varying != nil {
		hosts = 1
	}
	given, ctx, finish, err := o.makePackages(ctx, packages, hosts, mux.Note)
	if err != nil {
		return err
	}
	spec.Python = given
	defer func() { err = finish(err) }()
	if d, ok := dial.(*dialer); ok {
		defer d.close()
		d.speakThrough(mux)
	}
	if varying != nil {
		varying.Admit = seats.admit(mux)
		spec.Elastic = varying
	} else {
		announce(mux, placement)
		if o.displayMap {
			notes = append(notes, mapOf(placement)...)
		}
	}
	names := hostNames(placement)
	p.printNotes(mux, slices.Concat(notes, where.notes(spec.Verbose)), names)
	if err := p.ring.measure(ctx, o, names); err != nil {
		return err
	}
	spec.Topology = p.ring.text
	return p.see(ctx, hurry, &spec, where, mux)
}

// printNotes prints the notes before a job starts.
func (p jobPlan) printNotes(mux *output.Mux, notes, names []string) {
	for _, note := range slices.Concat(notes, p.notes()) {
		mux.Note("%s", note)
	}
	for _, warning := range p.ring.strangers(names) {
		mux.Note("gorun: warning: %s", warning)
	}
}

// see runs a job that is ready to start, beside what watches and serves it, and shows how it goes.
func (p jobPlan) see(ctx context.Context, hurry <-chan struct{}, spec *launcher.Spec, where room, mux *output.Mux) error {
	// In the background of a terminal, reading is an error (and rank 0 sees the end of its input) instead
	// of a reason to stop the launcher.
	signal.Ignore(syscall.SIGTTIN)
	signals := make(chan int, 8)
	defer forwardSignals(signals)()

	spec.Signals, spec.Hurry = signals, hurry
	spec.Stdin = input(p.jobFlags)
	showOn(mux, spec)
	var unsaved error
	if p.saveTopology != "" || p.jsonEvents { // otherwise daemons need not report measurements
		spec.Measured = func(hosts []topology.Host, edges []topology.Edge) {
			edgeEvents(mux, hosts, edges)
			unsaved = saveTopology(p.saveTopology, hosts, edges)
		}
	}
	if err := p.listed.Watch(spec); err != nil {
		return err
	}
	if p.listed == nil && (p.metrics != "" || p.web != "") {
		return &usageError{errors.New("--metrics and --web need a directory for the job's state"), "set HOME or XDG_STATE_HOME"}
	}
	if p.metrics != "" {
		served, err := metrics.Serve(p.metrics, version, p.listed.State)
		if err != nil {
			return &usageError{fmt.Errorf("--metrics %s: %w", p.metrics, err), "--metrics :9400, or --metrics :0 for any free port"}
		}
		defer served.Close()
		mux.Note("gorun: metrics are at http://%s/metrics", served.Address())
	}
	if p.web != "" {
		served, err := web.Serve(p.web, p.listed)
		if err != nil {
			return noPage("--web", p.web, err)
		}
		defer served.Close()
		mux.Note("gorun: the page of the job is at %s", served.URL())
	}
	detachedOf(ctx).Watch(spec)
	recorded := sync.OnceFunc(recordTo(spec, p.outputDir, p.listed))
	defer recorded()
	if where.lease != nil {
		client, _, err := clusterOf(ctx, &p.clusterFlags)
		if err == nil {
			err = detachedOf(ctx).Replicate(ctx, client, spec, where.lease)
		}
		if err != nil {
			return err
		}
	}
	moves, unwatch := watchMoves(ctx, p.jobFlags, mux.Note)
	spec.Moves = moves
	quiet := noteSlowStop(ctx, spec.Grace, mux.Note)
	err := runRestarting(ctx, *spec, p.maxRestarts, where.watch, mux.Note)
	recorded() // its note comes before the end of the output
	if lesser, ok := errors.AsType[*failure.MinorityError](err); ok {
		err = errors.Join(err, detachedOf(ctx).Abandoned(lesser))
	}
	quiet()
	unwatch()
	for rank := range spec.Placement.Ranks {
		mux.Close(rank)
	}
	conclude(mux, err)
	return errors.Join(err, showRest(ctx, mux, hurry), unsaved)
}

// showOn connects a job's output, notes, progress and events with mux.
func showOn(mux *output.Mux, spec *launcher.Spec) {
	spec.Output, spec.Note = mux, mux.Note
	spec.Progress = func(p launcher.Progress) { mux.Status(p.String()) }
	spec.Watch, spec.WatchHosts = watchRanks(mux), watchHosts(mux)
}

// unread is how long a terminal may take nothing before a job that was stopped gives it up.
const unread = 2 * time.Second

// showRest shows what ranks wrote in full, unless the user no longer wants to wait for it, or has stopped the job and
// does not read.
func showRest(ctx context.Context, mux *output.Mux, hurry <-chan struct{}) error {
	finish, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	var wait sync.WaitGroup
	wait.Go(func() {
		stopped, taken := ctx.Done(), 0
		var look <-chan time.Time
		for finish.Err() == nil {
			select {
			case <-stopped:
				stopped, look, taken = nil, time.Tick(unread), mux.Taken()
			case <-look:
				if now := mux.Taken(); now != taken {
					taken = now
					continue
				}
				giveUp(fmt.Errorf("nobody has read it for %v", unread))
			case <-hurry:
				giveUp(context.Canceled)
			case <-finish.Done():
			}
		}
	})
	err := mux.Finish(finish)
	giveUp(nil)
	wait.Wait()
	return err
}

// streamsOf is how many streams links have: if the user names several NICs, one for small segments and two on each
// NIC.
func streamsOf(o *jobFlags) int {
	if n := len(nicsOf(o)); n > 1 && !o.given(&o.Streams) {
		return min(1+2*n, 16)
	}
	return o.Streams
}

// rdmaWords matches what --rdma takes: off, auto and on look like devices, too.
var rdmaWords = regexp.MustCompile(`^[\w.-]+(,[\w.-]+)*$`)

// checkFlags finds mistakes before any host is contacted.
func checkFlags(o *jobFlags) error {
	wrong := func(name string, value any, why string) error {
		return &usageError{fmt.Errorf("--%s %v: %s", name, value, why), ""}
	}
	const negative = "must not be negative"
	switch {
	case o.sshPort < 0 || o.sshPort > 65535:
		return wrong("ssh-port", o.sshPort, "not a port")
	case o.Streams < 1 || o.Streams > 64:
		return wrong("streams", o.Streams, "must be 1 to 64")
	case o.connectRetry < 0:
		return wrong("connect-retry", o.connectRetry, negative)
	case o.timeout < 0:
		return wrong("timeout", o.timeout, negative)
	case o.Grace < 0:
		return wrong("grace", o.Grace, negative)
	case o.maxRestarts < 0:
		return wrong("max-restarts", o.maxRestarts, negative)
	}
	if err := checkStart(o); err != nil {
		return err
	}
	if !slices.Contains(gpuPaths, o.GPUPath) {
		return &usageError{fmt.Errorf("--gpu-path %s: must be auto, nccl, hierarchical, ipc or host", o.GPUPath), "--gpu-path auto takes NCCL where it can"}
	}
	if o.JAX != "" && o.JAX != "gorun" {
		return wrong("jax-engine", o.JAX, "must be gorun")
	}
	if _, err := schedule.ParseAlgorithm(o.Algorithm); err != nil {
		return &usageError{fmt.Errorf("--algorithm: %w", err), ""}
	}
	if !rdmaWords.MatchString(o.RDMA) {
		return &usageError{fmt.Errorf("--rdma %s: neither off, auto, on nor names of devices", o.RDMA), "--rdma auto, or --rdma mlx5_0,mlx5_1"}
	}
	if _, err := verbs.ParseTuning(o.RDMATune); err != nil {
		return &usageError{fmt.Errorf("--rdma-options: %w", err), "--rdma-options gid=3,mtu=4096,class=106"}
	}
	if _, err := kernel.ParseCoding(o.Coding); err != nil {
		return &usageError{fmt.Errorf("--wire-compression: %w", err), ""}
	}
	for _, key := range o.identityFiles.Value() {
		if _, err := os.Stat(key); err != nil {
			return &usageError{fmt.Errorf("--ssh-identity-file: %w", err), ""}
		}
	}
	return nil
}
