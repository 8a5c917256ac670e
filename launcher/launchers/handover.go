package launchers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// handover is what a successor needs: what the user asked for, and the state of the launcher.
type handover struct {
	Name     string          `json:"name"` // the job's name for users
	Started  time.Time       `json:"started"`
	Request  *wire.Detach    `json:"request"`
	Shares   []wire.Share    `json:"shares"`
	Launcher json.RawMessage `json:"launcher,omitempty"` // the snapshot of an elastic job's launcher; else null
	Code     int             `json:"code"`               // the exit status of a job that has ended
}

// forget removes what only a successor needs: the environment that the user has given the job, and the job's secret.
func (h *handover) forget() {
	h.Launcher = nil
	if h.Request != nil {
		h.Request = &wire.Detach{Program: h.Request.Program}
	}
}

// succession is what a successor continues.
type succession struct {
	Job      string             `json:"job"`
	Former   string             `json:"former"` // the host of the launcher before
	Lease    time.Duration      `json:"lease"`
	Snapshot authority.Snapshot `json:"legacy"`
	Handover handover           `json:"-"` // decoded from the snapshot
}

// decode reads the handover from the snapshot.
func (s *succession) decode() error { return json.Unmarshal(s.Snapshot.Value, &s.Handover) }

// newSuccession returns what the successor of a launcher needs, given the latest snapshot.
func newSuccession(s authority.State, snapshot authority.Snapshot) (*succession, error) {
	next := &succession{Job: s.Job, Former: s.Holder, Lease: s.Lease, Snapshot: snapshot}
	if err := next.decode(); err != nil {
		return next, fmt.Errorf("read what was left of the job: %w", err)
	}
	if next.Handover.Request == nil {
		return next, errors.New("the snapshot does not say what the job runs")
	}
	return next, nil
}

// errand is what a daemon gives a launcher on standard input: the Origin, the user's request with the paths of that host, and
// what a successor continues. It holds the user's environment and, of a successor, the job's secret, so it is in no file.
type errand struct {
	Origin  Origin       `json:"origin"`
	Request *wire.Detach `json:"request,omitempty"`
	From    *succession  `json:"from,omitempty"`
}

// Text returns what readErrand reads.
func (e errand) Text() ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write errand of the launcher: %w", err)
	}
	return text, nil
}

// readErrand reads all of r. A launcher that no daemon has started finds nothing there.
func readErrand(r io.Reader) (e errand, err error) {
	text, err := io.ReadAll(r)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &e)
	}
	if err == nil && e.From != nil {
		err = e.From.decode()
	}
	if err != nil {
		return errand{}, fmt.Errorf("read errand of the launcher: %w", err)
	}
	return e, nil
}

// recordOf returns the record of a job whose launcher is, or was, on another host.
func recordOf(s authority.State) (jobs.Record, error) {
	var from handover
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

// quorumText describes, in the record of a job, that too few electors are left to continue it.
func quorumText(of, left int) string {
	return fmt.Sprintf("too few hosts are left to elect its launcher (%d of %d)", left, of)
}
