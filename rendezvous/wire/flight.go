package wire

// AskFlight asks a daemon for the last operations of its ranks. Flight is the answer.
type AskFlight struct {
	Most int `msgpack:"most"` // so many operations
}

// Flight is what the flight recorder of a host has. Times are in microseconds since 1970, by the host's clock; 0 is
// not yet.
type Flight struct {
	Now    int64       `msgpack:"now"`    // when the host sent it
	Wanted string      `msgpack:"wanted"` // why the host wants the whole job recorded, "" if it was asked
	Ops    []FlightOp  `msgpack:"ops"`    // the oldest first
	Links  []LinkEvent `msgpack:"links"`
	Sums   []FlightSum `msgpack:"sums"` // those in which ranks were most often
}

// FlightSum is a sum that the ranks of a host add up in shared memory.
type FlightSum struct {
	Name  string   `msgpack:"name"`
	Bytes int64    `msgpack:"bytes"`
	Ranks []int    `msgpack:"ranks"`
	Times []uint64 `msgpack:"times"` // how often each of them came to it
}

// FlightOp is an operation as a host saw it.
type FlightOp struct {
	Number    uint64    `msgpack:"n"` // counts the operations of the host
	Name      string    `msgpack:"name"`
	Kind      string    `msgpack:"kind"`
	Type      string    `msgpack:"type"`
	Bytes     int64     `msgpack:"bytes"`
	Epoch     uint32    `msgpack:"epoch"`
	Group     uint32    `msgpack:"group"`
	First     int64     `msgpack:"first"` // when the first rank of the host contributed, and which
	FirstRank int       `msgpack:"first_rank"`
	Last      int64     `msgpack:"last"` // when the last one did
	LastRank  int       `msgpack:"last_rank"`
	Ranks     []int     `msgpack:"ranks"` // of the host that contributed, and how long after the first one, in microseconds
	Came      []int64   `msgpack:"came"`
	Hosts     int64     `msgpack:"hosts"` // when the last other host declared its ranks ready, and which
	LastHost  int       `msgpack:"last_host"`
	Began     int64     `msgpack:"began"`
	Ended     int64     `msgpack:"ended"`
	Outcome   string    `msgpack:"outcome"` // done, failed or open
	Missing   []Missing `msgpack:"missing"` // of one that is open, as far as the host knows
}

// LinkEvent is what happened to a link between two hosts.
type LinkEvent struct {
	At     int64  `msgpack:"at"`
	Peer   int    `msgpack:"peer"` // the id of the other host
	Stream int    `msgpack:"stream"`
	What   string `msgpack:"what"`   // broke or resumed
	Resent int    `msgpack:"resent"` // segments that are sent again
}

func (*AskFlight) kind() byte { return 82 }
func (*Flight) kind() byte    { return 83 }
