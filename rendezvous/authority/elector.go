// Package authority decides which host's launcher holds a detached job, so that the job outlives that host. It is two
// pure state machines: an Elector on some hosts of the cluster, and the Holder, which is the launcher that holds the
// job. Neither does I/O, has a clock or a goroutine; the caller drives each from one goroutine or under one lock.
//
// A launcher has a term. It writes to the electors whatever its successor would need, and acts on a decision once a
// majority of them has stored it. When the launcher has been silent for its lease, electors become candidates, the
// first in their list first. A candidate that wins a majority starts a launcher with a greater term and the latest
// value that any voter has stored. By voting an elector promises to accept nothing from smaller terms any more. Two
// majorities share an elector, therefore:
//
//   - every later launcher knows what an earlier one acted on, and no two act on different decisions with one number;
//   - a launcher that was cut off while another took over can decide nothing any more: the first elector it reaches
//     refuses it;
//   - a minority can only wait.
//
// The launcher replaces electors that have been silent for its lease, so that a job outlives one loss after another. A
// value belongs to the set of electors that comes with it; changing the set is agreed upon like any other value. Each
// set differs from the previous one by one elector, and follows only after a majority of that set has stored it in the
// launcher's own term, so consecutive majorities share an elector too (Ongaro, "Consensus: Bridging Theory and
// Practice", section 4.1, and his correction of July 2015). An election counts by the set of the latest value that a
// voter has stored; an elector that learns that it has been removed gives up its candidacy. A replacement, which has
// stored the value by then, joins before the lost elector leaves: the even set in between tolerates as many losses as
// the odd set before it, and the lost one counts if it returns while yet another fails.
//
// An elector that has lost its saved state has no vote, but stores what it receives in any term, as an invited one
// does. The daemons of the job refuse a launcher of a smaller term too; package resume does that.
package authority

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// startGrace is how much longer than its lease a launcher that is still starting may be silent.
const startGrace = 10 * time.Second

// slowest is how many bytes of a value have to come in a second: it may list the files of a program.
const slowest = 32 << 10

// Patient returns a limit for what comes with so many bytes.
func Patient(limit time.Duration, bytes int) time.Duration {
	return limit + time.Second*time.Duration(bytes/slowest)
}

// Fewest and Most bound how many electors a job starts with. Of two, one that is cut off cannot know whether the other
// is dead.
const Fewest, Most = 3, 5

// SuccessionTimeout is how long the hosts of a job wait for another launcher once the previous one is known to be dead.
const SuccessionTimeout = time.Minute

// State is what an elector knows of a job. It must be saved before any answer that depends on it is sent.
type State struct {
	Job   string
	Lease time.Duration

	Promised  uint64 // the greatest term it voted for or heard of
	Candidate string // its vote in that term, "" if it has not voted

	Term, Seq uint64 // of Value
	Holder    string // the host of the launcher that wrote it
	Electors  []string
	Value     []byte
	Over      bool
}

// Event is what happened to an elector: a *wire.Keep, a *wire.Vote, Voted or Tick.
type Event any

// Voted is the answer of another elector.
type Voted struct {
	From string
	wire.Voted
}

// Tick reports that time has passed.
type Tick struct {
	// LauncherGone reports that no launcher of the job runs on this elector's own host.
	LauncherGone bool
}

// Actions are what to do, in the order of the fields.
type Actions struct {
	Save   bool         // the State, before anything else
	Answer wire.Message // the reply to Keep or Vote
	Ask    *wire.Vote   // to send to Of; their answers are Voted events
	Of     []string
	Lead   *Snapshot // start a launcher on this host
	// QuorumLost, if not 0, is the number of electors that are left, too few and for so long that the job has ended.
	// The caller must report it, because no other host can. If the others return, a launcher may still be elected.
	QuorumLost int
	// QuorumBack withdraws that report, if it was made: the job is alive.
	QuorumBack bool
}

// Snapshot is what a launcher that takes a job over starts from.
type Snapshot struct {
	Term, Seq uint64
	Electors  []string
	Value     []byte
}

// Elector is one elector of one job.
type Elector struct {
	self           string
	state          State
	heard          time.Duration         // when the launcher, or a candidate that got this vote, was last heard
	floor          uint64                // the greatest term known to other electors
	candidateSince time.Duration         // when the current candidacy started
	candidacy      uint64                // the term it is a candidate for, 0 if none
	probing        bool                  // it asks for promises and has not voted for itself yet
	votes          map[string]wire.Voted // the answers, by elector
	reported       bool                  // QuorumLost was returned
	mayBeReported  bool                  // QuorumLost may have been returned, perhaps before a restart, and not withdrawn
}

