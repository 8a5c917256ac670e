package wire

// AskUsage asks a daemon for the resources that its ranks use.
type AskUsage struct{}

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
}

// LinkUsage is what the link to one other host has carried.
type LinkUsage struct {
	Peer   int   `msgpack:"peer"` // host id
	Links  Links `msgpack:"links"`
	Queued int   `msgpack:"queued"` // segments that wait for the network, or for the peer's acknowledgement
}

// OperationUsage is what the operations of a kind have done on this host so far.
type OperationUsage struct {
	Kind    string `msgpack:"kind"`
	Ended   uint64 `msgpack:"ended"`
	Failed  uint64 `msgpack:"failed"`  // of Ended
	Bytes   uint64 `msgpack:"bytes"`   // of a rank's tensor, for each operation
	Waiting int64  `msgpack:"waiting"` // microseconds from the first rank of the host until all ranks had come, as a sum
	Running int64  `msgpack:"running"` // microseconds from then until the end
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
	Elapsed       int64  `msgpack:"elapsed"`
	Steps         int64  `msgpack:"steps"`
	Step          int64  `msgpack:"step"` // length of the last step
	Data          int64  `msgpack:"data"` // waiting for input data
	Others        int64  `msgpack:"others"`
	Communication int64  `msgpack:"communication"` // that the rank waited for
	Hidden        int64  `msgpack:"hidden"`        // that ran while the rank did something else
	Operations    int64  `msgpack:"operations"`
	Activity      string `msgpack:"activity"` // what the rank does now, in words
	For           int64  `msgpack:"for"`      // how long already
}

func (*AskUsage) kind() byte { return 80 }
func (*Usage) kind() byte    { return 81 }
