package wire

// Failover of a detached job: messages between its launcher and the resident daemons of its electors, and between the
// daemon of a job and a launcher that has taken over.

// Keep carries a snapshot from a launcher to an elector: what a successor needs to continue the job. Without a Value it
// is a sign of life that names the last Value.
type Keep struct {
	Job      string   `msgpack:"job"`
	Term     uint64   `msgpack:"term"` // of the launcher; each has a greater one than the previous
	Seq      uint64   `msgpack:"seq"`  // of the value
	Holder   string   `msgpack:"holder"`
	Electors []string `msgpack:"electors"` // that belong to the value, in the order of succession
	LeaseMS  int      `msgpack:"lease"`    // how long the launcher may be silent
	Over     bool     `msgpack:"over"`     // the job has ended, and has no successor
	Value    []byte   `msgpack:"value"`
}

// Kept is the answer. A Term greater than the launcher's deposes the launcher.
type Kept struct {
	Term uint64 `msgpack:"term"`
	Seq  uint64 `msgpack:"seq"` // of the last value that this elector has of the launcher
}

// Vote asks an elector to vote for a launcher of this term on the candidate's host.
type Vote struct {
	Job       string `msgpack:"job"`
	Term      uint64 `msgpack:"term"`
	Candidate string `msgpack:"candidate"`
	Probe     bool   `msgpack:"probe"` // asks whether the vote would be granted, and promises nothing
}

// Voted is the answer. It identifies the last value that the elector has; a granted vote carries the value.
type Voted struct {
	Granted  bool     `msgpack:"granted"`
	Probe    bool     `msgpack:"probe"`
	Term     uint64   `msgpack:"term"` // voted for, or the greatest that the elector knows
	Over     bool     `msgpack:"over"`
	Written  uint64   `msgpack:"written"` // term of the launcher that wrote the value
	Seq      uint64   `msgpack:"seq"`
	Electors []string `msgpack:"electors"` // that belong to the value; none where the job is unknown
	Value    []byte   `msgpack:"value"`
}

// Adopt is the first message of a launcher that has taken over, to a daemon that knows its job.
type Adopt struct{}

// Account ends the answer, in which the daemon repeats what it reported to the previous launcher.
type Account struct {
	HasJob bool   `msgpack:"job"`
	Epoch  uint32 `msgpack:"epoch"` // of its last Roster, 0 for none
}

func (*Keep) kind() byte    { return 90 }
func (*Kept) kind() byte    { return 91 }
func (*Vote) kind() byte    { return 92 }
func (*Voted) kind() byte   { return 93 }
func (*Adopt) kind() byte   { return 94 }
func (*Account) kind() byte { return 95 }
