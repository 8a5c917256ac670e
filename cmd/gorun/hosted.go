package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorun/launcher/jobs"
	"gorun/launcher/plan"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// Detached jobs of a cluster: their launchers run on the host of a daemon, and whoever holds the key reaches them
// from anywhere.

// hostedVariable tells a launcher that a daemon has started by which address and key it reaches the cluster; what its
// user wrote is for another machine.
const hostedVariable = "GORUN_HOSTED"

type hosting struct{ addr, name, keyFile string }

func (h hosting) String() string { return h.addr + " " + h.name + " " + h.keyFile }

func readHosting(text string) hosting {
	addr, rest, _ := strings.Cut(text, " ")
	name, file, _ := strings.Cut(rest, " ")
	return hosting{addr, name, file}
}

// hosted is the standing.Launchers and the standing.Failover of a daemon. Each launcher that it started holds a goroutine,
// to its end or to that of this process.
type hosted struct {
	hosting
	log *slog.Logger
}

// Start implements standing.Launchers.
func (h hosted) Start(ctx context.Context, r *wire.Detach) (*wire.Detached, error) {
	if len(r.Args) == 0 {
		return nil, errors.New("start launcher: no arguments")
	}
	if info, err := os.Stat(r.Dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("start launcher: there is no directory %s here", r.Dir)
	}
	cmd := h.command(r)
	record := jobs.Record{Program: r.Program, Authority: newAuthority(), Term: 1}
	d, err := startDetached(ctx, cmd, record, func(job jobs.Job) error { return leave(job, requestFile, r) })
	if err == nil && d.Code == 0 {
		go cmd.Wait() // reaps it
	}
	return d, err
}

// command is the launcher that a user asked for.
func (h hosted) command(r *wire.Detach) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", r.Args[1:]...)
	cmd.Args[0] = r.Args[0]
	cmd.Dir = r.Dir
	cmd.Env = slices.Concat(jobEnv(), r.Env, []string{hostedVariable + "=" + h.String(), "GORUN_CLUSTER=" + h.addr})
	return cmd
}

// List implements standing.Launchers.
func (h hosted) List(left []standing.Standby) (*wire.DetachedJobs, error) {
	_, all, err := recorded()
	if err != nil {
		return nil, err
	}
	for _, b := range left {
		r, err := recordOf(b.State)
		if err != nil {
			return nil, err
		}
		r.State, r.Silent = jobs.Unattended, map[string]time.Time{r.Machine: b.Heard}
		all = append(all, r)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return &wire.DetachedJobs{Records: text}, nil
}

// Open implements standing.Launchers.
func (h hosted) Open(r *wire.Reach) (io.ReadWriteCloser, error) {
	store, err := jobStore()
	if err != nil {
		return nil, err
	}
	job, _, err := store.Find(strconv.Itoa(r.Job), false)
	if err != nil {
		return nil, err
	}
	if r.Output {
		return job.Tail(r.Lines, r.Follow)
	}
	return job.Connect(context.Background())
}

// newAuthority names a job for the hosts that may carry it on.
func newAuthority() string {
	id := make([]byte, 8)
	rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// jobEnv is the environment of a job's daemon, less what systemd told this one.
func jobEnv() []string {
	return slices.DeleteFunc(plan.UserEnv(os.Environ(), false), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC", "WATCHDOG_PID"}, name)
	})
}

// detachTo has a daemon of the cluster run this very command.
func detachTo(ctx context.Context, o *jobFlags, programs []program) error {
	client, addr, err := clusterOf(ctx, &o.clusterFlags)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find working directory: %w", err)
	}
	env := plan.UserEnv(os.Environ(), true)
	for _, kv := range os.Environ() { // what stands for flags
		if strings.HasPrefix(kv, "GORUN_") && !strings.HasPrefix(kv, "GORUN_CLUSTER") {
			env = append(env, kv)
		}
	}
	d, err := client.Detach(ctx, addr, wire.Detach{Program: programName(programs), Args: os.Args, Env: env, Dir: dir})
	if err != nil {
		return explainCluster(addr, err)
	}
	return sayDetached(o.out, d, fmt.Sprintf("%s/%d", d.Host, d.Job))
}

