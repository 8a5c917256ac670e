package jobs

import "context"

// HostStatus is what the launcher knows of a host. Bytes and connections count from the start of the job.
type HostStatus struct {
	Name           string `json:"name"`
	Next           string `json:"next,omitempty"` // the host that follows in the ring, "" without a ring
	Epoch          uint32 `json:"epoch"`          // of the world that the host is in, 0 before its first report
	Sent           uint64 `json:"sent_bytes"`     // without what was sent again
	RDMA           uint64 `json:"rdma_bytes"`     // of those sent
	RDMAFailures   uint64 `json:"rdma_failures"`  // queue pairs that the host found broken
	Resent         uint64 `json:"resent_bytes"`
	Renewed        uint64 `json:"renewed_streams"`
	Damaged        uint64 `json:"damaged_streams"` // of those that were replaced, because of damaged data
	ResentSegments uint64 `json:"resent_segments"`
	// BusyBytes were sent in the time in which data waited for the network: of the hosts of a ring, the one with the
	// slowest edge has the most of it.
	BusyBytes uint64 `json:"busy_bytes"`
	Busy      int64  `json:"busy_us"`
}

// State is what a launcher knows of its job.
type State struct {
	Record Record       `json:"record"`
	Ranks  []RankStatus `json:"ranks"`
	Hosts  []HostStatus `json:"hosts"`
	// Events are stalls and moves, the latest, the oldest first. Happened counts all there were.
	Events   []Event `json:"events,omitempty"`
	Happened int     `json:"happened,omitempty"`
}

// Status returns what the launcher knows of the job, and has the daemons report newer figures.
func (j Job) Status(ctx context.Context) (State, error) {
	a, err := j.askNow(ctx, request{Do: "state"})
	if err != nil || a.State == nil { // an older launcher would have returned an error
		return State{}, err
	}
	return *a.State, nil
}
