package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/launcher/plan"
	"gorun/rendezvous/wire"
	"gorun/worker/command"
)

// detachedVariable names the job's directory to a launcher that runs detached. Such a launcher also
// inherits two descriptors: where to say that the job runs, and the job's lock.
const (
	detachedVariable = "GORUN_DETACHED"
	readyFD          = 3
	lockFD           = 4
)

// stateDir is command.StateDir with a way out.
func stateDir() (string, error) {
	dir, err := command.StateDir(os.Getenv)
	if err != nil {
		return "", &usageError{err, "set HOME, or XDG_STATE_HOME to where jobs are to be kept"}
	}
	return dir, nil
}

// jobStore is where the user's detached jobs are.
func jobStore() (jobs.Store, error) {
	dir, err := stateDir()
	return jobs.Store{Dir: filepath.Join(dir, "jobs")}, err
}

// recorded are the jobs that the store has records of.
func recorded() (store jobs.Store, all []jobs.Record, err error) {
	if store, err = jobStore(); err == nil {
		all, err = store.List()
	}
	return store, all, err
}

// detach runs this very command again, without a terminal and in a session of its own, and returns when the
// job runs or waits for its turn.
func detach(ctx context.Context, o *jobFlags, programs []program) error {
	if o.cluster != "" {
		return detachTo(ctx, o, programs)
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Args[0] = os.Args[0] // it may be called horovodrun
	cmd.Env = os.Environ()
	d, err := startDetached(ctx, cmd, jobs.Record{Program: programName(programs)}, nil)
	if err != nil {
		return err
	}
	defer cmd.Process.Release()
	return sayDetached(o.out, d, strconv.Itoa(d.Job))
}

// sayDetached tells what became of a job, which is called id.
func sayDetached(w io.Writer, d *wire.Detached, id string) error {
	if d.Code != 0 { // as if it had not been detached
		os.Stderr.Write(d.Output)
		if d.Signal != 0 { // it could say nothing more
			return killedAtStart(d)
		}
		return command.ExitStatus(d.Code)
	}
	fmt.Fprintf(os.Stderr, "gorun: job %s %s; gorun logs %s shows its output, gorun stop %s ends it\n", id, d.Text, id, id)
	_, err := fmt.Fprintln(w, id)
	return err
}

// killedAtStart is the end of a job that nobody carries on: see keeper.
func killedAtStart(d *wire.Detached) error {
	host, hint := d.Host, "if memory ran out there, dmesg says so"
	if host == "" {
		host, _ = os.Hostname()
	} else {
		hint += "; hosts of an elastic job keep its slots a minute longer than its --lease (auto: three minutes), which gorun ps shows"
	}
	return &launcher.HostError{Host: host, Step: "start job", Err: fmt.Errorf("the launcher was killed by %s before its ranks ran", unix.SignalName(syscall.Signal(d.Signal))),
		Hint: hint, Code: d.Code}
}

// startDetached starts a launcher that stays when this process ends. If it fails before its ranks run, it has ended
// and left nothing when this returns, unless it was to carry a job on; otherwise it is the caller's to wait for.
// prepare, if it is not nil, leaves more in the job's directory.
func startDetached(ctx context.Context, cmd *exec.Cmd, r jobs.Record, prepare func(jobs.Job) error) (*wire.Detached, error) {
	store, err := jobStore()
	if err != nil {
		return nil, err
	}
	machine, _ := os.Hostname() // for people to read
	r.Machine, r.Started = machine, time.Now()
	job, lock, err := store.Create(r)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if prepare != nil {
		if err := prepare(job); err != nil {
			return nil, err
		}
	}
	out, err := os.OpenFile(job.Output(), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make output file: %w", err)
	}
	defer out.Close()
	ready, says, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	defer ready.Close()
	cmd.Env = append(cmd.Env, detachedVariable+"="+job.Dir)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{says, lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	says.Close()
	lock.Close()
	if err != nil {
		os.RemoveAll(job.Dir)
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(unix.SIGTERM) })
	defer stop()
	text, err := bufio.NewReader(ready).ReadString('\n')
	if err == nil && stop() {
		id, err := strconv.Atoi(filepath.Base(job.Dir))
		return &wire.Detached{Job: id, Text: strings.TrimSpace(text)}, err
	}
	err = cmd.Wait()
	d := &wire.Detached{Code: launcher.ExitFailure}
	if _, err := out.Seek(0, io.SeekStart); err == nil {
		d.Output, _ = io.ReadAll(io.LimitReader(out, 1<<20))
	}
	if r.Name == "" {
		os.RemoveAll(job.Dir)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if d.Code = exit.ExitCode(); d.Code < 0 {
			d.Code, d.Signal = launcher.ExitFailure, int(exit.Sys().(syscall.WaitStatus).Signal())
		}
	}
	return d, nil
}

// programName says in a few words what a job runs. Arguments may be secret: only the first that is no flag
// is shown, since the script says more than python3 does.
func programName(programs []program) string {
	name := filepath.Base(programs[0].Argv[0])
	for _, arg := range programs[0].Argv[1:] {
		if !strings.HasPrefix(arg, "-") {
			if !strings.ContainsAny(arg, "\n;=") { // a script in an argument
				name += " " + filepath.Base(arg)
			}
			break
		}
	}
	return name
}

// detached is what a launcher without a terminal has instead. Its methods do nothing on nil, which is a
// launcher with one.
type detached struct {
	job    jobs.Job
	hosted hosting // in a cluster, by one of its daemons
	server *jobs.Server
	ask    chan struct{}

	request   *wire.Detach // of its user, in a cluster
	inherited *inheritance // nil unless this launcher carries on what another has begun
	keeper    *keeper      // nil if no other host could carry it on

	mu     sync.Mutex
	record jobs.Record // changed by save
	ranks  []jobs.Rank
	ready  *os.File // until something was said
}

type detachedKey struct{}

func detachedOf(ctx context.Context) *detached {
	d, _ := ctx.Value(detachedKey{}).(*detached)
	return d
}

// beDetached takes over what detach has prepared, if it has.
func beDetached(dir string) (*detached, error) {
	if dir == "" {
		return nil, nil
	}
	hosted := readHosting(os.Getenv(hostedVariable))
	os.Unsetenv(detachedVariable) // it is not for what we start
	os.Unsetenv(hostedVariable)
	unix.CloseOnExec(readyFD)
	unix.CloseOnExec(lockFD) // it stays open to the end
	d := &detached{job: jobs.Job{Dir: dir}, hosted: hosted, ready: os.NewFile(readyFD, "ready"), ask: make(chan struct{}, 1)}
	var err error
	if d.record, err = d.job.Load(); err != nil {
		return nil, err
	}
	if d.request, d.inherited, err = readInherited(dir); err != nil {
		return nil, err
	}
	if d.inherited != nil {
		d.say("goes on")
	}
	if err := d.save(func(r *jobs.Record) { r.PID = os.Getpid() }); err != nil {
		return nil, err
	}
	d.server, err = d.job.Serve(jobs.Handler{Signal: signalSelf, Ranks: d.list})
	return d, err
}

// signalSelf does what a terminal would.
func signalSelf(number int) error {
	switch sig := syscall.Signal(number); sig {
	case unix.SIGINT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2:
		return unix.Kill(os.Getpid(), sig)
	}
	return fmt.Errorf("signal %d is not passed on", number)
}

// say tells the shell that waits in detach how it stands; after that nobody waits, and others may carry the job on.
func (d *detached) say(text string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	ready, keeper := d.ready, d.keeper
	d.ready = nil
	d.mu.Unlock()
	if ready == nil {
		return
	}
	fmt.Fprintln(ready, text)
	ready.Close()
	if keeper != nil {
		keeper.begin()
	}
}

// attach makes a job known and watches it.
func (d *detached) attach(spec *launcher.Spec, p plan.Placement) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	for rank, r := range p.Ranks {
		d.ranks = append(d.ranks, jobs.Rank{Rank: rank, Host: p.Hosts[r.Host].Name, State: "has not started"})
	}
	d.mu.Unlock()
	started, next := 0, spec.Watch
	spec.Watch = func(e launcher.RankEvent) {
		next(e)
		d.update(e.Rank, func(r *jobs.Rank) {
			if r.Host = e.Host; e.Ended {
				r.State = "ended with " + strconv.Itoa(e.Code)
			} else {
				r.PID, r.State = e.PID, "runs"
			}
		})
		if !e.Ended {
			started++
		}
		if started == max(len(p.Ranks), 1) { // an elastic job is under way with its first rank
			d.say("runs detached")
		}
	}
	nextHost := spec.WatchHosts
	spec.WatchHosts = func(e launcher.HostEvent) {
		nextHost(e)
		d.host(e)
	}
	if spec.Elastic != nil {
		spec.Elastic.World = d.world
	}
	spec.AskUsage = d.ask
	spec.Used = func(u launcher.RankUsage) {
		d.update(u.Rank, func(r *jobs.Rank) {
			r.CPUMS, r.RSS, r.Processes, r.State = u.CPU.Milliseconds(), u.RSS, u.Processes, u.State
		})
	}
	return d.save(func(r *jobs.Record) {
		if len(p.Ranks) == 0 { // an elastic job, which may be here from another launcher
			return
		}
		r.Ranks, r.Hosts = len(p.Ranks), nil
		for _, h := range p.Hosts {
			r.Hosts = append(r.Hosts, h.Name)
		}
	})
}

