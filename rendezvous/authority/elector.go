// Package authority decides which host's launcher speaks for a detached job, so that the job outlives that host. It is
// two pure state machines: an Elector on some hosts of the cluster, and the Holder, which is the launcher that speaks
// now. Neither does I/O, has a clock or a goroutine; the caller owns each with one goroutine, or under one lock.
//
// A launcher has a term, and writes what another one would need to carry the job on to the electors; it acts on what it
// decided when a majority of them has it. Electors hear from it, and when it was silent for its lease they stand for
// election, the first in their list first. Who gets the votes of a majority begins a launcher with a greater term and
// the last value that any of the voters has. A vote is a promise to take nothing from smaller terms any more. Two
// majorities share an elector, therefore:
//
//   - what a launcher acted on is known to all that come after it, and no two of them act on different decisions
//     under one number;
//   - a launcher that was away, and lives on while another has taken over, can decide nothing any more: it is told so
//     by the first elector that it reaches;
//   - a minority does nothing but wait.
//
// The launcher replaces electors of which it has heard nothing for its lease, so that a job outlives one loss after the
// other. A value belongs to the set of electors that comes with it, and with a value the next set is agreed upon like
// anything else. Each set differs from the one before by one elector, and follows only when that was kept by a majority of
// itself, in the launcher's own term: so majorities of two that follow each other share an elector too (Ongaro,
// "Consensus: Bridging Theory and Practice", section 4.1, and what he added in July 2015). Who stands for election counts
// by the set of the latest value that a voter has; an elector that learns that it is in no set any more stands down. Another one,
// which knows the job by then, is let in before a lost one is taken out: the even set between them can do without as many as
// the odd one before, and the lost one counts if it returns meanwhile, when yet another may be gone.
//
// An elector that has lost what it saved has no vote, but keeps what it is told, whatever the term, as one that is let in does.
// What is not here: that the daemons of the job refuse a launcher of a smaller term too, which is package resume's.
package authority

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// beginning is how much longer than its lease a launcher may be silent that has yet to begin.
const beginning = 10 * time.Second

// Fewest and Most bound how many electors a job begins with: with two, one that is alone cannot know whether the other is
// gone.
const Fewest, Most = 3, 5

// Succession is how long the hosts of a job wait for another launcher, after it is known that the former is gone.
const Succession = time.Minute

// State is what an elector knows of a job. It must be saved before anything is answered that follows from it.
type State struct {
	Job   string
	Lease time.Duration

	Promised  uint64 // the greatest term that was voted for or heard of
	Candidate string // who was voted for in it, "" if nobody was

	Term, Seq uint64 // of Value
	Holder    string // the host of the launcher that wrote it
	Electors  []string
	Value     []byte
	Over      bool
}

// Event is what happened to an elector; exactly one field is set.
type Event struct {
	Keep  *wire.Keep
	Vote  *wire.Vote
	Voted *Voted
	Tick  *Tick
}

// Voted is the answer of another elector.
type Voted struct {
	From string
	wire.Voted
}

// Tick says that time passed.
type Tick struct {
	// Bereft says that no launcher of the job lives on this elector's own host.
	Bereft bool
}

// Actions are what to do, in this order.
type Actions struct {
	Save   bool         // the State, before anything else
	Answer wire.Message // to Keep and Vote
	Ask    *wire.Vote   // of those in Of; their answers are Voted events
	Of     []string
	Lead   *Legacy // begin a launcher on this host
	// Deserted, if it is not 0, is how many electors are left, which are too few, for so long that the job has ended: that
	// is to be told, for nobody else can. Should the others return, a launcher may come yet.
	Deserted int
	// Returned takes that back, if it was ever told: the job is heard of again.
	Returned bool
}

// Legacy is what a launcher begins with that takes a job over.
type Legacy struct {
	Term, Seq uint64
	Electors  []string
	Value     []byte
}

