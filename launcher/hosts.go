package launcher

import (
	"slices"

	"gorun/rendezvous/wire"
)

// hostList are the hosts of a job, by id.
type hostList []*host

// broadcast sends a message to all hosts that are up.
func (l hostList) broadcast(m wire.Message) {
	for _, h := range l {
		if h.up {
			h.queue.put(m)
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
		h.queue.put(peers)
	}
}