// NewElector returns the elector of a host with its saved state.
func NewElector(self string, saved State, now time.Duration) *Elector {
	return &Elector{self: self, state: saved, heard: now, mayBeReported: saved.Job != ""}
}

// State returns what must be saved. Its slices are not changed in place.
func (e *Elector) State() State { return e.state }

// Heard returns when the launcher was last heard. It is in the future while a new one is given time to start.
func (e *Elector) Heard() time.Duration { return e.heard }

// Take calls Step and saves the state if needed. If saving fails, the event has no effect: the elector keeps its
// previous state and has promised nothing.
func (e *Elector) Take(now time.Duration, ev Event, save func(State) error) (Actions, error) {
	before := *e
	before.votes = maps.Clone(e.votes)
	a := e.Step(now, ev)
	if a.Save {
		if err := save(e.state); err != nil {
			*e = before
			return Actions{}, err
		}
	}
	return a, nil
}

// Step handles an event. now is the time since some fixed moment.
func (e *Elector) Step(now time.Duration, ev Event) Actions {
	switch ev := ev.(type) {
	case *wire.Keep:
		return e.keep(now, ev)
	case *wire.Vote:
		return e.vote(now, ev)
	case Voted:
		return e.voted(now, ev)
	case Tick:
		return e.tick(now, ev.LauncherGone)
	}
	return Actions{}
}

// keep stores what a launcher writes, unless a later launcher is known.
func (e *Elector) keep(now time.Duration, k *wire.Keep) (a Actions) {
	s := &e.state
	if k.Term < s.Promised {
		return Actions{Answer: &wire.Kept{Term: s.Promised}}
	}
	if s.Job == "" && k.Value == nil { // a sign of life: an elector without a value must not vote
		return Actions{Answer: &wire.Kept{Term: k.Term}}
	}
	if s.Job == "" {
		s.Job, s.Electors, s.Lease = k.Job, k.Electors, time.Duration(k.LeaseMS)*time.Millisecond
	}
	if k.Term > s.Promised {
		s.Promised, s.Candidate, a.Save = k.Term, "", true
	}
	if k.Value != nil && (k.Term > s.Term || k.Seq > s.Seq) {
		s.Term, s.Seq, s.Holder, s.Electors, s.Value, s.Over, a.Save = k.Term, k.Seq, k.Holder, k.Electors, k.Value, k.Over, true
		s.Lease = time.Duration(k.LeaseMS) * time.Millisecond // it may have grown
	}
	a.QuorumBack = e.mayBeReported
	e.heard, e.candidacy, e.reported, e.mayBeReported = now, 0, false, false
	kept := &wire.Kept{Term: k.Term}
	if s.Term == k.Term {
		kept.Seq = s.Seq
	}
	a.Answer = kept
	return a
}

// vote grants one vote in a term, and none while the launcher is heard, unless the candidate is the launcher's own
// host, which knows that it is dead, and no successor is known.
func (e *Elector) vote(now time.Duration, v *wire.Vote) Actions {
	s := &e.state
	again := v.Term == s.Promised && v.Candidate == s.Candidate
	home := v.Candidate == s.Holder && s.Promised == s.Term
	fresh := v.Term > s.Promised && (home || now-e.heard >= s.Lease)
	answer := e.known()
	switch {
	case s.Job == "" || s.Over || !again && !fresh:
		return Actions{Answer: &answer}
	case v.Probe:
		answer.Granted, answer.Probe, answer.Term = true, true, v.Term
		return Actions{Answer: &answer}
	}
	s.Promised, s.Candidate = v.Term, v.Candidate
	e.heard, e.candidacy = now+Patient(startGrace, len(s.Value)), 0
	vote := e.ballot()
	return Actions{Save: fresh, Answer: &vote}
}

// known returns which value this elector has stored.
func (e *Elector) known() wire.Voted {
	s := e.state
	return wire.Voted{Term: s.Promised, Over: s.Over, Written: s.Term, Seq: s.Seq, Electors: s.Electors}
}

// ballot returns this elector's vote in the term it promised.
func (e *Elector) ballot() wire.Voted {
	vote := e.known()
	vote.Granted, vote.Value = true, e.state.Value
	return vote
}

// later reports whether a has a later value than b.
func later(a, b wire.Voted) bool {
	return a.Written > b.Written || a.Written == b.Written && a.Seq > b.Seq
}

