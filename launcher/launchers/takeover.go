package launchers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
)

// HasLauncher implements standing.Failover. It returns true if the records cannot be read, since one may run then.
func (h Runner) HasLauncher(s authority.State) bool {
	_, all, err := h.records()
	return err != nil || slices.ContainsFunc(all, func(r jobs.Record) bool {
		return r.Authority == s.Job && r.State == jobs.Running
	})
}

// QuorumLost implements standing.Failover. The job gets a record here, as if its launcher had run here and ended.
func (h Runner) QuorumLost(s authority.State, left int) error {
	r, err := recordOf(s)
	if err != nil {
		return err
	}
	store, all, err := h.records()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(r jobs.Record) bool { return r.Authority == s.Job && r.Term >= s.Term }) {
		return nil
	}
	r.Ended, r.Code, r.Machine = time.Now(), failure.ExitTransport, h.Origin.Name
	r.Abandoned = quorumText(len(s.Electors), left)
	job, lock, err := store.Create(r)
	if err != nil {
		return err
	}
	defer lock.Close()
	text := fmt.Sprintf("gorun: error: %s: run: the launcher of job %s, which ran there, is gone, and with it the job: %s\n"+
		"gorun: hint: what it wrote is on %[1]s; a cluster of five or more hosts survives the loss of two at once\n", s.Holder, r.Name, r.Abandoned)
	if err := os.WriteFile(job.Output(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("keep output of the job: %w", err)
	}
	return nil
}

// QuorumBack implements standing.Failover. It removes only records of QuorumLost, which no launcher has written.
func (h Runner) QuorumBack(s authority.State) error {
	store, all, err := h.records()
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Authority == s.Job && r.Abandoned != "" && r.PID == 0 && r.Machine == h.Origin.Name {
			if err := store.Remove(r.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// TakeOver implements standing.Failover.
func (h Runner) TakeOver(s authority.State, snapshot authority.Snapshot) {
	go func() {
		from, err := newSuccession(s, snapshot)
		if err == nil {
			err = h.succeed(from)
		}
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			h.Log.Warn("carry a job on", "job", from.Handover.Name, "err", err)
		}
	}()
}

// succeed starts a successor and waits for its end.
func (h Runner) succeed(from *succession) error {
	record, err := recordOf(authority.State{Job: from.Job, Term: from.Snapshot.Term, Value: from.Snapshot.Value})
	if err != nil {
		return err
	}
	r, err := h.Place(from.Handover.Request)
	if err != nil { // ranks that run have it; hosts that join will not get it
		h.Log.Warn("carry a job on", "job", from.Handover.Name, "err", err)
	}
	cmd, _, err := h.start(context.Background(), errand{Request: r, From: from}, record)
	if err != nil {
		return err
	}
	return cmd.Wait()
}
