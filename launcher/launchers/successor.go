package launchers

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"gorun/launcher"
	"gorun/launcher/failure"
	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// Origin returns the daemon that has started the launcher, and whether one has.
func (l *Launcher) Origin() (Origin, bool) {
	if l == nil || l.origin.Addr == "" {
		return Origin{}, false
	}
	return l.origin, true
}

// Successor reports whether the launcher continues a job that another one began.
func (l *Launcher) Successor() bool { return l != nil && l.from != nil }

// Identify names the job in a request for slots. If another launcher of the job has reserved slots already, it adds
// these to the request and returns true.
func (l *Launcher) Identify(r *wire.Reserve) (held bool) {
	if l == nil {
		return false
	}
	record := l.listed.Record()
	r.Job, r.Term = record.Authority, record.Term
	if l.from == nil {
		return false
	}
	r.Held = l.from.Handover.Shares
	return true
}

// Replicate prepares other hosts of the cluster to continue the job, if there are enough of them.
func (l *Launcher) Replicate(ctx context.Context, client standing.Client, spec *launcher.Spec, lease *standing.Lease) error {
	if _, hosted := l.Origin(); !hosted || lease == nil || l.request == nil {
		return nil
	}
	known, err := client.Members(ctx, l.origin.Addr)
	if err != nil {
		return fmt.Errorf("find hosts that could carry the job on: %w", err)
	}
	record := l.listed.Record()
	cfg := l.config(client, cmp.Or(spec.Lease, spec.Timing().Lease))
	cfg.Note, cfg.Shares = spec.Note, lease.Shares
	handover := handover{Name: fmt.Sprintf("%s/%d", l.origin.Name, record.ID), Started: record.Started, Request: l.request}
	var snapshot authority.Snapshot
	if from := l.from; from != nil {
		cfg.Lease, snapshot, handover = from.Lease, from.Snapshot, from.Handover
		spec.Snapshot = handover.Launcher
		spec.Note("gorun: job %s goes on by the launcher on %s, since that on %s is gone; what it wrote until now is there",
			handover.Name, l.origin.Name, from.Former)
	} else {
		snapshot.Electors = chooseElectors(l.origin.Name, lease.Shares(), known.Members)
	}
	if snapshot.Electors == nil {
		return nil
	}
	r := newReplicator(record.Authority, snapshot, handover, addressesOf(known.Members), cfg)
	if err := l.listed.Update(func(record *jobs.Record) { record.Started, record.Term = handover.Started, r.Term() }); err != nil {
		return err
	}
	if spec.Elastic != nil {
		spec.Replicator = r
		// Only hosts know whether they have vGPUs, and when they report it, their daemons wait already.
		lease.ReconnectTimeout = max(cfg.Lease, cmp.Or(spec.Lease, spec.Timing().MoveLease)) + authority.SuccessionTimeout
		lease.Silence = cfg.Lease
	} else {
		r.Keep(nil, cfg.Lease)
	}
	l.replicate(r)
	return nil
}

// replicate starts r now if the job was reported to run, and otherwise leaves that to Report.
func (l *Launcher) replicate(r *Replicator) {
	l.mu.Lock()
	l.replicator = r
	reported := l.ready == nil
	l.mu.Unlock()
	if reported {
		r.Start()
	}
}

func (l *Launcher) config(client standing.Client, lease time.Duration) replication {
	return replication{Client: client, Self: l.origin.Name, Home: l.origin.Addr, Lease: lease, Superseded: l.superseded}
}

// RefuseFixed returns the error of a successor whose job has a fixed world, and so cannot continue: with the former
// launcher, a host of the world may be lost. End then reports to the electors that the job is over.
func (l *Launcher) RefuseFixed(client standing.Client) error {
	cfg := l.config(client, l.from.Lease)
	cfg.Shares, cfg.Note = func() []wire.Share { return nil }, func(string, ...any) {}
	addrs := addressesOf(membersOf(context.Background(), client, cfg.Home))
	l.replicate(newReplicator(l.from.Job, l.from.Snapshot, l.from.Handover, addrs, cfg))
	return &failure.HostError{
		Host: l.from.Former, Step: "run", Code: failure.ExitTransport,
		Err:  fmt.Errorf("the launcher of job %s, which ran there, is gone, and with it the job", l.from.Handover.Name),
		Hint: "an elastic job is carried on by another host: gorun --min-np N",
	}
}

// superseded ends the launcher because another one has taken over. What the job has now is the other's, so nothing is
// cleaned up.
func (l *Launcher) superseded(term uint64) {
	fmt.Fprintf(os.Stderr, "gorun: another host carries the job on (launcher %d of it), this launcher stands down\n", term)
	l.listed.Supersede()
	l.exit(failure.ExitFailure)
}
