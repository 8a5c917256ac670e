// Package elastic decides who is in a job: which hosts have a daemon, which processes run on them, and
// when the next world begins. It is a pure state machine: events and the time go in, actions come out;
// it does no I/O, has no clock, no random numbers and no goroutine. One goroutine, the launcher's loop,
// calls Step with every event and performs the actions in their order:
//
//	m := elastic.New(elastic.Config{Policy: policy, Jitter: rng.Float64})
//	for _, a := range m.Step(time.Since(start), elastic.HostUp{Host: 3}) {
//		switch a := a.(type) { case elastic.StartHost: … }
//	}
//
// It begins with Discovered, and Tick comes several times a second. A job of fixed size is the same machine
// with the policy Fixed(np), whose rules (fixed.go) end it with the first failure. Those of an elastic job are in
// rules.go.
//
// A process is known by its number, which is never used again; a daemon by its host id, likewise if it was ever up. A
// roster is declarative: what it lists shall run, what it does not list shall stop. Every roster has a
// greater epoch than all before it. This package alone numbers processes, hosts and epochs.
//
// What begins a new epoch:
//   - a process fails or a host is lost: at once, if enough are left, see OnFailure;
//   - discovery offers or withdraws hosts: the processes are notified (HostsChanged), and when all of them
//     have left their world the next one has the new members;
//   - all processes left their world by themselves (shutdown, then init): the same members again.
//
// Survivors keep their processes and their order and come before new processes, so that rank 0 always has the state of
// the training. A process that exits with 0 has finished; from then on the job only winds down: nothing new is started,
// and the others go on, however few they are. Where none of them goes on and none has finished, the next world has new
// processes only, as soon as there are slots: their script loads what it has saved.
package elastic

import (
	"slices"
	"time"
)

// Event is what happened: Discovered, Drain, HostUp, HostEvicted, HostLost, StartFailed, Started, Wanted, Exited, Rejoining,
// Committed, Kept, Interrupted or Tick.
type Event any

// DiscoveredHost is room for processes.
type DiscoveredHost struct {
	Name  string
	Slots int
	// Born, if it is not 0, distinguishes hosts that had one name one after the other, such as a machine before and
	// after a reboot. The bans of the former host do not hold for the latter.
	Born int64
}

// Discovered is the complete list of hosts that there are, in the order in which they should be used.
type Discovered struct{ Hosts []DiscoveredHost }

// Drain has a host that discovery lists be used no more, or again: ranks leave it at a commit, and others take their place
// if there is room.
type Drain struct {
	Host string
	Undo bool
	Move bool // as its machine is to be moved, or has been: that changes nothing about a drain that was ordered otherwise
}

// HostUp reports that the daemon of a StartHost is ready.
type HostUp struct{ Host int }

// HostEvicted reports that a host is given up, although its daemon has not ended, as far as is known.
type HostEvicted struct {
	Host   int
	Own    bool // by the word of its own daemon, which can be reached
	Reason string
}

// StartFailed answers StartLate: the start has waited for these hosts for too long.
type StartFailed struct{ Hosts []int }

// Started reports that a process runs.
type Started struct{ Process int }

// Wanted reports that the world of a Roster with Later is needed now, for example because a process waits for it.
type Wanted struct{}

// HostLost reports that a daemon has ended, cannot be reached or could not be started. It must also follow every
// DropHost, once the daemon is gone: only then is the host's name used again.
type HostLost struct {
	Host   int
	Reason string
	// What is known of the machine, at most one of these. Ended: only its daemon has ended, as when the machine shuts
	// down. Alive: the machine is there, and what keeps it from other hosts, or its daemon from starting, probably
	// lasts. Refused: it refuses the login.
	Ended, Alive, Refused bool
	// Silent is how long the launcher had not heard the daemon.
	Silent time.Duration
}

// Exited reports that a process has ended, or could not be started. Code is 128+n after signal n.
type Exited struct {
	Process, Code int
	Asked         bool   // its daemon has stopped it, of its own accord
	Why           string // why it could not be started, "" if it was
}

// Rejoining reports that a process has left the world of an epoch and waits for the next one. Epoch is 0 for a spare,
// which waits for its first.
type Rejoining struct {
	Process int
	Epoch   uint32
	Why     string // the first of the errors that it last heard there, "" for none
}

// Committed reports that a host has entered the world of an epoch.
type Committed struct {
	Host  int
	Epoch uint32
}

