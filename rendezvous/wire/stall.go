package wire

// Operations that wait: the launcher puts together what each daemon knows, because a daemon knows its own
// ranks one by one, but other hosts only as a whole.

// Stalled lists operations of a daemon that are not finished. It is sent when those that wait for too long
// have changed, and in answer to AskStalled.
type Stalled struct {
	Asked bool      `msgpack:"asked"` // an answer
	Ops   []Waiting `msgpack:"ops"`
	More  int       `msgpack:"more"` // operations that are left out
}

// Waiting is an operation that is not finished.
type Waiting struct {
	Kind    string    `msgpack:"kind"`
	Name    string    `msgpack:"name"`
	Group   uint32    `msgpack:"group"` // process set; from Pairs on, two ranks
	AgeMS   int64     `msgpack:"age"`
	Late    bool      `msgpack:"late"`    // for longer than ranks should wait
	Over    bool      `msgpack:"over"`    // for longer than ranks shall wait
	Missing []Missing `msgpack:"missing"` // none: all parts are there, and data is under way
}

// Pairs is the first number of those that stand for two ranks between which a tensor is sent.
const Pairs = 1 << 31

// Missing are ranks of a host whose parts an operation waits for.
type Missing struct {
	Host  string `msgpack:"host"`
	Ranks []int  `msgpack:"ranks"`
}

// AskStalled asks a daemon for all its operations that are not finished.
type AskStalled struct{}

// GiveUp tells a daemon that what its ranks wait for will not come: all their operations fail.
type GiveUp struct {
	Text string    `msgpack:"text"`
	Each []GivenUp `msgpack:"each"` // what else is to be said of some of them
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
