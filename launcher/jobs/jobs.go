// Package jobs keeps jobs that run without a terminal: a directory for each, with what it is, its output, and
// a socket at which its launcher can be spoken to.
//
// The directories are the user's alone, and so are the sockets in them. They lie in the state directory, not
// in the runtime directory, because that one goes away with the user's last login and jobs stay. A launcher
// that is killed cannot write that it ended: a lock that dies with it tells.
//
// A Server owns a goroutine for each connection; End waits for all of them. Nothing here starts a process.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// keep is how long a job that has ended is remembered.
const keep = 30 * 24 * time.Hour

// Apart are two hosts of which one does not hear the other.
type Apart struct {
	Host  string    `json:"host"`
	To    string    `json:"to"`
	Since time.Time `json:"since"`
}

// Record is what is known about a job.
type Record struct {
	ID      int       `json:"id"`
	Program string    `json:"program"`
	Ranks   int       `json:"ranks"`
	Hosts   []string  `json:"hosts"`
	PID     int       `json:"pid"`     // of the launcher
	Machine string    `json:"machine"` // on which it runs
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Code    int       `json:"code"`
	State   string    `json:"state"` // running, ended, moved, lost or bereft; found out when it is read
	// Silent are hosts of which nothing is heard while the job runs, with when they were last heard.
	Silent map[string]time.Time `json:"silent,omitempty"`
	// Apart are hosts that another one does not hear, although the launcher does.
	Apart []Apart `json:"apart,omitempty"`
	// Of a job that other hosts carry on if this one is lost:
	Authority string `json:"authority,omitempty"` // by which they know it
	Term      uint64 `json:"term,omitempty"`      // of this launcher: there may be others with smaller or greater ones
	Name      string `json:"name,omitempty"`      // as users call it, if it began on another host
	Moved     bool   `json:"moved,omitempty"`     // another launcher has taken over
	Deserted  string `json:"deserted,omitempty"`  // why nobody has, as another host says, for the launcher's own is gone
}

// States of a job.
const (
	Running = "running"
	Ended   = "ended"
	Lost    = "lost"   // its launcher was killed, and with it the job, unless another carries it on
	Moved   = "moved"  // another launcher carries it on
	Bereft  = "bereft" // say those who may carry it on of a launcher whose host does not answer
)

// Store is the directory of all jobs of a user.
type Store struct{ Dir string }

// Job is one of them. Dial, if it is not nil, connects to its launcher on another machine; then Dir is "".
type Job struct {
	Dir  string
	Dial func(ctx context.Context) (net.Conn, error)
}

// Errors of Find.
var (
	ErrNone   = errors.New("no such job")
	ErrIdle   = errors.New("no job is running") // where none was named
	errNumber = errors.New("not the number of a job")
)

// Create makes room for a job, forgetting those that ended long ago. The file is the job's lock: it is for
// the launcher to hold as long as it lives.
func (s Store) Create(r Record) (Job, *os.File, error) {
	fail := func(err error) (Job, *os.File, error) { return Job{}, nil, fmt.Errorf("make job: %w", err) }
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fail(err)
	}
	known, err := s.List()
	if err != nil {
		return fail(err)
	}
	for _, old := range known {
		r.ID = max(r.ID, old.ID)
		if old.State == Ended && time.Since(old.Ended) > keep || old.State == Lost && time.Since(old.Started) > keep {
			os.RemoveAll(s.job(old.ID).Dir)
		}
	}
	for {
		r.ID++
		err := os.Mkdir(s.job(r.ID).Dir, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) { // somebody else was faster
			return fail(err)
		}
	}
	j := s.job(r.ID)
	lock, err := os.OpenFile(j.file("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_EX), j.Save(r)); err != nil {
		lock.Close()
		return fail(err)
	}
	return j, lock, nil
}

// Remove forgets a job, which must not run.
func (s Store) Remove(id int) error {
	if err := os.RemoveAll(s.job(id).Dir); err != nil {
		return fmt.Errorf("remove job: %w", err)
	}
	return nil
}

func (s Store) job(id int) Job { return Job{Dir: filepath.Join(s.Dir, strconv.Itoa(id))} }

// List returns all jobs, the oldest first.
func (s Store) List() ([]Record, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var out []Record
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if r, err := (Job{Dir: filepath.Join(s.Dir, e.Name())}).Load(); err == nil { // else it is being made, or removed
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return a.ID - b.ID })
	return out, nil
}

// Find returns the job with a number. Without one it is the last that runs or, if none does and any will do,
// the last.
func (s Store) Find(id string, running bool) (Job, Record, error) {
	all, err := s.List()
	if err != nil {
		return Job{}, Record{}, err
	}
	if id != "" {
		n, err := strconv.Atoi(id)
		if err != nil {
			return Job{}, Record{}, fmt.Errorf("find job %q: %w", id, errNumber)
		}
		for _, r := range all {
			if r.ID == n {
				return s.job(n), r, nil
			}
		}
		return Job{}, Record{}, fmt.Errorf("find job %d: %w", n, ErrNone)
	}
	for _, r := range slices.Backward(all) {
		if r.State == Running {
			return s.job(r.ID), r, nil
		}
	}
	if len(all) == 0 || running {
		return Job{}, Record{}, ErrIdle
	}
	last := all[len(all)-1]
	return s.job(last.ID), last, nil
}

// Output is the file with what the job wrote.
func (j Job) Output() string { return j.file("output") }

func (j Job) file(name string) string { return filepath.Join(j.Dir, name) }

// Save replaces the record in one step. It does not wait for the disk: launchers write down what they see, and must not stand still for that.
func (j Job) Save(r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("save job: %w", err)
	}
	if err := os.WriteFile(j.file("job.new"), b, 0o600); err != nil {
		return fmt.Errorf("save job: %w", err)
	}
	if err := os.Rename(j.file("job.new"), j.file("job.json")); err != nil {
		return fmt.Errorf("save job: %w", err)
	}
	return nil
}

// Load reads the record, and finds out whether the job runs.
func (j Job) Load() (Record, error) {
	var r Record
	b, err := os.ReadFile(j.file("job.json"))
	if err != nil {
		return r, fmt.Errorf("read job: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read job %s: %w", j.Dir, err)
	}
	switch {
	case r.Moved:
		r.State = Moved
	case !r.Ended.IsZero():
		r.State = Ended
	case j.locked():
		r.State = Running
	default:
		r.State = Lost
	}
	return r, nil
}

func (j Job) locked() bool {
	f, err := os.Open(j.file("lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
