package worker

import (
	"slices"
	"sync/atomic"
	"time"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/worker/member"
)

// membership is who is in the world of this host's job, from the first roster on, and which of them are there.
type membership struct {
	job *wire.Job

	// The roster that the launcher sent last: of the present world, or of the one that is formed.
	roster    *wire.Roster
	coming    *wire.Peers                 // of the roster that comes next
	peers     atomic.Pointer[wire.Roster] // the roster, for any goroutine
	joined    bool                        // this host was a member of a world, or is about to be
	connected bool                        // it has begun to meet others: gossip and links run
	requested bool                        // the launcher knows that a rank waits for the world

	// The world: the machine decides when it begins.
	machine  *epoch.Machine
	repeat   *cadence   // of what the machine has no answer to
	epoch    uint32     // of the world that the ranks are in, 0 for none
	current  wire.World // that world, as the launcher heard of it
	life     *life      // of the world that is prepared or has begun, nil for none
	needed   []int      // peers to which the world that is prepared needs links
	unlinked []int      // those to which no link could be made when it had begun

	// Which peers are there, and whether the launcher is.
	timing liveness.Timing
	alive  *liveness.Peers
	hears  *wire.Hears // this host's last word on whether it hears the launcher; nil for none, which is yes
}

func newMembership(job *wire.Job) *membership {
	m := &membership{job: job, machine: epoch.New(epoch.Config{Self: job.HostID}), timing: liveness.Default().Scaled(job.TimeScale)}
	m.alive = liveness.NewPeers(m.timing, m.gossipLease(), job.Lease > 0)
	return m
}

// world returns the world of the ranks.
func (m *membership) world() member.World { return member.World{Roster: m.roster, Epoch: m.epoch} }

// members returns the hosts of the present roster, ascending; none before there is one.
func (m *membership) members() []int {
	if m.roster == nil {
		return nil
	}
	return member.Ascending(m.roster)
}

// others returns the other hosts of the roster, none before there is one.
func (m *membership) others() []wire.Peer {
	if m.roster == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(m.roster.Peers), func(p wire.Peer) bool { return p.ID == m.job.HostID })
}

// lease returns how long a host may be silent.
func (m *membership) lease() time.Duration {
	if m.roster != nil && m.roster.LeaseMS > 0 {
		return time.Duration(m.roster.LeaseMS) * time.Millisecond
	}
	return m.gossipLease()
}

// gossipLease returns how long gossip waits for a silent host.
func (m *membership) gossipLease() time.Duration {
	if m.job.Lease > 0 {
		return m.job.Lease
	}
	return m.timing.Lease
}
