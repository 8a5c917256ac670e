package worker

import (
	"cmp"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// peerWatch is what this host notices of its peers, and of its launcher on their behalf.
type peerWatch struct {
	*liveness.Peers
	timing liveness.Timing
	lease  time.Duration // how long gossip waits for a silent host
	hears  *wire.Hears   // this host's last report whether it hears the launcher; nil for none, which is yes
}

func newPeerWatch(job *wire.Job) *peerWatch {
	w := &peerWatch{timing: liveness.Default().Scaled(job.TimeScale)}
	w.lease = cmp.Or(job.Lease, w.timing.Lease)
	w.Peers = liveness.NewPeers(w.timing, w.lease, job.Lease > 0)
	return w
}
