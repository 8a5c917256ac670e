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

// journal notes requests in the audit log, and counts them.
type journal struct {
	log       *audit.Log // may be nil
	launchers Launchers
	readers   recent[string] // a job, and an address that reads its output

	mu       sync.Mutex
	requests map[Request]uint64
	refused  uint64
}

// note counts an entry and writes it into the audit log.
func (j *journal) note(e audit.Entry) {
	if e.Result == "" {
		e.Result = audit.Done
	}
	j.mu.Lock()
	if j.requests == nil {
		j.requests = map[Request]uint64{}
	}
	j.requests[Request{e.What, e.Result}]++
	j.mu.Unlock()
	j.log.Write(e)
}

// stats returns what the daemon does now.
func (s *server) stats() Stats {
	out := Stats{Started: s.born, Slots: s.cfg.Slots}
	s.journal.mu.Lock()
	out.Requests, out.Refused = maps.Clone(s.journal.requests), s.journal.refused
	s.journal.mu.Unlock()
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
