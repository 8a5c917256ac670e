package launcher

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// job is the launcher's state. Only loop touches it once Run has started the conversations.
type job struct {
	spec       *Spec
	converse   func(*host) // starts the conversation with a host
	membership *membership
	failover   failover
	// template is what the jobs of all daemons have in common.
	template wire.Job
	hosts    hostList
	events   chan talk.Event

	processes  processes
	began      time.Time
	late       time.Time // when the start had taken too long; zero if it has not
	verdict    error
	stopping   bool
	inspection inspection
	mpi        mpiPrograms
	stalls     stalls
	alive      *liveness.Hosts
	evicted    []*host // that are yet to be reported as lost
	asleep     asleep
	network    network
	news       worldNews
	facts      *wire.Topology // the file of facts about hosts, if it was changed since the job began
}

func newJob(spec *Spec) (*job, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make job secret: %w", err)
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("make job id: %w", err)
	}
	j := &job{spec: spec, events: make(chan talk.Event), membership: newMembership(spec),
		failover: failover{replicator: spec.Replicator}, alive: liveness.NewHosts(spec.Timing()),
		network: network{edges: map[int][]wire.Edge{}}}
	for rank, r := range spec.Placement.Ranks {
		j.processes.place(rank, r.Host)
	}
	first, elastic := spec.ProgramOf(0), spec.Elastic != nil
	j.template = wire.Job{JobOptions: spec.JobOptions, ID: hex.EncodeToString(id), Secret: secret,
		Argv: first.Argv, Dir: first.Dir, Elastic: elastic, Open: !j.membership.config.Listed, Alone: !elastic && len(spec.Placement.Hosts) == 1}
	if spec.Snapshot != nil {
		return j, j.restore(spec.Snapshot)
	}
	return j, nil
}

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

// bare is a host's name without the user that logs in there.
func bare(name string) string { return name[strings.LastIndexByte(name, '@')+1:] }
