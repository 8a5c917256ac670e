package worker

import (
	"cmp"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// peerWatch is what this host notices of its peers, and what it reports to them about the launcher.
type peerWatch struct {
	*liveness.Peers
	timing liveness.Timing
	lease  time.Duration // how long gossip waits for a silent host
	hears  *wire.Hears   // this host's last report to its peers; nil until the first, while it hears the launcher
}

func newPeerWatch(job *wire.Job) *peerWatch {
	w := &peerWatch{timing: liveness.Default().Scaled(job.TimeScale)}
	w.lease = cmp.Or(job.Lease, w.timing.Lease)
	w.Peers = liveness.NewPeers(w.timing, w.lease, job.Lease > 0)
	return w
}