// tick becomes a candidate when it is time, and repeats requests that were not answered.
func (e *Elector) tick(now time.Duration, launcherGone bool) Actions {
	s := &e.state
	place := slices.Index(s.Electors, e.self)
	if s.Over || s.Job == "" {
		return Actions{}
	}
	if place < 0 { // only invited: it asks whether the job is over
		if now-e.heard < s.Lease+SuccessionTimeout {
			return Actions{}
		}
		e.heard = now
		return Actions{Ask: &wire.Vote{Job: s.Job, Term: s.Promised + 1, Candidate: e.self, Probe: true}, Of: s.Electors}
	}
	step := s.Lease / 4
	patience := step * time.Duration(1+len(s.Electors))
	if !e.probing { // votes bring the value
		patience = Patient(patience, len(s.Value))
	}
	if e.candidacy != 0 && now-e.candidateSince < patience {
		a := e.ask(s.Electors)
		left := e.answered()
		if !e.reported && e.probing && now-e.heard >= s.Lease+SuccessionTimeout && now-e.candidateSince >= patience/2 && left <= len(s.Electors)/2 {
			e.reported, e.mayBeReported, a.QuorumLost = true, true, left
		}
		return a
	}
	due := e.heard + s.Lease + time.Duration(place)*step
	if launcherGone && s.Holder == e.self && s.Promised == s.Term {
		due = e.heard
	}
	if e.candidacy != 0 {
		due = max(due, e.candidateSince+patience+time.Duration(place)*step)
	}
	if now < due {
		return Actions{}
	}
	e.candidacy, e.probing, e.candidateSince = max(s.Promised, e.floor)+1, true, now
	own := e.known()
	own.Granted = true
	e.votes = map[string]wire.Voted{e.self: own}
	return e.count(now)
}

// answered counts the electors that have answered and know the job, however they vote.
func (e *Elector) answered() (n int) {
	for _, name := range e.state.Electors {
		if len(e.votes[name].Electors) > 0 {
			n++
		}
	}
	return n
}

// ask requests the votes of the electors that have not granted theirs.
func (e *Elector) ask(electors []string) Actions {
	a := Actions{Ask: &wire.Vote{Job: e.state.Job, Term: e.candidacy, Candidate: e.self, Probe: e.probing}}
	for _, name := range electors {
		if !e.votes[name].Granted {
			a.Of = append(a.Of, name)
		}
	}
	return a
}

func (e *Elector) voted(now time.Duration, v Voted) Actions {
	switch {
	case v.Over && !e.state.Over: // the job ended while this host was cut off
		e.state.Over, e.candidacy = true, 0
		return Actions{Save: true}
	case len(v.Electors) > 0 && later(v.Voted, e.known()) && !slices.Contains(v.Electors, e.self):
		return e.stepDown(now)
	case !v.Granted:
		e.floor = max(e.floor, v.Term)
		if e.candidacy != 0 && !e.votes[v.From].Granted {
			e.votes[v.From] = v.Voted
		}
		return Actions{}
	case e.candidacy == 0 || v.Term != e.candidacy || v.Probe != e.probing:
		return Actions{}
	}
	e.votes[v.From] = v.Voted
	return e.count(now)
}

// stepDown ends the candidacy because other electors have taken this one's place. It asks them again after a while, as
// the job may have ended meanwhile.
func (e *Elector) stepDown(now time.Duration) Actions {
	a := Actions{QuorumBack: e.mayBeReported}
	e.candidacy, e.heard, e.reported, e.mayBeReported = 0, now, false, false
	return a
}

// latest returns the vote with the latest value.
func (e *Elector) latest() wire.Voted {
	last := e.votes[e.self]
	for _, v := range e.votes {
		if v.Granted && later(v, last) {
			last = v
		}
	}
	return last
}

// count proceeds once a majority agrees: first to the vote, then to a launcher. Without the first step, a host that was
// cut off would return with a term that deposes the launcher of the others.
func (e *Elector) count(now time.Duration) Actions {
	last, granted := e.latest(), 0
	if !slices.Contains(last.Electors, e.self) {
		return e.stepDown(now)
	}
	for _, name := range last.Electors {
		if e.votes[name].Granted {
			granted++
		}
	}
	if granted <= len(last.Electors)/2 {
		return e.ask(last.Electors)
	}
	if e.probing {
		e.probing = false
		e.state.Promised, e.state.Candidate = e.candidacy, e.self
		e.votes = map[string]wire.Voted{e.self: e.ballot()}
		a := e.count(now)
		a.Save = true
		return a
	}
	won := Snapshot{Term: e.candidacy, Seq: last.Seq, Electors: last.Electors, Value: last.Value}
	e.candidacy, e.heard = 0, now+startGrace
	return Actions{Lead: &won}
}
