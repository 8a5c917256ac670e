package wire

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AskUsage asks a daemon for the resources that its ranks use.
type AskUsage struct {
	Brief bool `msgpack:"brief"` // only for what ranks and links have counted, which costs little
}

// Usage is the answer.
type Usage struct {
	Ranks []RankUsage `msgpack:"ranks"`
	Links Links       `msgpack:"links"` // so far
	Epoch uint32      `msgpack:"epoch"` // of the world that the host is in

	// Daemons without these leave them empty.
	Each    []LinkUsage      `msgpack:"each"` // the links that have carried most
	Ops     []OperationUsage `msgpack:"ops"`
	Open    int              `msgpack:"open"`    // operations that have not ended
	Results int64            `msgpack:"results"` // bytes of shared memory that hold results
	Brief   bool             `msgpack:"brief"`   // of ranks it has the split alone, and nothing of operations
	Stolen  int64            `msgpack:"stolen"`  // microseconds of each CPU that the hypervisor gave to other machines
}

// LinkUsage is what the link to one other host has carried.
type LinkUsage struct {
	Peer   int   `msgpack:"peer"` // host id
	Links  Links `msgpack:"links"`
	Queued int   `msgpack:"queued"` // segments that wait for the network, or for the peer's acknowledgement
}

// OperationUsage is what the operations of a kind have done on this host so far. Times are sums over operations, which
// run beside each other.
type OperationUsage struct {
	Kind    string `msgpack:"kind" json:"kind"`
	Ended   uint64 `msgpack:"ended" json:"ended"`
	Failed  uint64 `msgpack:"failed" json:"failed"`      // of Ended
	Bytes   uint64 `msgpack:"bytes" json:"bytes"`        // of a rank's tensor, for each operation
	Waiting int64  `msgpack:"waiting" json:"waiting_us"` // from the first rank of the host until all ranks had come
	Running int64  `msgpack:"running" json:"running_us"` // from then until the end
}

// RankUsage is what a rank uses, together with all processes that it started.
type RankUsage struct {
	Rank      int    `msgpack:"rank"`
	CPUMS     int64  `msgpack:"cpu"` // time on CPUs so far
	RSS       int64  `msgpack:"rss"` // bytes in memory; shared memory counts for each process
	Processes int    `msgpack:"processes"`
	State     string `msgpack:"state"` // in words
	Split     *Split `msgpack:"split"` // nil if it counts nothing
	Arena     int64  `msgpack:"arena"` // bytes of shared memory for its tensors
	At        int64  `msgpack:"at"`    // when its CPU time was read, by the host's clock, in microseconds since 1970
}

// Split is where the time of a rank has gone since it began to count. Times are in microseconds.
type Split struct {
	Elapsed       int64  `msgpack:"elapsed" json:"elapsed_us"`
	Steps         int64  `msgpack:"steps" json:"steps"`
	Step          int64  `msgpack:"step" json:"step_us"` // length of the last step
	Data          int64  `msgpack:"data" json:"data_us"` // waiting for input data
	Others        int64  `msgpack:"others" json:"others_us"`
	Communication int64  `msgpack:"communication" json:"communication_us"` // that the rank waited for
	Hidden        int64  `msgpack:"hidden" json:"hidden_us"`               // that ran while the rank did something else
	Operations    int64  `msgpack:"operations" json:"operations"`
	Activity      string `msgpack:"activity" json:"activity"` // what the rank does now, in words
	For           int64  `msgpack:"for" json:"for_us"`        // how long already
}

// Does describes a rank in one phrase: what it counts that it does, or else the state of its process, which is why a rank
// that computes makes no progress, and a rank that waits is stuck.
func (s *Split) Does(state string) string {
	usual := slices.Contains([]string{"runs", "waits", "is computing", "waits for another thread"}, state)
	if s == nil || s.Activity == "" || !usual && (s.Activity == "computes" || !strings.HasPrefix(state, "waits") && state != "sleeps") {
		return state
	}
	if long := time.Duration(s.For) * time.Microsecond; long >= time.Second {
		return s.Activity + " for " + long.Round(time.Second).String()
	}
	return s.Activity
}

// Computing returns the time that the rank did not wait.
func (s Split) Computing() int64 { return max(s.Elapsed-s.Data-s.Others-s.Communication, 0) }

// Since returns the split of the time after an earlier one, all of it if there is none.
func (s Split) Since(earlier *Split) Split {
	if earlier != nil {
		s.Elapsed -= earlier.Elapsed
		s.Steps -= earlier.Steps
		s.Data -= earlier.Data
		s.Others -= earlier.Others
		s.Communication -= earlier.Communication
		s.Hidden -= earlier.Hidden
		s.Operations -= earlier.Operations
	}
	return s
}

// DescribeSplits describes the splits of some ranks together. It returns "" if none of them counted steps or waits.
func DescribeSplits(all []*Split) string {
	var s Split
	ranks := int64(0)
	for _, o := range all {
		if o == nil || o.Steps == 0 && o.Operations == 0 {
			continue
		}
		ranks++
		s.Elapsed += o.Elapsed
		s.Data += o.Data
		s.Others += o.Others
		s.Communication += o.Communication
		s.Hidden += o.Hidden
		s.Steps = max(s.Steps, o.Steps) // ranks step together
	}
	if ranks == 0 {
		return ""
	}
	var b strings.Builder
	if s.Steps > 0 {
		each := time.Duration(s.Elapsed/ranks/s.Steps) * time.Microsecond
		fmt.Fprintf(&b, "%d steps of %v: ", s.Steps, each.Round(max(each/1000, time.Microsecond)))
	}
	share := func(t int64) string { return fmt.Sprintf("%.0f %%", 100*float64(t)/float64(max(s.Elapsed, 1))) }
	fmt.Fprintf(&b, "computing %s, data %s, communication %s", share(s.Computing()),
		share(s.Data), share(s.Communication))
	if s.Hidden > 0 {
		fmt.Fprintf(&b, " (and %s hidden behind it)", share(s.Hidden))
	}
	fmt.Fprintf(&b, ", waiting for other ranks %s", share(s.Others))
	return b.String()
}

func (*AskUsage) kind() byte { return 80 }
func (*Usage) kind() byte    { return 81 }
