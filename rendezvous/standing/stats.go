package standing

import (
	"maps"
	"slices"
	"sync"
	"time"

	"gorun/rendezvous/audit"
	"gorun/rendezvous/wire"
)

// Stats is what a daemon does.
type Stats struct {
	Started     time.Time
	Slots, Used int // of this host
	Jobs        int // that run here
	Draining    bool
	Members     []wire.MemberState // all hosts of the cluster that it knows; Used counts promised slots, too, if it holds the queue
	Holds       bool               // the queue of the cluster
	// Of a daemon that holds the queue:
	Running, Waiting int           // jobs
	Longest          time.Duration // that the first in the queue waits
	// Requests counts what the audit log says; Refused counts connections that did not show the key.
	Requests map[Request]uint64
	Refused  uint64
}

// Request is what a daemon was asked for, and what became of it.
type Request struct{ What, Result string }

// counted counts requests.
type counted struct {
	mu       sync.Mutex
	requests map[Request]uint64
	refused  uint64
}

// note counts an entry and writes it into the audit log.
func (s *server) note(e audit.Entry) {
	if e.Result == "" {
		e.Result = audit.Done
	}
	s.counted.mu.Lock()
	if s.counted.requests == nil {
		s.counted.requests = map[Request]uint64{}
	}
	s.counted.requests[Request{e.What, e.Result}]++
	s.counted.mu.Unlock()
	s.cfg.Audit.Write(e)
}

// stats returns what the daemon does now.
func (s *server) stats() Stats {
	out := Stats{Started: s.born, Slots: s.cfg.Slots}
	s.counted.mu.Lock()
	out.Requests, out.Refused = maps.Clone(s.counted.requests), s.counted.refused
	s.counted.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Used, out.Draining, out.Jobs = s.used, s.draining, len(s.jobs.running)
	out.Members, out.Holds = slices.Clone(s.queue.hosts), s.queueAddr == ""
	if !out.Holds {
		return out
	}
	promised := s.queue.promised()
	for i, m := range out.Members {
		out.Members[i].Used = max(m.Used, promised[m.Host])
	}
	for _, t := range s.queue.tickets {
		if t.granted {
			out.Running++
			continue
		}
		out.Waiting++
		out.Longest = max(out.Longest, time.Since(t.since))
	}
	return out
}
