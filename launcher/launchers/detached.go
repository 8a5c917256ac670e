package launchers

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"gorun/launcher"
	"gorun/launcher/failure"
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

const (
	// Variable names the job's directory to a launcher that runs detached. Such a launcher also inherits two descriptors:
	// where to report that the job runs, and the job's lock.
	Variable = "GORUN_DETACHED"
	readyFD  = 3
	lockFD   = 4
	// HostedVariable is set for a launcher that a daemon has started: its user wrote the command for another machine.
	HostedVariable = "GORUN_HOSTED"
)

// JobsIn returns the store of the user's jobs in the state directory.
func JobsIn(stateDir string) jobs.Store { return jobs.Store{Dir: filepath.Join(stateDir, "jobs")} }

// Origin is the daemon that has started a launcher: how the launcher reaches the cluster.
type Origin struct {
	Addr string // of the daemon
	Name string // of the host
	Key  []byte // the text of the cluster's key file, which the launcher may not be able to read
}

// Launcher is what a launcher without a terminal has instead. A launcher with a terminal has nil, on which the methods
// do nothing.
type Launcher struct {
	origin Origin // empty unless one of its daemons has started the launcher
	listed *Registration
	exit   func(code int)

	request *wire.Detach // of the user, in a cluster
	from    *succession  // nil unless this launcher is a successor

	mu         sync.Mutex
	replicator *Replicator // nil if no other host could continue the job
	ready      *os.File    // until something was reported
}

// Open returns the Launcher of this process, whose job Start has made in a directory. exit ends the process; it is
// called when another launcher has taken over.
func Open(dir string, exit func(code int)) (*Launcher, error) {
	unix.CloseOnExec(readyFD)
	unix.CloseOnExec(lockFD) // it stays open to the end
	job := jobs.Job{Dir: dir}
	l := &Launcher{ready: os.NewFile(readyFD, "ready"), exit: exit}
	errand, err := readErrand(os.Stdin)
	if err != nil {
		return nil, err
	}
	l.origin, l.request, l.from = errand.Origin, errand.Request, errand.From
	if l.from != nil {
		l.Report("goes on")
	}
	l.listed, err = openRegistration(job)
	return l, err
}

// Registration is where the job is listed.
func (l *Launcher) Registration() *Registration {
	if l == nil {
		return nil
	}
	return l.listed
}

// Request returns what a daemon was asked for that has started the launcher, with the paths of its host; nil if none has.
func (l *Launcher) Request() *wire.Detach {
	if l == nil {
		return nil
	}
	return l.request
}

// Watch records the launcher's events, and reports that the job runs.
func (l *Launcher) Watch(spec *launcher.Spec) {
	if l == nil {
		return
	}
	ranks := max(len(spec.Placement.Ranks), 1) // an elastic job is under way with its first rank
	started, next := 0, spec.Watch
	spec.Watch = func(e launcher.RankEvent) {
		next(e)
		if !e.Ended {
			started++
		}
		if started == ranks {
			l.Report("runs detached")
		}
	}
}

// Report sends the state of the job to the process that waits in Start. Only the first report counts: after it no one
// waits any more, and other hosts may continue the job.
func (l *Launcher) Report(text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	ready, replicator := l.ready, l.replicator
	l.ready = nil
	l.mu.Unlock()
	if ready == nil {
		return
	}
	fmt.Fprintln(ready, text)
	ready.Close()
	if replicator != nil {
		replicator.Start()
	}
}

// Abandoned records why the job ends, and returns an error if it cannot.
func (l *Launcher) Abandoned(e *failure.MinorityError) error {
	return l.listed.Update(func(r *jobs.Record) { r.Abandoned = quorumText(e.Of, e.Left) })
}

// End records the end of the job, with the error that was reported, and reports it to the electors and to clients that
// wait.
func (l *Launcher) End(code int, why string) {
	if l == nil {
		return
	}
	l.replicator.Close(code)
	l.listed.End(code, why)
}
