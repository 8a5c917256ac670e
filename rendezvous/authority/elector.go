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
// The electors of a job are those of its beginning and never change. One that has lost what it saved counts as down.
// What is not here: that the daemons of the job refuse a launcher of a smaller term too, which is package resume's.
package authority

import (
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// beginning is how much longer than its lease a launcher may be silent that has yet to begin.
const beginning = 10 * time.Second

// Succession is how long the hosts of a job wait for another launcher, after it is known that the former is gone.
const Succession = time.Minute

// State is what an elector knows of a job. It must be saved before anything is answered that follows from it.
type State struct {
	Job      string
	Electors []string
	Lease    time.Duration

	Promised  uint64 // the greatest term that was voted for or heard of
	Candidate string // who was voted for in it, "" if nobody was

	Term, Seq uint64 // of Value
	Holder    string // the host of the launcher that wrote it
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
}

// Legacy is what a launcher begins with that takes a job over.
type Legacy struct {
	Term, Seq uint64
	Value     []byte
}

// Elector is one elector of one job.
type Elector struct {
	self     string
	state    State
	heard    time.Duration // when the launcher, or a candidate that was voted for
	floor    uint64        // the greatest term that others know of
	began    time.Duration // of the candidacy
	standing uint64        // the term that this elector stands for, 0 for none
	probing  bool          // it has not voted for itself yet
	votes    map[string]wire.Voted
	told     bool // that nobody can carry the job on
}

// NewElector returns the elector of a host, with what it saved.
func NewElector(self string, saved State, now time.Duration) *Elector {
	return &Elector{self: self, state: saved, heard: now}
}

// State is what is to be saved. Its slices are not changed in place.
func (e *Elector) State() State { return e.state }

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
		s.Term, s.Seq, s.Holder, s.Value, s.Over, a.Save = k.Term, k.Seq, k.Holder, k.Value, k.Over, true
		s.Lease = time.Duration(k.LeaseMS) * time.Millisecond // longer than at first, perhaps
	}
	e.heard, e.standing, e.told = now, 0, false
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
	switch {
	case s.Job == "" || s.Over || !again && !fresh:
		return Actions{Answer: &wire.Voted{Term: s.Promised, Over: s.Over}}
	case v.Probe:
		return Actions{Answer: &wire.Voted{Granted: true, Probe: true, Term: v.Term}}
	}
	s.Promised, s.Candidate = v.Term, v.Candidate
	e.heard, e.standing = now+beginning, 0
	return Actions{Save: fresh, Answer: e.ballot()}
}

// ballot is this elector's vote in the term that it promised.
func (e *Elector) ballot() *wire.Voted {
	s := e.state
	return &wire.Voted{Granted: true, Term: s.Promised, Over: s.Over, Written: s.Term, Seq: s.Seq, Value: s.Value}
}

// tick stands for election when it is time, and asks again who has not answered.
func (e *Elector) tick(now time.Duration, bereft bool) Actions {
	s := &e.state
	place := slices.Index(s.Electors, e.self)
	if s.Over || place < 0 {
		return Actions{}
	}
	step := s.Lease / 4
	patience := step * time.Duration(1+len(s.Electors))
	if e.standing != 0 && now-e.began < patience {
		a := e.ask()
		if !e.told && e.probing && now-e.heard >= s.Lease+Succession && now-e.began >= patience/2 {
			e.told, a.Deserted = true, len(e.votes)
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
	e.votes = map[string]wire.Voted{e.self: {}}
	return e.count(now)
}

func (e *Elector) ask() Actions {
	a := Actions{Ask: &wire.Vote{Job: e.state.Job, Term: e.standing, Candidate: e.self, Probe: e.probing}}
	for _, name := range e.state.Electors {
		if _, voted := e.votes[name]; !voted {
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
	case !v.Granted:
		e.floor = max(e.floor, v.Term)
		return Actions{}
	case e.standing == 0 || v.Term != e.standing || v.Probe != e.probing:
		return Actions{}
	}
	e.votes[v.From] = v.Voted
	return e.count(now)
}

// count goes on when a majority agrees: first to the vote, then to a launcher. Without the first step a host that was
// away would come back with a term that ends the launcher of the others.
func (e *Elector) count(now time.Duration) Actions {
	s := &e.state
	if len(e.votes) <= len(s.Electors)/2 {
		return e.ask()
	}
	if e.probing {
		e.probing = false
		s.Promised, s.Candidate = e.standing, e.self
		e.votes = map[string]wire.Voted{e.self: *e.ballot()}
		a := e.count(now)
		a.Save = true
		return a
	}
	last := Legacy{Term: e.standing}
	var written uint64
	for _, v := range e.votes {
		if v.Written > written || v.Written == written && v.Seq >= last.Seq {
			written, last.Seq, last.Value = v.Written, v.Seq, v.Value
		}
	}
	e.standing, e.heard = 0, now+beginning
	return Actions{Lead: &last}
}