// Elector is one elector of one job.
type Elector struct {
	self     string
	state    State
	heard    time.Duration         // when the launcher, or a candidate that was voted for
	floor    uint64                // the greatest term that others know of
	began    time.Duration         // of the candidacy
	standing uint64                // the term that this elector stands for, 0 for none
	probing  bool                  // it has not voted for itself yet
	votes    map[string]wire.Voted // the answers, by elector
	told     bool                  // that nobody can carry the job on
	doubted  bool                  // that may have been told, and not taken back
}

// NewElector returns the elector of a host, with what it saved.
func NewElector(self string, saved State, now time.Duration) *Elector {
	return &Elector{self: self, state: saved, heard: now, doubted: saved.Job != ""}
}

// State is what is to be saved. Its slices are not changed in place.
func (e *Elector) State() State { return e.state }

// Heard is when the launcher was heard, or somebody was who may begin another one: that is in the future, to give it time.
func (e *Elector) Heard() time.Duration { return e.heard }

// Take is Step, and saves what is to be saved. If that fails nothing has happened: the elector goes on with what was saved before,
// for it must not forget that, and has promised nothing.
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

// Step takes an event. now is the time since some fixed moment.
func (e *Elector) Step(now time.Duration, ev Event) Actions {
	switch {
	case ev.Keep != nil:
		return e.keep(now, ev.Keep)
	case ev.Vote != nil:
		return e.vote(now, ev.Vote)
	case ev.Voted != nil:
		return e.voted(now, ev.Voted)
	case ev.Tick != nil:
		return e.tick(now, ev.Tick.Bereft)
	}
	return Actions{}
}

// keep takes what a launcher writes, unless there is a later one.
func (e *Elector) keep(now time.Duration, k *wire.Keep) (a Actions) {
	s := &e.state
	if k.Term < s.Promised {
		return Actions{Answer: &wire.Kept{Term: s.Promised}}
	}
	if s.Job == "" {
		s.Job, s.Electors, s.Lease = k.Job, k.Electors, time.Duration(k.LeaseMS)*time.Millisecond
	}
	if k.Term > s.Promised {
		s.Promised, s.Candidate, a.Save = k.Term, "", true
	}
	if k.Value != nil && (k.Term > s.Term || k.Seq > s.Seq) {
		s.Term, s.Seq, s.Holder, s.Electors, s.Value, s.Over, a.Save = k.Term, k.Seq, k.Holder, k.Electors, k.Value, k.Over, true
		s.Lease = time.Duration(k.LeaseMS) * time.Millisecond // longer than at first, perhaps
	}
	a.Returned = e.doubted
	e.heard, e.standing, e.told, e.doubted = now, 0, false, false
	kept := &wire.Kept{Term: k.Term}
	if s.Term == k.Term {
		kept.Seq = s.Seq
	}
	a.Answer = kept
	return a
}

// vote is granted once in a term, and not while the launcher is heard: unless its own host says that it is gone, and
// nobody else is known to have followed it.
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
	e.heard, e.standing = now+beginning, 0
	vote := e.ballot()
	return Actions{Save: fresh, Answer: &vote}
}

// known says which value this elector has.
func (e *Elector) known() wire.Voted {
	s := e.state
	return wire.Voted{Term: s.Promised, Over: s.Over, Written: s.Term, Seq: s.Seq, Electors: s.Electors}
}

// ballot is this elector's vote in the term that it promised.
func (e *Elector) ballot() wire.Voted {
	vote := e.known()
	vote.Granted, vote.Value = true, e.state.Value
	return vote
}

// later is true if a has a later value than b.
func later(a, b wire.Voted) bool {
	return a.Written > b.Written || a.Written == b.Written && a.Seq > b.Seq
}

