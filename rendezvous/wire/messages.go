package wire

import (
	"fmt"

	"gorun/topology"
)

// Messages between launcher and daemon, in the order in which they are sent.

// Hello is the daemon's first message.
type Hello struct {
	Proto   int    `msgpack:"proto"`
	Version string `msgpack:"version"`
	PID     int    `msgpack:"pid"`
}

// Job describes what a daemon will run. It travels on standard input because it holds the secret and
// the user's environment, which argv would show to every user of the host.
type Job struct {
	JobOptions

	ID      string   `msgpack:"id"`
	Secret  []byte   `msgpack:"secret"`  // 32 bytes; every key of the job is derived from it
	HostID  int      `msgpack:"host"`    // of this daemon in the job, never given to another one
	Name    string   `msgpack:"name"`    // of its host, as in the host list
	Alone   bool     `msgpack:"alone"`   // the job has no other host and never will
	Elastic bool     `msgpack:"elastic"` // the world may change while the job runs
	Open    bool     `msgpack:"open"`    // hosts that are not known yet may join
	Slots   int      `msgpack:"slots"`   // how many processes this host runs
	Argv    []string `msgpack:"argv"`
	Env     []string `msgpack:"env"` // of every rank
	Dir     string   `msgpack:"dir"`
	Toward  string   `msgpack:"toward"`   // an address of another host; the route to it selects this host's own
	LocalIP string   `msgpack:"local_ip"` // address at which the launcher reached the host, if any
	Tree    *Tree    `msgpack:"tree"`     // what ranks run lies in it; nil if it is on the host already
	Python  bool     `msgpack:"python"`   // ranks run in an environment of Python that the host asks for
}

// Rank is a process of the receiving host and its place in the world.
type Rank struct {
	Process   int      `msgpack:"process"` // its number in the job, never reused; equal to Rank in the first epoch
	Rank      int      `msgpack:"rank"`
	LocalRank int      `msgpack:"local_rank"`
	CrossRank int      `msgpack:"cross_rank"`
	CrossSize int      `msgpack:"cross_size"`
	Env       []string `msgpack:"env"`     // in addition to Job.Env; wins
	Argv      []string `msgpack:"argv"`    // replaces Job.Argv in a job of several programs
	Dir       string   `msgpack:"dir"`     // replaces Job.Dir
	Program   int      `msgpack:"program"` // the number of that program in the job
	Slot      int      `msgpack:"slot"`    // of the host; what must not change while the process lives depends on it
}

// Ready is a daemon's answer to Job: its addresses, and a description of its host.
type Ready struct {
	Gossip string        `msgpack:"gossip"` // host:port
	Data   []string      `msgpack:"data"`   // host:port candidates, best first
	Ports  []int         `msgpack:"ports"`  // more free ports: the first for JAX, then one for each rank if the job sets TF_CONFIG
	Port   int           `msgpack:"port"`   // a port that was free on this host (MASTER_PORT)
	KVPort int           `msgpack:"kv"`     // of the key-value service for stock Horovod, 0 for none
	Host   topology.Host `msgpack:"host"`
	Files  int           `msgpack:"files"` // the port that serves the files of the Tree, 0 for none
	// Python has the major and minor versions of Python and of frameworks, by name, and path, if the program is a Python.
	Python map[string]string `msgpack:"python"`
}

// Roster lists the members of an epoch's world and their addresses; the daemons then form the world by themselves. The
// launcher alone numbers epochs. A Roster ends the world of a smaller epoch at once, and fails what its ranks have in
// flight with the Reason. On the receiving host, processes in Ranks and Spares continue or are started, and all others
// are ended.
type Roster struct {
	Epoch      uint32 `msgpack:"epoch"`
	Reason     string `msgpack:"reason"` // why there is another world
	Size       int    `msgpack:"size"`   // ranks in all
	Peers      []Peer `msgpack:"peers"`  // in the order of their first ranks; none if a Peers message carried them
	Ranks      []Rank `msgpack:"ranks"`  // of the receiving host
	Spares     []Rank `msgpack:"spares"` // of the receiving host: they go on waiting for their first world
	MasterAddr string `msgpack:"master_addr"`
	MasterPort int    `msgpack:"master_port"`
	KVPort     int    `msgpack:"kv_port"` // at MasterAddr, 0 for none
	LeaseMS    int    `msgpack:"lease"`   // how long a host may be silent
	// Later starts the ranks before there is a world, which Form then begins.
	Later bool `msgpack:"later"`
}

