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
	// BusyBytes were sent during Busy, the time in which data waited for the network. Of the hosts of a ring, the one
	// with the slowest edge is busy longest.
	BusyBytes uint64 `json:"busy_bytes"`
	Busy      int64  `json:"busy_us"`

	Links      []LinkStatus      `json:"links,omitempty"` // the ones that have carried most
	Operations []OperationStatus `json:"operations,omitempty"`
	Open       int               `json:"open_operations"` // that have not ended
	Results    int64             `json:"result_bytes"`    // of shared memory that hold results
}

// LinkStatus is what the link from a host to another one has carried.
type LinkStatus struct {
	To             string `json:"to"`
	Sent           uint64 `json:"sent_bytes"` // without what was sent again
	RDMA           uint64 `json:"rdma_bytes"` // of Sent
	ResentSegments uint64 `json:"resent_segments"`
	Busy           int64  `json:"busy_us"`
	Queued         int    `json:"queued_segments"` // that wait for the network, or for the other host's acknowledgement
}

// OperationStatus is what the operations of a kind have done on a host. Times are sums over operations, which run
// beside each other.
type OperationStatus struct {
	Kind    string `json:"kind"`
	Ended   uint64 `json:"ended"`
	Failed  uint64 `json:"failed"`     // of Ended
	Bytes   uint64 `json:"bytes"`      // of a rank's tensor, for each operation
	Waiting int64  `json:"waiting_us"` // from the first rank of the host until all ranks had come
	Running int64  `json:"running_us"` // from then until the end
}

// State is what a launcher knows of its job.
type State struct {
	Record Record       `json:"record"`
	Ranks  []RankStatus `json:"ranks"`
	Hosts  []HostStatus `json:"hosts"`
	// Events are stalls and moves, the latest, the oldest first. Happened counts all there were.
	Events   []Event `json:"events,omitempty"`
	Happened int     `json:"happened,omitempty"`
	// Counted has how many events of each kind there were.
	Counted map[string]int `json:"counted_events,omitempty"`
}

// Status returns what the launcher knows of the job, and has the daemons report newer figures.
func (j Job) Status(ctx context.Context) (State, error) {
	a, err := j.askNow(ctx, request{Do: "state"})
	if err != nil || a.State == nil { // an older launcher would have returned an error
		return State{}, err
	}
	return *a.State, nil
}
