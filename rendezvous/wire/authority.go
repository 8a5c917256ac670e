package wire

// Who carries a detached job on: what its launcher and the long-running daemons of its electors say to each other, and
// what the daemon of a job tells a launcher that took it over.

// Keep is a launcher's word to an elector: what another launcher would need to carry the job on. Without a Value it
// only says that the launcher lives, and which Value was the last.
type Keep struct {
	Job      string   `msgpack:"job"`
	Term     uint64   `msgpack:"term"` // of the launcher; each has a greater one than those before
	Seq      uint64   `msgpack:"seq"`  // of the value
	Holder   string   `msgpack:"holder"`
	Electors []string `msgpack:"electors"` // that belong to the value, in the order of succession
	LeaseMS  int      `msgpack:"lease"`    // how long the launcher may be silent
	Over     bool     `msgpack:"over"`     // the job has ended: nobody is to carry it on
	Value    []byte   `msgpack:"value"`
}

// Kept is the answer. A Term greater than the launcher's says that it is one no more.
type Kept struct {
	Term uint64 `msgpack:"term"`
	Seq  uint64 `msgpack:"seq"` // of the last value that this elector has of the launcher
}

// Vote asks an elector for its vote: the candidate wants a launcher of that term.
type Vote struct {
	Job       string `msgpack:"job"`
	Term      uint64 `msgpack:"term"`
	Candidate string `msgpack:"candidate"`
	Probe     bool   `msgpack:"probe"` // would it be granted? Nothing is promised yet
}

// Voted is the answer. It says which value is the last that the elector has, and a vote comes with that.
type Voted struct {
	Granted  bool     `msgpack:"granted"`
	Probe    bool     `msgpack:"probe"`
	Term     uint64   `msgpack:"term"` // voted for, or the greatest that is known here
	Over     bool     `msgpack:"over"`
	Written  uint64   `msgpack:"written"` // term of the launcher that wrote the value
	Seq      uint64   `msgpack:"seq"`
	Electors []string `msgpack:"electors"` // that belong to it; none where the job is not known
	Value    []byte   `msgpack:"value"`
}

// Adopt is the first word of a launcher that has taken over, to a daemon that knows its job.
type Adopt struct{}

// Account ends the answer, in which the daemon says again what the former launcher was told.
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
