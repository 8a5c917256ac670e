package launcher

import (
	"slices"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/rendezvous/wire"
)

// host is what the loop knows of a host, and the conversation with its daemon.
type host struct {
	talk.Conversation
	id     int
	name   string
	hangUp func() // ends the conversation

	up    bool        // its daemon has got the job
	ready *wire.Ready // what its daemon reported when it was ready; nil before
	ended bool        // its conversation is over
	world wire.World  // the one that it entered last

	leaving bool               // an elastic job has ordered it to stop
	evicted *eviction          // how it was given up; nil if it was not
	failure *failure.HostError // why its conversation ended
	session string             // identifies the daemon for a successor of this launcher
	adopted bool               // another launcher has started it
}

// newHost returns a host before its conversation. template is what all daemons get.
func newHost(id int, name string, spec *Spec, template wire.Job) *host {
	template.HostID, template.Name = id, name
	return &host{id: id, name: name, Conversation: talk.New(spec.talks(), template)}
}

// talks returns what the conversations with all hosts have in common.
func (s *Spec) talks() talk.Config {
	return talk.Config{Dial: s.Dial, Relay: s.Relay, Version: s.Version, Env: s.Env, Interval: s.Timing().LauncherInterval,
		Output: s.Output, Watched: s.Watch != nil, Note: s.Note}
}

// hostList are the hosts of a job, by id.
type hostList []*host

// broadcast sends a message to all hosts that are up.
func (l hostList) broadcast(m wire.Message) {
	for _, h := range l {
		if h.up {
			h.Queue.Put(m)
		}
	}
}

// names returns the names of all hosts.
func (l hostList) names() []string {
	names := make([]string, len(l))
	for id, h := range l {
		names[id] = h.name
	}
	return names
}

// running counts the daemons that can answer.
func (l hostList) running() (n int) {
	for _, h := range l {
		if h.up && !h.ended {
			n++
		}
	}
	return n
}

// allEnded reports whether the conversations with all hosts are over.
func (l hostList) allEnded() bool {
	return !slices.ContainsFunc(l, func(h *host) bool { return !h.ended })
}

// allReady reports whether the daemons of all hosts are ready.
func (l hostList) allReady() bool {
	return !slices.ContainsFunc(l, func(h *host) bool { return h.ready == nil })
}

// sendPeers sends hosts what is the same for all of them in the rosters that follow. It is encoded once: a copy for
// each of 1,000 hosts, each naming all the others, would be most of the launcher's memory.
func (l hostList) sendPeers(r *wire.Roster) {
	peers, err := wire.Encode(&wire.Peers{Epoch: r.Epoch, Peers: r.Peers})
	if err != nil {
		return // too many for one message: the error of each roster explains that to its host
	}
	r.Peers = nil
	for _, h := range l {
		h.Queue.Put(peers)
	}
}
