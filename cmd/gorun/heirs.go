package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// What a host of a cluster keeps of jobs whose launchers run on others, so that it can begin a launcher in their place.

// overFor is how long a job that has ended is remembered, for hosts that were away when it did.
const overFor = 24 * time.Hour

// bequest is what the next launcher of a job needs: what its user asked for, and where the former one was.
type bequest struct {
	Name     string          `json:"name"` // as users call it
	Started  time.Time       `json:"started"`
	Request  *wire.Detach    `json:"request"`
	Shares   []wire.Share    `json:"shares"`
	Launcher json.RawMessage `json:"launcher,omitempty"` // null for a job that is not elastic
	Code     int             `json:"code"`               // of one that has ended
}

// inheritance is what a launcher finds that is to carry a job on.
type inheritance struct {
	Job     string             `json:"job"`
	Former  string             `json:"former"` // the host of the launcher before
	Lease   time.Duration      `json:"lease"`
	Legacy  authority.Snapshot `json:"legacy"`
	bequest bequest
}

// Files in the directory of a job, beside those of package jobs.
const (
	requestFile     = "request"
	inheritanceFile = "inheritance"
)

// readInherited reads what was left in a job's directory, nil for nothing.
func readInherited(dir string) (*wire.Detach, *inheritance, error) {
	var request *wire.Detach
	var from *inheritance
	for name, to := range map[string]any{requestFile: &request, inheritanceFile: &from} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read %s of the job: %w", name, err)
		}
	}
	if from != nil {
		if err := json.Unmarshal(from.Legacy.Value, &from.bequest); err != nil {
			return nil, nil, fmt.Errorf("read inheritance of the job: %w", err)
		}
		request = from.bequest.Request
	}
	return request, from, nil
}

// leave writes a file for the launcher of a job.
func leave(job jobs.Job, name string, what any) error {
	text, err := json.Marshal(what)
	if err == nil {
		err = os.WriteFile(filepath.Join(job.Dir, name), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write %s of the job: %w", name, err)
	}
	return nil
}

// heirDir is where the host's electors save what they must not forget. Hosts may share a home.
func (h hosting) heirDir() (string, error) {
	store, err := jobStore()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(store.Dir), "heirs", h.name), nil
}

// Load implements standing.Failover.
func (h hosted) Load() ([]authority.State, error) {
	dir, err := h.heirDir()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list jobs to carry on: %w", err)
	}
	var out []authority.State
	var errs []error
	for _, file := range files {
		var s authority.State
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read job to carry on: %w", err))
			continue
		}
		if info, err := os.Stat(file); s.Over && err == nil && time.Since(info.ModTime()) > overFor {
			os.Remove(file)
			continue
		}
		out = append(out, s)
	}
	return out, errors.Join(errs...)
}

// Save implements standing.Failover.
func (h hosted) Save(s authority.State) error {
	fail := func(err error) error { return fmt.Errorf("keep job %s: %w", s.Job, err) }
	dir, err := h.heirDir()
	if err != nil {
		return fail(err)
	}
	if s.Job == "" || strings.Trim(s.Job, "0123456789abcdef") != "" {
		return fail(errors.New("not the name of a job"))
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	file, err := os.CreateTemp(dir, "new-*") // nobody else can read it: it holds the job's secret
	if err != nil {
		return fail(err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(dir, s.Job+".json"))
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// syncDir has the disk know the names in a directory: a file that was renamed may have its former name after a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// HasLauncher implements standing.Failover.
func (h hosted) HasLauncher(s authority.State) bool {
	_, all, err := recorded()
	return err != nil || slices.ContainsFunc(all, func(r jobs.Record) bool { return r.Authority == s.Job && r.State == jobs.Running }) // without records there is no knowing
}

// whyDeserted is what a record says of a job that nobody can carry on.
func whyDeserted(of, left int) string {
	return fmt.Sprintf("of %d hosts that decide who carries it on, %d can", of, left)
}

// recordOf is the record of a job whose launcher is, or was, on another host.
func recordOf(s authority.State) (jobs.Record, error) {
	var from bequest
	if err := json.Unmarshal(s.Value, &from); err != nil {
		return jobs.Record{}, fmt.Errorf("read what was left of the job: %w", err)
	}
	r := jobs.Record{Name: from.Name, Started: from.Started, Authority: s.Job, Term: s.Term, Machine: s.Holder}
	if from.Request != nil {
		r.Program = from.Request.Program
	}
	for _, share := range from.Shares {
		r.Hosts = append(r.Hosts, share.Host)
		r.Ranks += share.Slots
	}
	return r, nil
}

// QuorumLost implements standing.Failover. The job has a record here, as if its launcher had been here and had ended.
func (h hosted) QuorumLost(s authority.State, left int) error {
	r, err := recordOf(s)
	if err != nil {
		return err
	}
	store, all, err := recorded()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(r jobs.Record) bool { return r.Authority == s.Job && r.Term >= s.Term }) {
		return nil
	}
	r.Ended, r.Code, r.Machine, r.Abandoned = time.Now(), launcher.ExitTransport, h.name, whyDeserted(len(s.Electors), left)
	job, lock, err := store.Create(r)
	if err != nil {
		return err
	}
	defer lock.Close()
	text := fmt.Sprintf("gorun: error: %s: run: the launcher of job %s, which ran there, is gone, and with it the job: %s\n"+
		"gorun: hint: what it wrote is on %[1]s; of a cluster of five hosts and more, two may be lost at once\n", s.Holder, r.Name, r.Abandoned)
	if err := os.WriteFile(job.Output(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("keep output of the job: %w", err)
	}
	return nil
}

// QuorumBack implements standing.Failover. Only records of QuorumLost go: no launcher has written them.
func (h hosted) QuorumBack(s authority.State) error {
	store, all, err := recorded()
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Authority == s.Job && r.Abandoned != "" && r.PID == 0 && r.Machine == h.name {
			if err := store.Remove(r.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// TakeOver implements standing.Failover. The launcher holds a goroutine, to its end or to that of this process.
func (h hosted) TakeOver(s authority.State, l authority.Snapshot) {
	from := &inheritance{Job: s.Job, Former: s.Holder, Lease: s.Lease, Legacy: l}
	go func() {
		record, err := recordOf(authority.State{Job: s.Job, Term: l.Term, Value: l.Value})
		if err == nil {
			err = json.Unmarshal(l.Value, &from.bequest)
		}
		if err == nil && from.bequest.Request == nil {
			err = errors.New("nobody said what it runs")
		}
		if err == nil {
			cmd := h.command(from.bequest.Request)
			if _, err = startDetached(context.Background(), cmd, record, func(job jobs.Job) error { return leave(job, inheritanceFile, from) }); err == nil {
				err = cmd.Wait()
			}
		}
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			h.log.Warn("carry a job on", "job", from.bequest.Name, "err", err)
		}
	}()
}