// clusterRecord is a detached job of a cluster.
type clusterRecord struct {
	Host string `json:"host"`
	jobs.Record
	addr    string
	members []wire.MemberState // of the cluster, any of which can be asked for the job
}

// name is how users call it, wherever its launcher is by now.
func (r clusterRecord) name() string {
	if r.Record.Name != "" {
		return r.Record.Name
	}
	return fmt.Sprintf("%s/%d", r.Host, r.ID)
}

// number is the name without the host.
func (r clusterRecord) number() string {
	name := r.name()
	return name[strings.LastIndexByte(name, '/')+1:]
}

// sees is how well whoever wrote the record knows what became of the launcher.
func (r clusterRecord) sees() int {
	switch {
	case r.State == jobs.Unattended:
		return 0
	case r.Abandoned != "":
		return 1
	}
	return 2
}

// latest leaves out launchers in whose place others have come, and what hosts say of one that they do not see, if others do: they
// were cut off, or it is back. Of those who may carry a job on, only the last that heard of its launcher counts.
func latest(all []clusterRecord) []clusterRecord {
	last := map[string]clusterRecord{}
	for _, r := range all {
		x, known := last[r.Authority]
		same := cmp.Or(cmp.Compare(r.Term, x.Term), cmp.Compare(r.sees(), x.sees()), r.Silent[r.Machine].Compare(x.Silent[x.Machine]))
		if !known || same > 0 {
			last[r.Authority] = r
		}
	}
	return slices.DeleteFunc(all, func(r clusterRecord) bool {
		x := last[r.Authority]
		return r.Authority != "" && (r.Host != x.Host || r.ID != x.ID)
	})
}

// detachedJobs are those whose launchers can be reached.
func detachedJobs(ctx context.Context, client standing.Client, members []wire.MemberState) (all []clusterRecord, silent []string) {
	all, silent = allRecords(ctx, client, members)
	return latest(slices.DeleteFunc(all, func(r clusterRecord) bool { return r.State == jobs.Unattended })), silent
}

// allRecords asks all hosts for theirs, by the time of their start. Hosts that do not answer, silent, have none to show.
func allRecords(ctx context.Context, client standing.Client, members []wire.MemberState) (all []clusterRecord, silent []string) {
	const atOnce = 16
	var mu sync.Mutex
	var wg sync.WaitGroup
	door := make(chan struct{}, atOnce)
	for _, m := range members {
		wg.Go(func() {
			door <- struct{}{}
			defer func() { <-door }()
			records, err := detachedOn(ctx, client, m.Addr)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, m.Host)
				return
			}
			for _, r := range records {
				all = append(all, clusterRecord{m.Host, r, m.Addr, members})
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b clusterRecord) int { return a.Started.Compare(b.Started) })
	slices.Sort(silent)
	return all, silent
}

// detachedOn asks the daemon at addr for the detached jobs of its host.
func detachedOn(ctx context.Context, client standing.Client, addr string) (records []jobs.Record, err error) {
	list, err := client.Detached(ctx, addr)
	if err == nil {
		err = json.Unmarshal(list.Records, &records)
	}
	return records, err
}

// findClusterJob is findJob for a cluster: HOST/NUMBER, a number that only one host has, or the last.
func findClusterJob(ctx context.Context, o *clusterFlags, id string, running bool) (clusterRecord, standing.Client, error) {
	var none clusterRecord
	client, addr, err := clusterOf(ctx, o)
	if err != nil {
		return none, client, err
	}
	ctx, cancel := context.WithTimeout(ctx, introduction)
	defer cancel()
	r, err := findOnHosts(ctx, client, addr, id, running)
	// Who says that another host carries the job on knows of one that did not answer.
	for err == nil && r.State == jobs.Moved && resume.Pause(ctx, heirPause) {
		if later, again := findOnHosts(ctx, client, addr, id, running); again == nil {
			r = later
		}
	}
	return r, client, err
}