// Spares replaces the Spares of the Roster of Epoch: those that do not run are started, and those that it lacks are ended.
type Spares struct {
	Epoch uint32 `msgpack:"epoch"`
	Ranks []Rank `msgpack:"ranks"` // their numbers follow those of the world
}

// Wanted reports that a rank waits for a world whose Roster has Later set.
type Wanted struct{}

// Form asks the daemons to form the world of a Roster now.
type Form struct {
	Epoch uint32 `msgpack:"epoch"`
}

// Peers is the part of a Roster that is the same for all its hosts, and precedes it. With many hosts it is the largest
// part, and is encoded once.
type Peers struct {
	Epoch uint32 `msgpack:"epoch"`
	Peers []Peer `msgpack:"peers"`
}

// Peer is one daemon of the job.
type Peer struct {
	ID     int      `msgpack:"id"`
	Name   string   `msgpack:"name"`
	Gossip string   `msgpack:"gossip"`
	Data   []string `msgpack:"data"`
	Ranks  []int    `msgpack:"ranks"`
	Ports  []int    `msgpack:"ports"` // Ready.Ports
}

// Committed reports the world that this daemon entered. One host of a world sends Order and Why.
type Committed struct{ World World }

// Rejoining reports that a process has left the world of Epoch and waits in init for the next one. Epoch is 0 for a spare,
// which waits for its first.
type Rejoining struct {
	Process int    `msgpack:"process"`
	Epoch   uint32 `msgpack:"epoch"`
	Why     string `msgpack:"why"` // the error that ended its part in that world, "" for none
}

// StateKept reports that a process has committed its state in the world of Epoch. A host sends it once for each world.
type StateKept struct {
	Epoch uint32 `msgpack:"epoch"`
}

// HostsChanged notifies the ranks that the next world could have other members. They leave the present one when it
// suits them.
type HostsChanged struct {
	Epoch   uint32 `msgpack:"epoch"` // of the present world
	Added   bool   `msgpack:"added"`
	Removed bool   `msgpack:"removed"`
	Stamp   int64  `msgpack:"stamp"` // greater than those before
}

// World is an epoch's members in ring order.
type World struct {
	Epoch uint32   `msgpack:"epoch"`
	Order []int    `msgpack:"order"` // host ids
	Why   []string `msgpack:"why"`   // reason for each edge of the ring
	Cost  Cost     `msgpack:"cost"`  // of its slowest edges, once it is committed
}

// Cost is what a message between two hosts costs, in seconds; zero if it was not measured.
type Cost struct {
	Alpha float64 `msgpack:"alpha"` // per message
	Beta  float64 `msgpack:"beta"`  // per byte
	Gap   float64 `msgpack:"gap"`   // between two messages that a host sends
}

// Started reports that a process runs.
type Started struct {
	Process int `msgpack:"process"`
	PID     int `msgpack:"pid"`
}

// OutputStream is standard output or standard error of a rank.
type OutputStream uint8

// Streams of a rank.
const (
	Stdout OutputStream = 1
	Stderr OutputStream = 2
)

func (s OutputStream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	}
	return fmt.Sprintf("stream %d", uint8(s))
}

// Output is what a process wrote, in order per stream, cut anywhere.
type Output struct {
	Process int          `msgpack:"process"`
	Stream  OutputStream `msgpack:"stream"`
	Data    []byte       `msgpack:"data"`
}

