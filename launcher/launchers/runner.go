package launchers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"gorun/launcher/jobs"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// statesTimeout is how long launchers on this host may take to say what they know, and hosts to list their jobs.
const statesTimeout = 2 * time.Second

// Runner runs launchers on this host.
type Runner struct {
	Origin Origin          // for its launchers
	Client standing.Client // asks the cluster for the names of its jobs
	// StateDir returns the user's state directory. A daemon does without one until it starts a launcher.
	StateDir func() (string, error)
	Env      func() []string // of launchers, before what their users ask for
	Log      *slog.Logger
	Files
}

// Files gets and keeps on this host what launchers give the hosts of their jobs.
type Files interface {
	// Fetch is that of standing.Launchers.
	Fetch(ctx context.Context, r *wire.Detach, in <-chan wire.Message, out *wire.Writer) error
	// Place returns the request with the paths of that here, and an error if some of it is missing.
	Place(r *wire.Detach) (*wire.Detach, error)
}

func (h Runner) store() (jobs.Store, error) {
	dir, err := h.StateDir()
	return JobsIn(dir), err
}

// records returns the store of the jobs, and the records in it.
func (h Runner) records() (store jobs.Store, all []jobs.Record, err error) {
	if store, err = h.store(); err == nil {
		all, err = store.List()
	}
	return store, all, err
}

// Start implements standing.Launchers.
func (h Runner) Start(ctx context.Context, r *wire.Detach) (*wire.Detached, error) {
	if len(r.Args) == 0 {
		return nil, errors.New("start launcher: no arguments")
	}
	r, err := h.Place(r)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(r.Dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("start launcher: there is no directory %s here", r.Dir)
	}
	record := jobs.Record{ID: h.lastNumber(ctx), Program: r.Program, Authority: newAuthority(), Term: 1}
	cmd, d, err := h.start(ctx, errand{Request: r}, record)
	if err == nil && d.Code == 0 {
		h.Log.Info("a detached job starts", "job", d.Job, "program", r.Program)
		go h.await(cmd, d.Job, r.Program)
	}
	return d, err
}

// lastNumber returns the greatest number of a job that began here, as far as the hosts that answer know. The record here
// may be gone, with a disk or by gorun clean, while another host carries the job on or shows its output.
func (h Runner) lastNumber(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, statesTimeout)
	defer cancel()
	all, _ := jobs.ListCluster(ctx, h.Client, membersOf(ctx, h.Client, h.Origin.Addr))
	return jobs.LastNumber(all, h.Origin.Name)
}

// await waits for the end of a launcher, and logs how it ended.
func (h Runner) await(cmd *exec.Cmd, job int, program string) {
	cmd.Wait()
	h.Log.Info("a detached job has ended", "job", job, "program", program, "exit", cmd.ProcessState.String())
}

// start starts a launcher, and gives it its errand.
func (h Runner) start(ctx context.Context, e errand, record jobs.Record) (*exec.Cmd, *wire.Detached, error) {
	store, err := h.store()
	if err != nil {
		return nil, nil, err
	}
	e.Origin = h.Origin
	text, err := e.Text()
	if err != nil {
		return nil, nil, err
	}
	cmd := h.command(e.Request)
	// The launcher reads when it has hidden its memory. Nobody else can: what is in a pipe could be had by /proc/PID/fd.
	ours, theirs, err := resume.Pair()
	if err != nil {
		return nil, nil, fmt.Errorf("start launcher: %w", err)
	}
	var sent sync.WaitGroup
	sent.Go(func() {
		ours.Write(text)
		ours.Close()
	})
	cmd.Stdin = theirs
	d, err := Start(ctx, store, cmd, record)
	theirs.Close()
	sent.Wait()
	return cmd, d, err
}

// command returns the launcher that a user asked for.
func (h Runner) command(r *wire.Detach) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", r.Args[1:]...)
	cmd.Args[0] = r.Args[0]
	cmd.Dir = r.Dir
	cmd.Env = slices.Concat(h.Env(), r.Env, []string{HostedVariable + "=1", "GORUN_CLUSTER=" + h.Origin.Addr})
	return cmd
}

// newAuthority returns a job's name among its electors.
func newAuthority() string {
	id := make([]byte, 8)
	rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// List implements standing.Launchers.
func (h Runner) List(standbys []standing.Standby) (*wire.DetachedJobs, error) {
	_, all, err := h.records()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r jobs.Record) bool { return r.Foreground }) // they are no business of the cluster's
	for _, b := range standbys {
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

// States returns what the launchers on this host know of their jobs, of those that answer in time.
func (h Runner) States(ctx context.Context) (states []jobs.State) {
	store, all, err := h.records()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statesTimeout)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, r := range all {
		if r.State != jobs.Running || r.Foreground {
			continue
		}
		asking.Go(func() {
			state, err := store.Job(r.ID).Status(ctx)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			states = append(states, state)
		})
	}
	asking.Wait()
	return states
}

// Asked implements standing.Launchers.
func (h Runner) Asked(line []byte) (what, detail string) { return jobs.Asked(line) }

// Refusal implements standing.Launchers.
func (h Runner) Refusal(answer []byte) string { return jobs.Refusal(answer) }

// Open implements standing.Launchers.
func (h Runner) Open(r *wire.Reach) (io.ReadWriteCloser, error) {
	store, err := h.store()
	if err != nil {
		return nil, err
	}
	job, record, err := store.Find(strconv.Itoa(r.Job), false)
	if err == nil && record.Foreground {
		err = fmt.Errorf("find job %d: %w", r.Job, jobs.ErrNone)
	}
	if err != nil {
		return nil, err
	}
	if r.Output {
		return job.Tail(r.Lines, r.Follow)
	}
	return job.Connect(context.Background())
}