// tick stands for election when it is time, and asks again who has not answered.
func (e *Elector) tick(now time.Duration, bereft bool) Actions {
	s := &e.state
	place := slices.Index(s.Electors, e.self)
	if s.Over || s.Job == "" {
		return Actions{}
	}
	if place < 0 { // it was invited, and asks only whether the job is over
		if now-e.heard < s.Lease+Succession {
			return Actions{}
		}
		e.heard = now
		return Actions{Ask: &wire.Vote{Job: s.Job, Term: s.Promised + 1, Candidate: e.self, Probe: true}, Of: s.Electors}
	}
	step := s.Lease / 4
	patience := step * time.Duration(1+len(s.Electors))
	if e.standing != 0 && now-e.began < patience {
		a := e.ask(s.Electors)
		left := e.answered()
		if !e.told && e.probing && now-e.heard >= s.Lease+Succession && now-e.began >= patience/2 && left <= len(s.Electors)/2 {
			e.told, e.doubted, a.Deserted = true, true, left
		}
		return a
	}
	due := e.heard + s.Lease + time.Duration(place)*step
	if bereft && s.Holder == e.self && s.Promised == s.Term {
		due = e.heard
	}
	if e.standing != 0 {
		due = max(due, e.began+patience+time.Duration(place)*step)
	}
	if now < due {
		return Actions{}
	}
	e.standing, e.probing, e.began = max(s.Promised, e.floor)+1, true, now
	own := e.known()
	own.Granted = true
	e.votes = map[string]wire.Voted{e.self: own}
	return e.count(now)
}

// answered is how many electors know the job and can say so, whomever they would vote for.
func (e *Elector) answered() (n int) {
	for _, name := range e.state.Electors {
		if len(e.votes[name].Electors) > 0 {
			n++
		}
	}
	return n
}

// ask asks those electors that have not voted for this one.
func (e *Elector) ask(electors []string) Actions {
	a := Actions{Ask: &wire.Vote{Job: e.state.Job, Term: e.standing, Candidate: e.self, Probe: e.probing}}
	for _, name := range electors {
		if !e.votes[name].Granted {
			a.Of = append(a.Of, name)
		}
	}
	return a
}

func (e *Elector) voted(now time.Duration, v *Voted) Actions {
	switch {
	case v.Over && !e.state.Over: // the job has ended while this host was away
		e.state.Over, e.standing = true, 0
		return Actions{Save: true}
	case len(v.Electors) > 0 && later(v.Voted, e.known()) && !slices.Contains(v.Electors, e.self):
		return e.standDown(now)
	case !v.Granted:
		e.floor = max(e.floor, v.Term)
		if e.standing != 0 && !e.votes[v.From].Granted {
			e.votes[v.From] = v.Voted
		}
		return Actions{}
	case e.standing == 0 || v.Term != e.standing || v.Probe != e.probing:
		return Actions{}
	}
	e.votes[v.From] = v.Voted
	return e.count(now)
}

// standDown leaves it to those who have taken this elector's place. It asks them again when they may have failed, for the
// job may have ended meanwhile.
func (e *Elector) standDown(now time.Duration) Actions {
	a := Actions{Returned: e.doubted}
	e.standing, e.heard, e.told, e.doubted = 0, now, false, false
	return a
}

// latest is the vote with the latest value.
func (e *Elector) latest() wire.Voted {
	last := e.votes[e.self]
	for _, v := range e.votes {
		if v.Granted && later(v, last) {
			last = v
		}
	}
	return last
}

// count goes on when a majority agrees: first to the vote, then to a launcher. Without the first step a host that was
// away would come back with a term that ends the launcher of the others.
func (e *Elector) count(now time.Duration) Actions {
	last, granted := e.latest(), 0
	if !slices.Contains(last.Electors, e.self) {
		return e.standDown(now)
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
		e.state.Promised, e.state.Candidate = e.standing, e.self
		e.votes = map[string]wire.Voted{e.self: e.ballot()}
		a := e.count(now)
		a.Save = true
		return a
	}
	won := Legacy{Term: e.standing, Seq: last.Seq, Electors: last.Electors, Value: last.Value}
	e.standing, e.heard = 0, now+beginning
	return Actions{Lead: &won}
}