// Kept reports that a process of a host has committed its state in the world of an epoch.
type Kept struct {
	Host  int
	Epoch uint32
}

// Interrupted reports that the present world cannot go on as it is, through no fault of its members.
type Interrupted struct{ Why string }

// Tick reports that time has passed.
type Tick struct{}

// Action is what to do: StartHost, DropHost, HangUp, Roster, Spares, Form, HostsChanged, StartLate, GoesOnWithout,
// ProcessLost, Note or End.
type Action any

// StartHost asks for a daemon. HostUp or HostLost answers.
type StartHost struct {
	Host int // its id
	Name string
}

// DropHost stops a daemon and all that runs there. HostLost answers.
type DropHost struct{ Host int }

// HangUp ends the conversation with a daemon that is given up. HostLost answers.
type HangUp struct{ Host int }

// Roster begins an epoch.
type Roster struct {
	Epoch  uint32
	Places []ProcessPlace // by rank
	Spares []ProcessPlace // that go on waiting for their first world
	Reason string         // why the world before it ends, "" for the first
	Later  bool           // the processes start at once; their world is formed by a later Form
	Quiet  bool           // users need not read of it: its processes asked for it, and no member is new
}

// Spares are all processes that wait for their first world while that of an epoch goes on. Like a roster it is
// declarative.
type Spares struct {
	Epoch  uint32
	Places []ProcessPlace
}

// Form has the hosts form the world of a Roster that was to be formed later.
type Form struct{ Epoch uint32 }

// StartLate reports that a start takes too long. StartFailed answers, unless a host that the start waits for has more
// time.
type StartLate struct{}

// GoesOnWithout reports that the job goes on without a host that was up and is lost.
type GoesOnWithout struct {
	Host int
	Why  string
}

// ProcessLost reports that the job goes on although a process failed.
type ProcessLost struct{ Process int }

// Hosts returns the ids of the hosts with a place, in ascending order.
func (r Roster) Hosts() []int {
	var ids []int
	for _, p := range r.Places {
		ids = append(ids, p.Host)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// ProcessPlace is the place of a process in one epoch. A process keeps its Host and Slot for life; what must not change
// while it lives (its GPU, its cores) depends on Slot. LocalRank has no gaps, so it may change when another process of
// the host leaves.
type ProcessPlace struct {
	Process                               int
	Rank, LocalRank, CrossRank, CrossSize int
	Host, Slot                            int
	New                                   bool // it was in no roster before, and no spare
}

// HostsChanged notifies all processes of an epoch's world that another one could begin. Stamp grows.
type HostsChanged struct {
	Epoch          uint32
	Added, Removed bool
	Stamp          uint64
}

// Note is a line for the user.
type Note struct{ Text string }

// End ends the job. It is the last action.
type End struct {
	Cause   Cause
	Process int    // that failed first, -1 for none
	Host    int    // that was lost first, -1 for none
	Code    int    // of Process
	Why     string // one line; "" for Finished
	// Hosts are all that have failed in a job of fixed size, which was Starting or not.
	Hosts    []int
	Starting bool
}

// Cause is why a job ends.
type Cause int

// Causes.
const (
	Finished      Cause = iota // every process of the last world exited with 0
	ProcessFailed              // and there is no use in going on, or the job's size is fixed
	HostFailed                 // likewise
	TooFew                     // fewer processes than min-np for longer than the elastic timeout
	TooManyResets              // the reset limit
	Divided                    // in a job of fixed size some processes wait for another world, and others have ended
)

func (c Cause) String() string {
	return [...]string{"finished", "process failed", "host failed", "too few", "too many resets", "divided"}[c]
}

// Config describes a job.
type Config struct {
	Policy
	// Ranks, if given, has the host of each rank of the first world, as an index into the first list of hosts. Each
	// host of that list must have as many slots as ranks are placed there. Otherwise ranks are dealt host by host.
	Ranks []int
	// These are for a job of fixed size. With RanksFirst its processes start before its first world, which is formed
	// when one of them asks for it, or FormAfter the start of the last one. StartTimeout limits the time until all
	// processes run, and then the time until their world is formed; 0 for no limit.
	RanksFirst              bool
	FormAfter, StartTimeout time.Duration
	// Jitter returns a number in [0, 1), for cooldowns.
	Jitter func() float64
	// Hears reports whether a host was heard lately: no world begins with spares of one that was not. nil for all.
	Hears func(host int) bool
}

// settle is how long a first world with enough processes waits for hosts that are still starting.
const settle = 3 * time.Second