// save changes what is recorded of the job, one after the other: the launcher's loop does, and the keeper's goroutines.
func (d *detached) save(change func(*jobs.Record)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.record)
	return d.job.Save(d.record)
}

// world keeps what an elastic job is now for those who list jobs.
func (d *detached) world(ranks int, hosts []string) {
	if err := d.save(func(r *jobs.Record) {
		r.Ranks, r.Hosts = ranks, hosts
		r.Partitions = slices.DeleteFunc(r.Partitions, func(a jobs.Partition) bool { return !slices.Contains(hosts, a.Host) || !slices.Contains(hosts, a.To) })
	}); err != nil {
		fmt.Fprintln(os.Stderr, "gorun: warning:", err) // into the job's output
	}
}

// host keeps of which hosts nothing is heard.
func (d *detached) host(e launcher.HostEvent) {
	err := d.save(func(r *jobs.Record) {
		r.Partitions = slices.DeleteFunc(r.Partitions, func(a jobs.Partition) bool {
			return a.Host == e.Host && a.To == e.To || e.State == launcher.HostLost && (a.Host == e.Host || a.To == e.Host)
		})
		switch {
		case e.To != "" && e.State == launcher.HostSilent:
			r.Partitions = append(r.Partitions, jobs.Partition{Host: e.Host, To: e.To, Since: e.Since})
		case e.To != "":
		case e.State == launcher.HostSilent:
			if r.Silent == nil {
				r.Silent = map[string]time.Time{}
			}
			r.Silent[e.Host] = e.Since
		default:
			delete(r.Silent, e.Host)
		}
		for i := range d.ranks {
			if rank := &d.ranks[i]; e.State == launcher.HostLost && rank.Host == e.Host && !rank.Ended() {
				rank.State = "ended with its host"
			}
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "gorun: warning:", err) // into the job's output
	}
}

func (d *detached) update(rank int, f func(*jobs.Rank)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for rank >= len(d.ranks) { // of an elastic job
		d.ranks = append(d.ranks, jobs.Rank{Rank: len(d.ranks)})
	}
	f(&d.ranks[rank])
}

// list returns what is known of the ranks, and sees to it that more is known the next time.
func (d *detached) list() []jobs.Rank {
	select {
	case d.ask <- struct{}{}:
	default:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ranks := slices.Clone(d.ranks)
	for i := range ranks {
		if since, silent := d.record.Silent[ranks[i].Host]; silent && !ranks[i].Ended() {
			ranks[i].State = "host silent since " + since.Local().Format(time.TimeOnly)
			continue
		}
		for _, a := range d.record.Partitions {
			if a.Host == ranks[i].Host && !ranks[i].Ended() {
				ranks[i].State = "host silent to " + a.To + " since " + a.Since.Local().Format(time.TimeOnly)
			}
		}
	}
	return ranks
}

// deserted keeps why the job ends for those who list jobs.
func (d *detached) deserted(e *launcher.MinorityError) error {
	return d.save(func(r *jobs.Record) { r.Abandoned = whyDeserted(e.Of, e.Left) })
}

// end is the last word.
func (d *detached) end(code int) {
	if d == nil {
		return
	}
	d.keeper.close(code)
	if err := d.save(func(r *jobs.Record) { r.Ended, r.Code, r.Silent, r.Partitions = time.Now(), code, nil, nil }); err != nil {
		fmt.Fprintln(os.Stderr, "gorun: error:", err) // into the job's output
	}
	d.server.End(code)
}