// Exited reports the end of a process, after its last Output.
type Exited struct {
	Process int    `msgpack:"process"`
	Code    int    `msgpack:"code"`   // exit status; 128+n for signal n; 126/127 when it could not start
	Signal  int    `msgpack:"signal"` // 0 if none
	Error   string `msgpack:"error"`  // why it could not start
	Asked   bool   `msgpack:"asked"`  // the daemon had an order to stop it
	// Unfinished is true for an MPI program that exited with 0 without MPI_Finalize; Code is not 0 then.
	Unfinished bool `msgpack:"unfinished"`
	// Alone is the MPI library of a program that exited with 0 and never found the other ranks; Code is not 0 then.
	Alone string `msgpack:"alone"`
	// Deaf is true if the daemon did not hear its launcher when the process ended.
	Deaf bool `msgpack:"deaf"`
	// Memory is true if the kernel ended it for lack of memory.
	Memory bool `msgpack:"memory"`
	// Split is nil if the process counted nothing.
	Split *Split `msgpack:"split"`
	// File is the program that the daemon found, "" if none could start.
	File string `msgpack:"file"`
}

// Failed reports that the daemon cannot continue, or could not for a while, with the step and a hint for the user.
type Failed struct {
	Step string `msgpack:"step"`
	Text string `msgpack:"text"`
	Hint string `msgpack:"hint"`
	Code int    `msgpack:"code"` // exit code for the launcher, 0 for the default
	Peer int    `msgpack:"peer"` // host id of the peer that failed; the sender's own otherwise
	// Again is true if the daemon keeps trying.
	Again bool `msgpack:"again"`
}

// Evidence is all that a host knows against a peer. It replaces what the host sent about that peer before; a zero value
// withdraws it. The launcher decides what follows, because of two hosts that do not hear each other either may be the
// one that is cut off.
type Evidence struct {
	Peer      int       `msgpack:"peer"`  // host id
	Epoch     uint32    `msgpack:"epoch"` // of the sender's world
	Suspicion Suspicion `msgpack:"suspicion"`
	// HungUp is true if the peer has ended all connections with the sender, as the kernel does for a process that is gone.
	HungUp bool `msgpack:"hung_up"`
	// UnansweredMS is how long data sent over the link has been unanswered, 0 if that is too short to report.
	UnansweredMS int64 `msgpack:"unanswered"`
	// AwaitedMS is how long the world that is being formed has waited for the peer, 0 if that is too short to report.
	AwaitedMS int64 `msgpack:"awaited"`
}

// Suspicion grades how certain a host is that it does not hear a peer.
type Suspicion int8

// Suspicions, weakest first.
const (
	NoSuspicion   Suspicion = iota
	LeaseEndsSoon           // the peer does not answer, and its lease ends soon: other hosts report which peers they miss
	NeverReached            // there has been no link between them for the lease
	LeaseOver               // the peer has been silent for its lease
)

// Log is a line for a user who asked for -v.
type Log struct {
	Text string `msgpack:"text"`
}

// Alive is a sign of life: of a daemon every second, of the launcher every liveness.Timing.LauncherInterval.
type Alive struct{}

// Stdin is the launcher's standard input, for the processes of a host that read it.
type Stdin struct {
	Data []byte `msgpack:"data"`
	EOF  bool   `msgpack:"eof"`
}

// Taken reports that all of these processes took (or refused) one Stdin message. At most StdinWindow of them are under
// way, so that a rank that reads slowly slows down the launcher, and its input is stored nowhere.
type Taken struct{}

// StdinWindow bounds the Stdin messages that are not Taken yet.
const StdinWindow = 16

// Fence is a barrier of programs that find each other by PMI. A daemon sends it when all ranks of its host
// have arrived, with the pairs they published; the launcher answers every host with the pairs of all.
type Fence struct {
	Number uint64            `msgpack:"number"` // from 1
	Pairs  map[string]string `msgpack:"pairs"`
}

// Name is a rank's request about the names that programs publish by PMI. The launcher keeps the names for the whole job
// and returns the message with the answer. A rank has one request under way at a time.
type Name struct {
	Rank    int    `msgpack:"rank"`
	Asks    string `msgpack:"asks"` // one of NamePublish, NameUnpublish, NameLookup
	Service string `msgpack:"service"`
	Port    string `msgpack:"port"` // to publish, or found
	OK      bool   `msgpack:"ok"`
}

// The requests about names, in PMI's words.
const (
	NamePublish   = "publish"
	NameUnpublish = "unpublish"
	NameLookup    = "lookup"
)

