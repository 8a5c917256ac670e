package jobs

import (
	"time"

	"gorun/rendezvous/wire"
)

// HostStatus is what the launcher knows of a host. What its links have carried counts from the start of the job.
type HostStatus struct {
	Name  string `json:"name"`
	Next  string `json:"next,omitempty"` // the host that follows in the ring, "" without a ring
	Epoch uint32 `json:"epoch"`          // of the world that the host is in, 0 before its first report
	wire.Links
	Each       []LinkStatus          `json:"links,omitempty"` // the links that have carried most
	Operations []wire.OperationUsage `json:"operations,omitempty"`
	Open       int                   `json:"open_operations"` // that have not ended
	Results    int64                 `json:"result_bytes"`    // of shared memory that hold results
}

// LinkStatus is what the link from a host to another one has carried.
type LinkStatus struct {
	To string `json:"to"`
	wire.Links
	Queued int `json:"queued_segments"` // that wait for the network, or for the other host's acknowledgement
}

// Event is something that happened to a job.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // epoch, silent, back, left, joined, link, started, ended, stopping, stall, move or moved
	Text string    `json:"text"`
}

// Epoch returns the number of the job's world, as far as its hosts have reported it.
func (s State) Epoch() (latest uint32) {
	for _, h := range s.Hosts {
		latest = max(latest, h.Epoch)
	}
	return latest
}

// State is what a launcher knows of its job.
type State struct {
	Record Record       `json:"job"`
	Ranks  []RankStatus `json:"ranks"`
	Hosts  []HostStatus `json:"hosts"`
	Events []Event      `json:"events"` // the latest, the oldest first
	// Counted has how many events of each kind there were.
	Counted map[string]int `json:"counted_events,omitempty"`
}
