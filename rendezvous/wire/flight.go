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
	Name  string   `msgpack:"name" json:"name"`
	Bytes int64    `msgpack:"bytes" json:"bytes"`
	Ranks []int    `msgpack:"ranks" json:"ranks"`
	Times []uint64 `msgpack:"times" json:"times"` // how often each of them came to it
}

// FlightOp is an operation as a host saw it.
type FlightOp struct {
	Number    uint64    `msgpack:"n" json:"number"` // counts the operations of the host
	Name      string    `msgpack:"name" json:"name"`
	Kind      string    `msgpack:"kind" json:"kind,omitempty"` // "" if no rank of the host has called it
	Type      string    `msgpack:"type" json:"type,omitempty"`
	Bytes     int64     `msgpack:"bytes" json:"bytes"`
	Epoch     uint32    `msgpack:"epoch" json:"epoch"`
	Group     uint32    `msgpack:"group" json:"group,omitempty"`
	First     int64     `msgpack:"first" json:"first_us,omitempty"` // when the first rank of the host contributed, and which
	FirstRank int       `msgpack:"first_rank" json:"first_rank"`
	Last      int64     `msgpack:"last" json:"last_us,omitempty"` // when the last one did
	LastRank  int       `msgpack:"last_rank" json:"last_rank"`
	Ranks     []int     `msgpack:"ranks" json:"ranks,omitempty"` // of the host that contributed, and how long after the first one, in microseconds
	Came      []int64   `msgpack:"came" json:"came_us,omitempty"`
	Others    int64     `msgpack:"hosts" json:"others_us,omitempty"` // when the last other host declared its ranks ready, and which
	LastHost  int       `msgpack:"last_host" json:"-"`
	Began     int64     `msgpack:"began" json:"began_us,omitempty"`
	Ended     int64     `msgpack:"ended" json:"ended_us,omitempty"`
	Outcome   string    `msgpack:"outcome" json:"outcome"`           // done, failed or open
	Missing   []Missing `msgpack:"missing" json:"missing,omitempty"` // of one that is open, as far as the host knows
}

// LinkEvent is what happened to a link between two hosts.
type LinkEvent struct {
	Time   int64  `msgpack:"at" json:"time_us"`
	Peer   int    `msgpack:"peer" json:"-"` // the id of the other host
	Stream int    `msgpack:"stream" json:"stream"`
	What   string `msgpack:"what" json:"what"`               // broke or resumed
	Resent int    `msgpack:"resent" json:"resent,omitempty"` // segments that are sent again
}

func (*AskFlight) kind() byte { return 82 }
func (*Flight) kind() byte    { return 83 }