// Alone reports that an MPI library isolates a rank in a world of its own.
type Alone struct {
	Process int    `msgpack:"process"`
	Library string `msgpack:"library"`
	Sure    bool   `msgpack:"sure"` // the rank has called MPI_Init; otherwise it has ended, and may have called it
}

// IfAlone is what happens to a job if an MPI library isolates a rank.
type IfAlone int8

// By default the job fails when that rank has ended, unless the rank has found the others in another way.
const (
	AloneFails IfAlone = iota
	AloneEnds          // the job ends as soon as that is noticed
	AloneWarns         // gorun only warns
)

// Stuck reports that ranks of a host wait at a fence for another rank of the host that has ended.
type Stuck struct {
	Ended   int   `msgpack:"ended"`
	Waiting []int `msgpack:"waiting"`
}

// Signal is forwarded to every rank.
type Signal struct {
	Number int `msgpack:"number"`
}

// Stop ends the ranks: TERM, then KILL after the job's grace; at once if Now.
type Stop struct {
	Now       bool `msgpack:"now"`
	Interrupt bool `msgpack:"interrupt"` // INT first, and TERM only after most of the grace
	Record    int  `msgpack:"record"`    // send so many operations of the flight recorder first
}

// Inspect asks a daemon what its ranks are doing.
type Inspect struct {
	Stacks bool `msgpack:"stacks"` // with the stacks of the ranks that can write them
	Native bool `msgpack:"native"` // and, by tools that stop ranks for a moment, with the functions of C
}

// Inspected is the answer. AskStalled asks which operations they wait for.
type Inspected struct {
	Ranks []RankState `msgpack:"ranks"`
	Links []LinkState `msgpack:"links"`
	Now   int64       `msgpack:"now"` // the host's clock, in microseconds since 1970
}

// RankState describes what a rank's process does.
type RankState struct {
	Process int      `msgpack:"process"`
	PID     int      `msgpack:"pid"`    // of the process that has the session, or of the one that was started
	State   string   `msgpack:"state"`  // in words
	Split   *Split   `msgpack:"split"`  // nil if it counts nothing
	Stack   string   `msgpack:"stack"`  // of Python; "" if it writes none, and py-spy cannot read it
	Kernel  []string `msgpack:"kernel"` // functions of the kernel that its main thread is in, the innermost first, if visible
	Signs   *Signs   `msgpack:"signs"`  // nil if it was not looked at for a while

	Native  string        `msgpack:"native"`  // with the functions of C, in the form of Stack; "" if nobody asked, or no tool shows it
	Tool    string        `msgpack:"tool"`    // that showed it
	Notes   []string      `msgpack:"notes"`   // why no tool did, and what one did to the rank
	Threads []ThreadState `msgpack:"threads"` // with Native
}

// ThreadState is what the kernel shows of a thread.
type ThreadState struct {
	ID      int      `msgpack:"id" json:"id"`
	Name    string   `msgpack:"name" json:"name"`
	State   string   `msgpack:"state" json:"state"`               // a letter, such as S
	Wait    string   `msgpack:"wait" json:"wait,omitempty"`       // function of the kernel that it waits in
	Syscall string   `msgpack:"syscall" json:"syscall,omitempty"` // number and arguments
	Kernel  []string `msgpack:"kernel" json:"kernel,omitempty"`   // functions of the kernel, the innermost first
}

