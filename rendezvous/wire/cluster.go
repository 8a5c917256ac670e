package wire

// Resident daemons: what one publishes by gossip, and the messages between a launcher and a resident daemon, over a
// channel of package standing, before the daemon of a job speaks.

// ClusterMember is what a resident daemon publishes about itself.
type ClusterMember struct {
	Port     int    `msgpack:"p"` // where it accepts jobs
	Version  string `msgpack:"v"`
	Slots    int    `msgpack:"s"`
	Used     int    `msgpack:"u"`
	Draining bool   `msgpack:"d"` // it accepts no more jobs
	Born     int64  `msgpack:"b"` // when it started, which tells two daemons of one name apart
}

// Share is the slots that a job has on a host.
type Share struct {
	Host  string `msgpack:"host"`
	Addr  string `msgpack:"addr"` // host:port of its daemon
	Slots int    `msgpack:"slots"`
	Born  int64  `msgpack:"born"` // of its daemon
}

// Reserve asks for slots. They are the launcher's until its connection ends.
type Reserve struct {
	Version string  `msgpack:"version"`
	Ranks   int     `msgpack:"ranks"`    // 0 for all slots
	PerHost int     `msgpack:"per_host"` // ranks on each host, 0 for what fits
	Shares  []Share `msgpack:"shares"`   // exactly these, if any
	User    string  `msgpack:"user"`
	Program string  `msgpack:"program"`
	// Elastic asks for further slots whenever some are free, up to Most ranks if that is not 0. Slots of a host that
	// leaves the cluster or drains are taken away. Every change is Granted.
	Elastic bool `msgpack:"elastic"`
	Most    int  `msgpack:"most"`
	// Held are slots that the job has already, from a daemon that no longer holds the queue.
	Held []Share `msgpack:"held"`
	// Job and Term are set if the launcher can be replaced: one of a greater term replaces the previous ones.
	Job  string `msgpack:"job"`
	Term uint64 `msgpack:"term"`
}

// Queued reports that a job has no slots yet, and why.
type Queued struct {
	Text   string   `msgpack:"text"`
	Others []string `msgpack:"others"` // as in Granted
}

// Granted lists the slots of a job. As an answer to Serve it means that the job's daemon speaks next.
type Granted struct {
	Shares []Share  `msgpack:"shares"`
	Others []string `msgpack:"others"` // addresses to ask if this daemon ends
	// Ask requests an empty Granted in answer; only the next one without it assigns the slots, because a launcher that
	// waited may have been stopped meanwhile. One that answers too late finds the connection closed, and asks anew.
	Ask bool `msgpack:"ask"`
	// Encrypt says that the cluster refuses jobs without --encrypt.
	Encrypt bool `msgpack:"encrypt"`
}

// Elsewhere names the queue holder.
type Elsewhere struct {
	Addr string `msgpack:"addr"`
}

// Refused is the answer to a request that cannot be met.
type Refused struct {
	Text  string `msgpack:"text"`
	Hint  string `msgpack:"hint"`
	Small bool   `msgpack:"small"` // the cluster has too few slots for the job, even with no other job
}

// Serve asks for a daemon for one job.
type Serve struct {
	Version string `msgpack:"version"`
	Slots   int    `msgpack:"slots"`
	Session string `msgpack:"session"` // identifies it for Resume
	// PatienceMS is how long the daemon waits for a successor of its launcher, 0 for the time to replace the resident
	// daemon.
	PatienceMS int `msgpack:"patience"`
	// User, Program and Ranks describe the whole job, for the log of the resident daemon.
	User    string `msgpack:"user"`
	Program string `msgpack:"program"`
	Ranks   int    `msgpack:"ranks"`
	Encrypt bool   `msgpack:"encrypt"` // the job encrypts
}

// Resume asks for a connection to a daemon that Serve has started, or for its end.
type Resume struct {
	Session string `msgpack:"session"`
	End     bool   `msgpack:"end"`
	Term    uint64 `msgpack:"term"`  // of the launcher
	Adopt   bool   `msgpack:"adopt"` // it takes over from another launcher
}

// Detach asks a host to run a launcher, away from its user's terminal. Args are its arguments, beginning with its name;
// Env is what the user's environment adds to the daemon's.
type Detach struct {
	Version string   `msgpack:"version"`
	Program string   `msgpack:"program"` // in a few words
	Args    []string `msgpack:"args"`
	Env     []string `msgpack:"env"`
	Dir     string   `msgpack:"dir"`

	Programs []SentProgram `msgpack:"programs"` // those of Args, as its user's machine sees them
	Tree     *Tree         `msgpack:"tree"`     // that hosts of the job get; nil for none
	Python   string        `msgpack:"python"`   // the program for whose Python they get an environment; "" for none
	// What the host adds: the directory of the environment there, and for which Python it was made.
	Packages string   `msgpack:"packages"`
	Platform Platform `msgpack:"platform"`
}

// SentProgram is a program of a job, with all that flags and files of its user's machine set for it.
type SentProgram struct {
	Argv []string `msgpack:"argv"`
	Env  []string `msgpack:"env"`
	Dir  string   `msgpack:"dir"`
}

// Detached is the answer when the job runs or waits for slots: its number on that host, and its state. If it could not
// start, it has the launcher's output, its exit code, and the signal that killed it, if one did.
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
	Lines  int  `msgpack:"lines"`  // of the output, negative for all
	Follow bool `msgpack:"follow"` // later output, too
}

// AskJobs asks for Jobs.
type AskJobs struct {
	Here bool `msgpack:"here"` // as far as this daemon knows, even if another one holds the queue
}

// Jobs lists the hosts and jobs of a cluster.
type Jobs struct {
	Host    string        `msgpack:"host"` // that answers
	Members []MemberState `msgpack:"members"`
	Jobs    []JobState    `msgpack:"jobs"` // in the order of their requests
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
	Seconds int     `msgpack:"seconds" json:"seconds"` // since its request
}

func (*ClusterMember) kind() byte { return 64 }
func (*Reserve) kind() byte       { return 65 }
func (*Queued) kind() byte        { return 66 }
func (*Granted) kind() byte       { return 67 }
func (*Elsewhere) kind() byte     { return 68 }
func (*Refused) kind() byte       { return 69 }
func (*Serve) kind() byte         { return 70 }
func (*AskJobs) kind() byte       { return 71 }
func (*Jobs) kind() byte          { return 72 }
func (*Resume) kind() byte        { return 73 }

func (*Detach) kind() byte       { return 74 }
func (*Detached) kind() byte     { return 75 }
func (*AskDetached) kind() byte  { return 76 }
func (*DetachedJobs) kind() byte { return 77 }
func (*Reach) kind() byte        { return 78 }
