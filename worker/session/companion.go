package session

import (
	"fmt"
	"slices"

	"gorun/collective"
	"gorun/worker/session/codec"
)

// A process that speaks the protocol in two languages has two connections, and is one rank all the same. The first one
// is its session. The others, its companions, submit operations of the same rank in the same world, and have handles
// and memory of their own; what they allocate counts together. They come and go as they like, while the session decides
// when the rank joins a world and when it leaves. They have no slots, and no part in what ranks do in a common order:
// process sets of the world, and joins.

// maxCompanions bounds the companions of a process.
const maxCompanions = 4

// accompanyLocked decides whether the sender of a HELLO, whose token is right, may be a companion.
func (s *Server) accompanyLocked(x *session, e *expected, process int) error {
	switch {
	case e.live == nil:
		x.refuse(fmt.Sprintf("process %d has no session that this one could be beside", process))
		return fmt.Errorf("process %d (pid %d): a companion of no session", process, x.pid)
	case e.live.pid != x.pid:
		x.refuse(fmt.Sprintf("rank %d is process %d, and process %d cannot be its companion", process, e.live.pid, x.pid))
		return fmt.Errorf("process %d (pid %d): a companion of pid %d", process, x.pid, e.live.pid)
	case len(e.beside) == maxCompanions:
		x.refuse(fmt.Sprintf("rank %d has %d companions already", process, maxCompanions))
		return fmt.Errorf("process %d (pid %d): has %d companions already", process, x.pid, maxCompanions)
	}
	x.primary = e.live
	e.beside = append(e.beside, x)
	if s.gone != nil {
		x.sendGone(s.gone)
	}
	s.welcomeCompanionLocked(x)
	return nil
}

// welcomeCompanionLocked answers a companion's hello once its session is in a world.
func (s *Server) welcomeCompanionLocked(x *session) {
	p := x.primary
	if p.size.Load() == 0 || x.size.Load() > 0 {
		return
	}
	x.epoch, x.rank = p.epoch, p.rank
	x.welcome(p.world, p.place, s.cfg.Job)
	if s.news.epoch == x.epoch {
		x.sendChanged(s.news.added, s.news.removed, s.news.stamp)
	}
}

// part forgets a companion that ends before its session. The error that it ended with is the rank's.
func (s *Server) part(x *session) {
	s.mu.Lock()
	x.parting = true
	s.forgetPartedLocked(x)
	s.mu.Unlock()
	if why := x.why(); why != "" {
		x.primary.mu.Lock()
		x.primary.failLocked(why)
		x.primary.mu.Unlock()
	}
}

// forgetParted forgets a companion that has ended, if nothing that it has submitted is still pending.
func (s *Server) forgetParted(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetPartedLocked(x)
}

func (s *Server) forgetPartedLocked(x *session) {
	x.mu.Lock()
	owes := len(x.pending) > 0 // a JOIN of the session counts on it
	x.mu.Unlock()
	e := s.expected[x.process]
	if i := slices.Index(e.beside, x); i >= 0 && x.parting && !owes {
		e.beside = slices.Delete(slices.Clone(e.beside), i, i+1)
	}
}

// dismiss ends a companion whose session has ended.
func (s *session) dismiss() {
	s.sendGone(&collective.Error{Code: collective.CodeShutdown, Text: "the rank has left the world"})
	_ = s.conn.CloseRead() // an error says that it is closed
}

// why returns why the rank may be about to leave, "" if no error is known.
func (s *session) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whyLocked()
}

// mayNot returns why a companion may not submit an operation.
func (s *session) mayNot(m *codec.Submit) error {
	switch {
	case s.primary == nil:
	case m.Kind == collective.Join, m.Kind == collective.RemoveGroup, m.Kind == collective.AddGroup && m.Group == 0:
		return invalid("submit %s: %s is for the session of the rank, not for its companion", m.Name, m.Kind)
	}
	return nil
}

// whole returns a session and its companions.
func (s *session) whole() []*session {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return append([]*session{s}, s.server.expected[s.process].beside...)
}