// Signs are what the kernel shows of what holds a process up. Times are in microseconds; all but Swapped, Killed and
// what is in words count from the beginning of the look.
type Signs struct {
	Window    int64    `msgpack:"window" json:"window_us"`           // length of the look
	CPU       int64    `msgpack:"cpu" json:"cpu_us"`                 // time of all threads
	Main      int64    `msgpack:"main" json:"main_us"`               // of the main thread
	Busiest   int64    `msgpack:"busiest" json:"busiest_us"`         // of the busiest other one
	Ready     int64    `msgpack:"ready" json:"ready_us"`             // in which a thread, the one with most, was ready to run and had no CPU
	Switches  int64    `msgpack:"switches" json:"switches"`          // how often the main thread began to wait
	Threads   int      `msgpack:"threads" json:"threads"`            // that it has
	Throttled int64    `msgpack:"throttled" json:"throttled_us"`     // in which its control group kept it from running
	Quota     float64  `msgpack:"quota" json:"quota_cpus,omitempty"` // CPUs that the group may use, if it kept it
	Faults    int64    `msgpack:"faults" json:"faults"`              // pages of its memory that came from disk
	Swapped   int64    `msgpack:"swapped" json:"swapped_bytes"`      // bytes of its memory that are in swap
	Killed    int64    `msgpack:"killed" json:"killed"`              // processes of its control group that the kernel has ended for lack of memory
	Stolen    int64    `msgpack:"stolen" json:"stolen_us"`           // time of each CPU that the hypervisor gave to other machines
	Rival     string   `msgpack:"rival" json:"rival,omitempty"`      // what else used most CPU time, "" for nothing that matters
	RivalCPU  int64    `msgpack:"rival_cpu" json:"rival_cpu_us,omitempty"`
	Stuck     string   `msgpack:"stuck" json:"stuck,omitempty"`   // the file that its main thread waits for
	Full      string   `msgpack:"full" json:"full,omitempty"`     // a file system that it writes to and that has no room
	Dead      []string `msgpack:"dead" json:"dead,omitempty"`     // processes that it started, that have failed, and that it has not waited for
	Beside    []string `msgpack:"beside" json:"beside,omitempty"` // what may explain why its main thread waits: the other end of a connection, processes that it started
}

// LinkState is what a host sees of its link to a peer.
type LinkState struct {
	Peer   int   `msgpack:"peer" json:"-"`           // the id of the other host
	Window int64 `msgpack:"window" json:"window_us"` // length of the look
	Sent   int64 `msgpack:"sent" json:"sent"`        // bytes that the peer has acknowledged meanwhile
	Lost   int64 `msgpack:"lost" json:"lost"`        // packets that the kernel sent again in the last LostMS milliseconds
	LostMS int64 `msgpack:"lost_ms" json:"lost_ms,omitempty"`
	LostOf int64 `msgpack:"lost_of" json:"lost_of,omitempty"` // bytes that the peer acknowledged in that time
	Losing bool  `msgpack:"losing" json:"losing,omitempty"`   // it lost packets in most seconds of that time
	Waits  int64 `msgpack:"waits" json:"waits"`               // segments that were sent or queued and are not acknowledged
	RTT    int64 `msgpack:"rtt" json:"rtt_us"`
	Down   bool  `msgpack:"down" json:"down,omitempty"` // it has no connection
}

// Done is the daemon's last message: every rank has ended and nothing of the job is left on its host.
type Done struct {
	Links Links `msgpack:"links"`
}

// Links counts what the links of a host have carried.
type Links struct {
	SentBytes      uint64 `msgpack:"sent" json:"sent_bytes"`             // without what was sent again
	RDMABytes      uint64 `msgpack:"rdma" json:"rdma_bytes"`             // of SentBytes
	RDMAFailures   uint64 `msgpack:"rdma_failures" json:"rdma_failures"` // queue pairs that this host found broken
	ResentBytes    uint64 `msgpack:"resent" json:"resent_bytes"`
	ResentSegments uint64 `msgpack:"segments" json:"resent_segments"` // segments that were sent again
	Renewed        uint64 `msgpack:"renewed" json:"renewed_streams"`  // connections that replaced others; each is counted at both ends
	Damaged        uint64 `msgpack:"damaged" json:"damaged_streams"`  // connections that were replaced because of damaged data
	BusyBytes      uint64 `msgpack:"busy" json:"busy_bytes"`          // sent in the time in which data waited for the network
	BusyUS         int64  `msgpack:"busy_us" json:"busy_us"`          // that time, summed over links: the slowest edge of a ring is busy longest
}

// Daemon to daemon, by gossip.

// Facts describes a host to the coordinator.
type Facts struct {
	From  int           `msgpack:"from"`
	Epoch uint32        `msgpack:"epoch"`
	Host  topology.Host `msgpack:"host"`
}

// Propose asks every member to get ready for a world.
type Propose struct {
	From  int   `msgpack:"from"`
	World World `msgpack:"world"`
}