// heirPause is when to ask again for the host that carries a job on.
const heirPause = 300 * time.Millisecond

// findOnHosts asks the hosts of a cluster once.
func findOnHosts(ctx context.Context, client standing.Client, addr, id string, running bool) (clusterRecord, error) {
	known, err := client.Members(ctx, addr)
	if err != nil {
		return clusterRecord{}, explainCluster(addr, err)
	}
	all, silent := detachedJobs(ctx, client, known.Members)
	r, err := chooseJob(all, id, running)
	r.members = known.Members
	if err != nil {
		err = unfound(err, silent, addr)
	}
	return r, err
}

// unfound tells what to do about a job that is not on the hosts that answer.
func unfound(err error, silent []string, addr string) error {
	if silent == nil {
		return &usageError{err, "gorun ps --cluster " + addr + " lists them"}
	}
	return &usageError{fmt.Errorf("%w; no answer from %s", err, strings.Join(silent, ", ")),
		"if the job's launcher was there, another host carries it on when its lease is over: ask again"}
}

func chooseJob(all []clusterRecord, id string, running bool) (clusterRecord, error) {
	var fits []clusterRecord
	for _, r := range all {
		if id == "" || id == r.name() || id == r.number() {
			fits = append(fits, r)
		}
	}
	switch {
	case len(fits) == 0 && id == "":
		return clusterRecord{}, errors.New("the cluster has no detached jobs")
	case len(fits) == 0:
		return clusterRecord{}, fmt.Errorf("find job %s: %w", id, jobs.ErrNone)
	case id == "":
		for _, r := range slices.Backward(fits) {
			if r.State == jobs.Running {
				return r, nil
			}
		}
		if running {
			return clusterRecord{}, jobs.ErrIdle
		}
	case len(fits) > 1:
		return clusterRecord{}, fmt.Errorf("find job %s: %s and %s are called so", id, fits[0].name(), fits[1].name())
	}
	return fits[len(fits)-1], nil
}

// found is the job as those of this machine are.
func (r clusterRecord) found(client standing.Client) found {
	f := found{Record: r.Record, name: r.name()}
	f.Job, f.output = r.reach(client)
	if r.Authority == "" {
		return f
	}
	f.next = func(ctx context.Context) (found, bool) {
		ctx, cancel := context.WithTimeout(ctx, introduction)
		defer cancel()
		all, _ := detachedJobs(ctx, client, r.members)
		for _, x := range all {
			if x.Authority == r.Authority && (x.Term > r.Term || x.Term == r.Term && x.State == jobs.Ended) {
				return x.found(client), true
			}
		}
		return found{}, false
	}
	f.runs = func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, introduction)
		defer cancel()
		records, err := detachedOn(ctx, client, r.addr)
		return err == nil && slices.ContainsFunc(records, func(x jobs.Record) bool {
			return x.Authority == r.Authority && x.Term == r.Term && x.State == jobs.Running
		})
	}
	return f
}

// introduction is how long hosts may take to say which jobs they have.
const introduction = 10 * time.Second

// reach returns the job as others are, and a reader of its output.
func (r clusterRecord) reach(client standing.Client) (jobs.Job, openOutput) {
	to := func(ctx context.Context, what wire.Reach) (net.Conn, error) {
		what.Job = r.ID
		conn, err := client.Reach(ctx, r.addr, what)
		if err != nil {
			return nil, fmt.Errorf("reach job %s: %w", r.name(), err)
		}
		return conn, nil
	}
	return jobs.Job{Dial: func(ctx context.Context) (net.Conn, error) { return to(ctx, wire.Reach{}) }},
		func(ctx context.Context, lines int, follow bool) (io.ReadCloser, error) {
			return to(ctx, wire.Reach{Output: true, Lines: lines, Follow: follow})
		}
}
