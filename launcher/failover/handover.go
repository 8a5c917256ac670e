package failover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// Handover is what a successor needs: what the user asked for, and the state of the launcher.
type Handover struct {
	Name     string          `json:"name"` // the job's name for users
	Started  time.Time       `json:"started"`
	Request  *wire.Detach    `json:"request"`
	Shares   []wire.Share    `json:"shares"`
	Launcher json.RawMessage `json:"launcher,omitempty"` // the snapshot of an elastic job's launcher; else null
	Code     int             `json:"code"`               // the exit status of a job that has ended
}

// Succession is what a successor finds in its job's directory.
type Succession struct {
	Job      string             `json:"job"`
	Former   string             `json:"former"` // the host of the launcher before
	Lease    time.Duration      `json:"lease"`
	Snapshot authority.Snapshot `json:"legacy"`
	Handover Handover           `json:"-"` // decoded from the snapshot
}

// decode reads the handover from the snapshot.
func (s *Succession) decode() error { return json.Unmarshal(s.Snapshot.Value, &s.Handover) }

// NewSuccession returns what the successor of a launcher needs, given the latest snapshot.
func NewSuccession(s authority.State, snapshot authority.Snapshot) (*Succession, error) {
	next := &Succession{Job: s.Job, Former: s.Holder, Lease: s.Lease, Snapshot: snapshot}
	if err := next.decode(); err != nil {
		return next, fmt.Errorf("read what was left of the job: %w", err)
	}
	if next.Handover.Request == nil {
		return next, errors.New("the snapshot does not say what the job runs")
	}
	return next, nil
}

// Files in the directory of a job, beside the files of package jobs.
const (
	requestFile    = "request"
	successionFile = "inheritance"
)

// WriteRequest leaves what the user asked for in a job's directory.
func WriteRequest(job jobs.Job, r *wire.Detach) error { return write(job, requestFile, r) }

// Write leaves the succession in a job's directory.
func (s *Succession) Write(job jobs.Job) error { return write(job, successionFile, s) }

func write(job jobs.Job, name string, what any) error {
	text, err := json.Marshal(what)
	if err == nil {
		err = os.WriteFile(filepath.Join(job.Dir, name), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write %s of the job: %w", name, err)
	}
	return nil
}

// Read reads what WriteRequest and Write have left in a job's directory, nil for nothing. A successor finds the request
// in the succession.
func Read(job jobs.Job) (request *wire.Detach, from *Succession, err error) {
	for name, to := range map[string]any{requestFile: &request, successionFile: &from} {
		text, err := os.ReadFile(filepath.Join(job.Dir, name))
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
		if err := from.decode(); err != nil {
			return nil, nil, fmt.Errorf("read %s of the job: %w", successionFile, err)
		}
		request = from.Handover.Request
	}
	return request, from, nil
}

// RecordOf returns the record of a job whose launcher is, or was, on another host.
func RecordOf(s authority.State) (jobs.Record, error) {
	var from Handover
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

// QuorumText describes, in the record of a job, that too few electors are left to continue it.
func QuorumText(of, left int) string {
	return fmt.Sprintf("too few hosts are left to elect its launcher (%d of %d)", left, of)
}
