package launcher

import (
	"fmt"
	"io"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/jobs"
	"gorun/launcher/plan"
	"gorun/launcher/talk"
	"gorun/launcher/why"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// Spec is a job.
type Spec struct {
	wire.JobOptions // for its daemons

	Placement plan.Placement
	Env       []string // of the launcher; filtered for the ranks
	// Programs are what the ranks run: the first program runs as the first ranks, the second as the next, and so on,
	// and the last, which is often the only one, as all that are left.
	Programs []Program
	Version  string // of this binary; daemons of another version are refused

	Elastic *ElasticSpec // nil for a job of fixed size, which Placement describes

	// Replicator keeps what a successor of this launcher would need to carry an elastic job on; nil for no failover.
	// Snapshot is what the former launcher kept, nil if there was none.
	Replicator Replicator
	Snapshot   []byte

	StartTimeout time.Duration // until every rank runs, and then until the hosts have formed their world
	Timeout      time.Duration // of the whole job; 0 for none

	Dial   talk.Dialer
	Files  talk.Files   // what hosts get before their ranks start; nil if they have what ranks run
	Python talk.Pythons // the environment of Python that they get, nil for theirs
	Stdin  io.Reader    // nil for none
	Output Output
	// Progress, if not nil, is called with how far the start has come.
	Progress func(Progress)
	// Watch, if not nil, is called for every rank that starts or ends.
	Watch func(RankEvent)
	// WatchHosts, if not nil, is called for hosts that fall silent, are back or are lost.
	WatchHosts func(HostEvent)
	// Measured, if not nil, is called at the end of the job with what it measured between its hosts.
	Measured func([]topology.Host, []topology.Edge)
	// HostMoves, unless nil, is called when a host reports that it is about to be moved, or was.
	HostMoves func(host string, begins bool, text string)
	// Moves announces moves of hosts, as others see them; nil for none.
	Moves <-chan Move
	// EvictStragglers drains hosts whose ranks slow the job down if enough spares wait elsewhere.
	EvictStragglers bool
	// Drains has ranks leave hosts; nil for none.
	Drains <-chan Drain
	// AskUsage has the daemons report what their ranks use. Used and UsedHost are called with the answers.
	AskUsage <-chan struct{}
	Used     func(rank wire.RankUsage, spare bool)
	UsedHost func(jobs.HostStatus)
	// Whys have the daemons report what their ranks wait for; nil for none.
	Whys <-chan Why
	// Record, if not nil, takes a recording of what the ranks did last. It must not block.
	Record func(*why.Recording)
	// Number, if not nil, returns the number by which gorun's commands find the job, 0 if they do not.
	Number func() int
	// Note prints a line for the user, without a prefix.
	Note func(format string, args ...any)
	// Signals are forwarded to every rank.
	Signals <-chan int
	// Hurry, when closed, makes an ongoing stop immediate (a second Ctrl-C).
	Hurry <-chan struct{}

	formAfter time.Duration // in place of the constant, for tests; 0 for that
}

// Program is what the ranks of a job run, or some of them.
type Program struct {
	Ranks int // ignored for the last program
	Argv  []string
	Dir   string   // working directory of its ranks
	Env   []string // wins over everything else
}

// ElasticSpec makes a job elastic.
type ElasticSpec struct {
	elastic.Policy
	// Hosts delivers all hosts there are, at once and whenever they change.
	Hosts <-chan []elastic.DiscoveredHost
	// Admit is called for every process before it starts, so that Spec.Output takes what it writes.
	Admit func(process int, host string) error
	// World, if not nil, is called for every world before its ranks run, with their number and hosts.
	World func(ranks int, hosts []string)
}

// Replicator replicates the snapshots of a job to the electors, which would start its successor.
type Replicator interface {
	// Keep replicates a snapshot, which replaces all before it, and how long hosts, and the launcher, may be silent
	// from now on. It returns the number of the snapshot.
	Keep(snapshot []byte, lease time.Duration) uint64
	// Kept delivers the number of the latest snapshot that is safe.
	Kept() <-chan uint64
	// Answering returns how many electors there are, how many of them have answered within the lease, and how long the
	// job waits while these are no majority.
	Answering(lease time.Duration) (of, left int, limit time.Duration)
}

// Output takes what ranks write, from one goroutine for each host.
type Output interface {
	Write(rank int, stream wire.OutputStream, data []byte)
	// Close flushes a rank's unfinished line.
	Close(rank int)
	// Tail returns the last lines a rank wrote to standard error.
	Tail(rank int) []string
	// Hurry lets calls of Write return at once from now on. No other method waits for the terminal.
	Hurry()
}

// RankEvent is the start or the end of a rank.
type RankEvent struct {
	Rank   int
	Host   string
	Ended  bool
	Spare  bool // one that started waits for its first world
	Enters bool // such a one neither starts nor ends, but is in a world from now on
	PID    int  // of one that started
	Code   int  // exit status of one that ended
	Signal int  // by which it was killed, 0 if it was not
}

// HostEvent reports that a host is silent, that it is back, or that an elastic job goes on without it.
type HostEvent struct {
	Host  string
	To    string // the one that does not hear it, or does again; "" for the launcher
	State HostState
	Since time.Time // when it was last heard, for one that is silent or back
}

// HostState is the state of a host.
type HostState string

// States of a host.
const (
	HostSilent HostState = "silent"
	HostBack   HostState = "back"
	HostLost   HostState = "lost"
)

// Progress of a start.
type Progress struct {
	Hosts, Reached, Ready, Started, Ranks int
	Waits                                 string // the hosts that keep a start waiting which takes a while; "" if none do
}

// String returns the text of the status line, "" when there is nothing left to wait for.
func (s Progress) String() string {
	waits := ""
	if s.Waits != "" {
		waits = ", waiting for " + s.Waits
	}
	switch {
	case s.Ready < s.Hosts:
		return fmt.Sprintf("gorun: %d/%d hosts reached, %d/%d daemons ready%s", s.Reached, s.Hosts, s.Ready, s.Hosts, waits)
	case s.Started < s.Ranks:
		return fmt.Sprintf("gorun: %d/%d daemons ready, %d/%d ranks started%s", s.Ready, s.Hosts, s.Started, s.Ranks, waits)
	}
	return ""
}

// Move is a move of a host as reported by others, such as vCenter, or the order to leave it.
type Move struct {
	Host   string // its name
	What   string // starts, ends, leaves or returns
	Text   string
	Labels map[string]string // of its place, as in a topology file, if that is known
	By     string            // who reports it
}

// Timing returns the limits that decide whether a host is there.
func (s *Spec) Timing() liveness.Timing { return liveness.Default().Scaled(s.TimeScale) }

// ProgramOf returns the program of a rank.
func (s *Spec) ProgramOf(rank int) Program {
	_, p := s.programOf(rank)
	return p
}

// programOf returns the number of a rank's program, too.
func (s *Spec) programOf(rank int) (number int, p Program) {
	for number, p = range s.Programs {
		if rank < p.Ranks {
			break
		}
		rank -= p.Ranks
	}
	return number, p
}

// watch reports the start or the end of a rank.
func (s *Spec) watch(e RankEvent) {
	if s.Watch != nil {
		s.Watch(e)
	}
}

// formAfter is how long after the start of the last rank its world is formed if no rank asks for it. Until then ranks
// mostly load, and need the CPUs for that.
const formAfter = time.Second
