package wire

// Long-running daemons: what one tells the others by gossip, and what a launcher and a daemon say to each
// other over a channel of package standing before the daemon of a job speaks.

// Member is what a long-running daemon tells the others about itself.
type Member struct {
	Port     int    `msgpack:"p"` // where it takes jobs
	Version  string `msgpack:"v"`
	Slots    int    `msgpack:"s"`
	Used     int    `msgpack:"u"`
	Draining bool   `msgpack:"d"` // it takes no more jobs
	Born     int64  `msgpack:"b"` // when it began: another one under the same name has another
}

// Share is a host's part of a job.
type Share struct {
	Host  string `msgpack:"host"`
	Addr  string `msgpack:"addr"` // host:port of its daemon
	Slots int    `msgpack:"slots"`
	Born  int64  `msgpack:"born"` // of its daemon
}

// Reserve asks for slots. They are the launcher's until its connection ends.
type Reserve struct {
	Version string  `msgpack:"version"`
	Ranks   int     `msgpack:"ranks"`    // 0 for all slots there are
	PerHost int     `msgpack:"per_host"` // ranks on each host, 0 for what fits
	Shares  []Share `msgpack:"shares"`   // exactly these hosts, if any
	User    string  `msgpack:"user"`
	Program string  `msgpack:"program"`
	// Elastic asks for more whenever there is more, up to Most ranks if that is not 0. Slots that go, since their
	// host leaves the cluster or drains, are taken away; every change is Granted.
	Elastic bool `msgpack:"elastic"`
	Most    int  `msgpack:"most"`
	// Held are slots that the job has already, from a daemon that does not keep the queue any more.
	Held []Share `msgpack:"held"`
	// Job and Term, if the launcher can be replaced: one of a greater term takes the place of those before it.
	Job  string `msgpack:"job"`
	Term uint64 `msgpack:"term"`
}

// Queued says that a job has no slots yet, and why.
type Queued struct {
	Text   string   `msgpack:"text"`
	Others []string `msgpack:"others"` // as in Granted
}

// Granted gives the slots; as an answer to Serve it says that the job's daemon speaks from here on.
type Granted struct {
	Shares []Share  `msgpack:"shares"`
	Others []string `msgpack:"others"` // where the cluster can be asked, should this daemon go
	// Ask wants an empty Granted in answer, and only the next one without it gives the slots: a launcher that waited may
	// have been stopped meanwhile. One that answers too late finds the connection closed, and asks anew.
	Ask bool `msgpack:"ask"`
}

// Elsewhere names the daemon that keeps the queue.
type Elsewhere struct {
	Addr string `msgpack:"addr"`
}

// Refused is the answer to what cannot be done.
type Refused struct {
	Text  string `msgpack:"text"`
	Hint  string `msgpack:"hint"`
	Small bool   `msgpack:"small"` // the cluster has too few slots for the job, also when no other is there
}

// Serve asks for a daemon for one job.
type Serve struct {
	Version string `msgpack:"version"`
	Slots   int    `msgpack:"slots"`
	Session string `msgpack:"session"` // by which it is found again
	// PatienceMS is how long the daemon waits for another launcher, 0 for as long as it takes to replace this daemon.
	PatienceMS int `msgpack:"patience"`
}

// Resume asks for a connection to a daemon that Serve has started, or for its end.
type Resume struct {
	Session string `msgpack:"session"`
	End     bool   `msgpack:"end"`
	Term    uint64 `msgpack:"term"`  // of the launcher
	Adopt   bool   `msgpack:"adopt"` // it takes over from another one
}

// Detach asks a host to run a launcher, away from its user's terminal: its arguments, its name the first of them,
// and what its user's environment adds to the daemon's.
type Detach struct {
	Version string   `msgpack:"version"`
	Program string   `msgpack:"program"` // in a few words
	Args    []string `msgpack:"args"`
	Env     []string `msgpack:"env"`
	Dir     string   `msgpack:"dir"`
}

// Detached is the answer when the job runs or waits for slots: its number on that host, and how it stands. If it
// could not start, it is what the launcher wrote, its exit code, and the signal by which it was killed, if it was.
type Detached struct {
	Host   string `msgpack:"host"`
	Job    int    `msgpack:"job"`
	Text   string `msgpack:"text"`
	Output []byte `msgpack:"output"`
	Code   int    `msgpack:"code"`
	Signal int    `msgpack:"signal"`
}

// AskDetached asks for the detached jobs whose launchers run, or ran, on a host.
type AskDetached struct{}

// DetachedJobs are records of package launcher/jobs, as JSON.
type DetachedJobs struct {
	Records []byte `msgpack:"records"`
}

// Reach asks for a connection to a detached job: to the socket of its launcher, or for its output.
type Reach struct {
	Job    int  `msgpack:"job"`
	Output bool `msgpack:"output"`
	Lines  int  `msgpack:"lines"`  // of the output, negative for all there are
	Follow bool `msgpack:"follow"` // what comes, too
}

// AskJobs asks for Jobs.
type AskJobs struct {
	Here bool `msgpack:"here"` // as far as this daemon knows, even if another one keeps the queue
}

// Jobs is what a cluster does.
type Jobs struct {
	Members []MemberState `msgpack:"members"`
	Jobs    []JobState    `msgpack:"jobs"` // in the order in which they came
}

// MemberState is a host of a cluster.
type MemberState struct {
	Host     string `msgpack:"host" json:"host"`
	Addr     string `msgpack:"addr" json:"address"`
	Slots    int    `msgpack:"slots" json:"slots"`
	Used     int    `msgpack:"used" json:"used"`
	Draining bool   `msgpack:"draining" json:"draining"`
	Version  string `msgpack:"version" json:"version"`
	Born     int64  `msgpack:"born" json:"-"`
}

// JobState is a job that holds slots, or waits for them if it has no shares.
type JobState struct {
	User    string  `msgpack:"user" json:"user"`
	Program string  `msgpack:"program" json:"program"`
	Ranks   int     `msgpack:"ranks" json:"ranks"`
	Shares  []Share `msgpack:"shares" json:"-"`
	Seconds int     `msgpack:"seconds" json:"seconds"` // since it came
}

func (*Member) kind() byte    { return 64 }
func (*Reserve) kind() byte   { return 65 }
func (*Queued) kind() byte    { return 66 }
func (*Granted) kind() byte   { return 67 }
func (*Elsewhere) kind() byte { return 68 }
func (*Refused) kind() byte   { return 69 }
func (*Serve) kind() byte     { return 70 }
func (*AskJobs) kind() byte   { return 71 }
func (*Jobs) kind() byte      { return 72 }
func (*Resume) kind() byte    { return 73 }

func (*Detach) kind() byte       { return 74 }
func (*Detached) kind() byte     { return 75 }
func (*AskDetached) kind() byte  { return 76 }
func (*DetachedJobs) kind() byte { return 77 }
func (*Reach) kind() byte        { return 78 }
