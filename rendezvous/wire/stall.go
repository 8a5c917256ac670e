package wire

// Operations that wait: the launcher combines the reports of all daemons, because a daemon knows its own ranks
// individually, but other hosts only as a whole.

// Stalled lists unfinished operations of a daemon. It is sent when other operations than before
// wait for too long, and in answer to AskStalled.
type Stalled struct {
	Asked bool      `msgpack:"asked"` // an answer
	Ops   []Waiting `msgpack:"ops"`
	More  int       `msgpack:"more"` // operations that are left out
}

// Waiting is an unfinished operation.
type Waiting struct {
	Kind    string    `msgpack:"kind"`
	Name    string    `msgpack:"name"`
	Group   uint32    `msgpack:"group"` // a process set, or from Pairs on a pair of ranks
	AgeMS   int64     `msgpack:"age"`
	Late    bool      `msgpack:"late"`    // longer than the limit for a report
	Over    bool      `msgpack:"over"`    // longer than the limit for an error
	Missing []Missing `msgpack:"missing"` // none if all contributions are there, and data is under way
}

// Pairs is the first group number of the pairs of ranks between which a tensor is sent.
const Pairs = 1 << 31

// Missing are ranks of a host whose contributions an operation waits for.
type Missing struct {
	Host  string `msgpack:"host" json:"host"`
	Ranks []int  `msgpack:"ranks" json:"ranks"`
}

// AskStalled asks a daemon for all its unfinished operations.
type AskStalled struct{}

// GiveUp asks a daemon to fail all operations of its ranks, because the ranks they wait for will not come.
type GiveUp struct {
	Text string    `msgpack:"text"`
	Each []GivenUp `msgpack:"each"` // a text of their own for some of them
}

// GivenUp is an operation that waited for too long.
type GivenUp struct {
	Name  string `msgpack:"name"`
	Group uint32 `msgpack:"group"`
	Text  string `msgpack:"text"`
}

func (*Stalled) kind() byte    { return 48 }
func (*AskStalled) kind() byte { return 49 }
func (*GiveUp) kind() byte     { return 50 }
func (*Evidence) kind() byte   { return 51 }
