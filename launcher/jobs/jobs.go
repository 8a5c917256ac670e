// Package jobs keeps a user's jobs. Each has a directory with a record of its state and the socket of its launcher, and
// a job that runs without a terminal also its output.
//
// The directories and sockets are accessible only to the user. They are in the state directory, not in the runtime
// directory, because that one is removed with the user's last login while jobs run on. A launcher that is killed cannot
// record that it ended; a lock that dies with it shows that. Limits says how long jobs are kept when they have ended.
//
// A Target is a job that was found here or in a cluster. Its output and its exit status come from the host of its launcher.
// When that launcher is lost, Attach looks for a successor on all hosts of the cluster and goes on with it.
//
// A Server owns a goroutine for each connection; End waits for all of them. The package starts no process.
package jobs

import (
	"bytes"
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

// Partition is a pair of hosts, Host and To, that do not hear each other.
type Partition struct {
	Host  string    `json:"host"`
	To    string    `json:"to"`
	Since time.Time `json:"since"`
}

// Record describes a job.
type Record struct {
	ID      int       `json:"id"`
	Program string    `json:"program"`
	Ranks   int       `json:"ranks"`
	Hosts   []string  `json:"hosts"`
	PID     int       `json:"pid"`     // of the launcher
	Machine string    `json:"machine"` // the launcher's host
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Code    int       `json:"code"`
	Why     string    `json:"why,omitempty"` // the error with which it ended
	State   string    `json:"state"`         // running, ended, moved, lost or bereft; determined when the record is read
	// Foreground jobs have a terminal, or what their user put in place of one; OutputTo names that, if it has a name.
	Foreground bool   `json:"foreground,omitempty"`
	OutputTo   string `json:"output,omitempty"`
	// Stopping is when the launcher was stopped, by StoppedBy.
	Stopping  time.Time `json:"stopping,omitzero"`
	StoppedBy string    `json:"stopped_by,omitempty"`
	// Paused is true while the launcher is stopped by a signal; determined when the record is read.
	Paused bool `json:"paused,omitempty"`
	// Silent lists the hosts that are silent while the job runs, with when they were last heard.
	Silent map[string]time.Time `json:"silent,omitempty"`
	// Partitions lists the hosts that another host does not hear, although the launcher does.
	Partitions []Partition `json:"apart,omitempty"`
	// For a job with failover:
	Authority string `json:"authority,omitempty"` // the job's name among the electors
	Term      uint64 `json:"term,omitempty"`      // of this launcher; others may have smaller or greater ones
	Name      string `json:"name,omitempty"`      // the job's name for users, if it started on another host
	Moved     bool   `json:"moved,omitempty"`     // another launcher has taken over
	Abandoned string `json:"deserted,omitempty"`  // why the job ended without a launcher, as another host reports; the launcher's own host is dead
}

// States of a job.
const (
	Running    = "running"
	Ended      = "ended"
	Lost       = "lost"   // its launcher was killed, and the job with it unless another launcher takes over
	Moved      = "moved"  // another launcher has taken over
	Unattended = "bereft" // reported by the electors of a launcher whose host does not answer
)

// Store is the directory of all jobs of a user.
type Store struct{ Dir string }

// Job is one job. Dial, if not nil, connects to its launcher on another machine; then Dir is "".
type Job struct {
	Dir  string
	Dial func(ctx context.Context) (net.Conn, error)
}

// Errors of Find.
var (
	ErrNone   = errors.New("no such job")
	ErrIdle   = errors.New("no job is running") // no job was named
	errNumber = errors.New("not the number of a job")
)

// Create creates the directory of a job and removes jobs that DefaultLimits does not keep. The file is the job's lock,
// which the launcher holds as long as it lives.
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
	}
	for _, old := range DefaultLimits.Expired(known, time.Now(), machine()) {
		s.Remove(old.ID) // the next Create tries again
	}
	for {
		r.ID++
		err := os.Mkdir(s.Job(r.ID).Dir, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) { // else another process was faster
			return fail(err)
		}
	}
	j := s.Job(r.ID)
	lock, err := os.OpenFile(j.file("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		os.RemoveAll(j.Dir)
		return fail(err)
	}
	if err := errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_EX), j.Save(r)); err != nil {
		lock.Close()
		os.RemoveAll(j.Dir)
		return fail(err)
	}
	return j, lock, nil
}

// Remove deletes an ended job.
func (s Store) Remove(id int) error {
	if err := os.RemoveAll(s.Job(id).Dir); err != nil {
		return fmt.Errorf("remove job: %w", err)
	}
	return nil
}

// Job returns the job with a number, which may be none.
func (s Store) Job(id int) Job { return Job{Dir: filepath.Join(s.Dir, strconv.Itoa(id))} }

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
		if r, err := (Job{Dir: filepath.Join(s.Dir, e.Name())}).Load(); err == nil { // else it is being created or removed
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return a.ID - b.ID })
	return out, nil
}

// Find returns the job with a number. Without a number it returns the latest running job or, if none runs and running
// is false, the latest one; a job in the foreground only if there is no other.
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
				return s.Job(n), r, nil
			}
		}
		return Job{}, Record{}, fmt.Errorf("find job %d: %w", n, ErrNone)
	}
	slices.SortStableFunc(all, func(a, b Record) int { return preference(a) - preference(b) })
	if len(all) == 0 || running && all[len(all)-1].State != Running {
		return Job{}, Record{}, ErrIdle
	}
	last := all[len(all)-1]
	return s.Job(last.ID), last, nil
}

// preference ranks jobs by how likely a user who names none means them.
func preference(r Record) (n int) {
	if r.State == Running {
		n += 2
	}
	if !r.Foreground {
		n++
	}
	return n
}

// Output returns the path of the job's output.
func (j Job) Output() string { return j.file("output") }

// Recording returns the path of what its ranks did last, which is there if the job had a reason to record it.
func (j Job) Recording() string { return j.file("flight.jsonl") }

func (j Job) file(name string) string { return filepath.Join(j.Dir, name) }

// Save replaces the record atomically. It does not wait for the disk, since it must not delay a launcher.
func (j Job) Save(r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("save job: %w", err)
	}
	if err := Replace(j.file("job.json"), b); err != nil {
		return fmt.Errorf("save job: %w", err)
	}
	return nil
}

// Replace replaces a file at once, so that readers find a whole one.
func Replace(name string, data []byte) error {
	err := os.WriteFile(name+".new", data, 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		os.Remove(name + ".new")
	}
	return err
}

// Load reads the record, and determines whether the job runs.
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
		r.Paused = r.Machine == machine() && stopped(r.PID)
	default:
		r.State = Lost
	}
	return r, nil
}

// machine is the name of this machine, as records have it.
func machine() string {
	name, _ := os.Hostname() // "" is another machine's
	return name
}

// stopped reports whether a process is stopped by a signal, as far as this system reveals it.
func stopped(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := bytes.Cut(text, []byte(") "))
	return len(state) > 0 && state[0] == 'T'
}

func (j Job) locked() bool {
	f, err := os.Open(j.file("lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