// Prepared reports that a member has its links for the proposed world, and the cost of one of them.
type Prepared struct {
	From  int    `msgpack:"from"`
	Epoch uint32 `msgpack:"epoch"`
	Cost  Cost   `msgpack:"cost"`
}

// Commit starts the proposed world.
type Commit struct {
	From  int    `msgpack:"from"`
	Epoch uint32 `msgpack:"epoch"`
	Cost  Cost   `msgpack:"cost"` // the world's
}

// Abort withdraws a proposal.
type Abort struct {
	From   int    `msgpack:"from"`
	Epoch  uint32 `msgpack:"epoch"`
	Host   int    `msgpack:"host"` // that cannot prepare it
	Reason string `msgpack:"reason"`
}

// Migrating reports that the sender's machine is about to be paused by a move, or has been. It goes to the launcher
// too.
type Migrating struct {
	Host  int    `msgpack:"host"`  // the sender's id
	State string `msgpack:"state"` // MoveStarts or MoveEnds
	Text  string `msgpack:"text"`
	Moved bool   `msgpack:"moved"` // with MoveEnds: it is on another host of the hypervisor, with other paths to its peers
	// From the launcher, with MoveEnds: labels of its new place, as in a topology file but newer, and their source.
	Labels map[string]string `msgpack:"labels"`
	By     string            `msgpack:"by"`
}

// Moved reports that a host has other addresses than in the roster. It goes to the host's peers, and to the launcher,
// which sends it to them again, because they may have moved at the same time.
type Moved struct {
	Host   int      `msgpack:"host"`   // its id
	Stamp  uint64   `msgpack:"stamp"`  // greater than those before
	Gossip string   `msgpack:"gossip"` // as in Ready
	Data   []string `msgpack:"data"`   // as in Ready
}

// Hears reports whether a host hears the launcher, to peers that may not hear it.
type Hears struct {
	Host     int    `msgpack:"host"`  // its id
	Stamp    uint64 `msgpack:"stamp"` // greater than those before
	Launcher bool   `msgpack:"launcher"`
}

// Without notifies a peer that it is not in the world of this epoch.
type Without struct {
	Epoch uint32 `msgpack:"epoch"`
}

// States of a move.
const (
	MoveStarts = "starts"
	MoveEnds   = "ends"
)

func (*Hello) kind() byte        { return 1 }
func (*Job) kind() byte          { return 2 }
func (*Ready) kind() byte        { return 3 }
func (*Roster) kind() byte       { return 4 }
func (*Spares) kind() byte       { return 56 }
func (*Committed) kind() byte    { return 5 }
func (*Started) kind() byte      { return 6 }
func (*Output) kind() byte       { return 7 }
func (*Exited) kind() byte       { return 8 }
func (*Failed) kind() byte       { return 9 }
func (*Log) kind() byte          { return 10 }
func (*Stdin) kind() byte        { return 11 }
func (*Signal) kind() byte       { return 12 }
func (*Stop) kind() byte         { return 13 }
func (*Done) kind() byte         { return 14 }
func (*Taken) kind() byte        { return 15 }
func (*Inspect) kind() byte      { return 16 }
func (*Inspected) kind() byte    { return 17 }
func (*Fence) kind() byte        { return 20 }
func (*Rejoining) kind() byte    { return 21 }
func (*HostsChanged) kind() byte { return 24 }
func (*Alive) kind() byte        { return 25 }
func (*Facts) kind() byte        { return 32 }
func (*Propose) kind() byte      { return 33 }
func (*Prepared) kind() byte     { return 34 }
func (*Commit) kind() byte       { return 35 }
func (*Abort) kind() byte        { return 36 }
func (*Migrating) kind() byte    { return 37 }
func (*Moved) kind() byte        { return 39 }
func (*Hears) kind() byte        { return 42 }
func (*Wanted) kind() byte       { return 53 }
func (*Form) kind() byte         { return 54 }
func (*Peers) kind() byte        { return 55 }
func (*Without) kind() byte      { return 58 }
func (*Stuck) kind() byte        { return 59 }
func (*StateKept) kind() byte    { return 61 }
func (*Name) kind() byte         { return 60 }
func (*Alone) kind() byte        { return 62 }
