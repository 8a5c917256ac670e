package wire

import (
	"gorun/topology"
)

// Launcher and daemon, in the order in which they are said.

// Hello is the daemon's first word.
type Hello struct {
	Proto   int    `msgpack:"proto"`
	Version string `msgpack:"version"`
	PID     int    `msgpack:"pid"`
}

// Job tells a daemon what it will run. It travels on standard input because it holds the secret and
// the user's environment, which argv would show to everybody.
type Job struct {
	JobOptions

	ID      string   `msgpack:"id"`
	Secret  []byte   `msgpack:"secret"`  // 32 bytes; every key of the job is derived from it
	HostID  int      `msgpack:"host"`    // of this daemon in the job, never given to another one
	Name    string   `msgpack:"name"`    // of its host, as in the host list
	Alone   bool     `msgpack:"alone"`   // there is no other host and never will be
	Elastic bool     `msgpack:"elastic"` // the world may change while the job runs
	Open    bool     `msgpack:"open"`    // hosts may come that are not known yet
	Slots   int      `msgpack:"slots"`   // how many processes this host is to have
	Argv    []string `msgpack:"argv"`
	Env     []string `msgpack:"env"` // of every rank
	Dir     string   `msgpack:"dir"`
	Toward  string   `msgpack:"toward"`   // an address of another host, to choose our own by the route to it
	LocalIP string   `msgpack:"local_ip"` // address at which the launcher reached the host, if any
	Relay   string   `msgpack:"relay"`    // hand the binary to hosts that send this, until the first Roster; "" for none
}

// Rank is a process of the receiving host and its place in the world.
type Rank struct {
	Process   int      `msgpack:"process"` // its number in the job, never given to another one; the same as Rank in the first epoch
	Rank      int      `msgpack:"rank"`
	LocalRank int      `msgpack:"local_rank"`
	CrossRank int      `msgpack:"cross_rank"`
	CrossSize int      `msgpack:"cross_size"`
	Env       []string `msgpack:"env"`     // in addition to Job.Env; wins
	Argv      []string `msgpack:"argv"`    // in place of Job.Argv, if it runs another program than the others
	Dir       string   `msgpack:"dir"`     // in place of Job.Dir
	Program   int      `msgpack:"program"` // the number of that program among those of the job
}

// Ready is a daemon's answer to Job: where peers find it and what its host looks like.
type Ready struct {
	Gossip string        `msgpack:"gossip"` // host:port
	Data   []string      `msgpack:"data"`   // host:port candidates, best first
	Ports  []int         `msgpack:"ports"`  // more of them: the first for JAX, then one for each rank if the job wants TF_CONFIG
	Port   int           `msgpack:"port"`   // a port that was free on this host (MASTER_PORT)
	KVPort int           `msgpack:"kv"`     // of the key-value service for stock Horovod, 0 for none
	Host   topology.Host `msgpack:"host"`
	Relay  int           `msgpack:"relay"` // the port at which the binary can be had, 0 for none
}

// Roster says who is in the world of an epoch and where they are; the daemons then form it by themselves. The
// launcher alone numbers epochs, and a Roster overrides those of smaller ones: the world before it ends at once,
// and what its ranks have in flight fails with the Reason. A process of the receiving host that runs goes on, one
// that does not run is started, and one that is not in Ranks is ended.
type Roster struct {
	Epoch      uint32 `msgpack:"epoch"`
	Reason     string `msgpack:"reason"` // why there is another world
	Size       int    `msgpack:"size"`   // ranks in all
	Peers      []Peer `msgpack:"peers"`  // in the order of their first ranks; none if Peers has told them
	Ranks      []Rank `msgpack:"ranks"`  // of the receiving host
	MasterAddr string `msgpack:"master_addr"`
	MasterPort int    `msgpack:"master_port"`
	KVPort     int    `msgpack:"kv_port"` // at MasterAddr, 0 for none
	LeaseMS    int    `msgpack:"lease"`   // how long a host may be silent
	// Later has the ranks started before there is a world: it is formed when Form says so.
	Later bool `msgpack:"later"`
}

// Wanted says that a rank waits for a world that is to be formed later.
type Wanted struct{}

// Form has the world of a Roster formed now.
type Form struct {
	Epoch uint32 `msgpack:"epoch"`
}

// Peers is the part of a Roster that is the same for all its hosts, and comes before it: among many hosts it is most of
// it, and is encoded once.
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

// Committed reports the world that this daemon entered; its Order and Why come from one of its hosts only.
type Committed struct{ World World }

// Rejoining says that a process has left the world of Epoch and waits in init for the next one.
type Rejoining struct {
	Process int    `msgpack:"process"`
	Epoch   uint32 `msgpack:"epoch"`
	Why     string `msgpack:"why"` // the first of the errors that the process was told of last in that world, "" for none
}

// StateKept says that a process has committed its state in the world of Epoch. A host says it once for each world.
type StateKept struct {
	Epoch uint32 `msgpack:"epoch"`
}

// HostsChanged tells the ranks that the world could be another one. They leave it when it suits them.
type HostsChanged struct {
	Epoch   uint32 `msgpack:"epoch"` // whose world it is about
	Added   bool   `msgpack:"added"`
	Removed bool   `msgpack:"removed"`
	Stamp   int64  `msgpack:"stamp"` // greater than those before
}

// Topology replaces the file of that name in the Job: the user has changed it.
type Topology struct {
	Text []byte `msgpack:"text"`
}

// World is an epoch's members in ring order.
type World struct {
	Epoch uint32   `msgpack:"epoch"`
	Order []int    `msgpack:"order"` // host ids
	Why   []string `msgpack:"why"`   // reason for each edge of the ring
	Cost  Cost     `msgpack:"cost"`  // of its slowest edges, once it is committed
	// Rings are those that large tensors take at once, if they do; Split says why, if there was a choice.
	Rings []RailRing `msgpack:"rings"`
	Split string     `msgpack:"split"`
}

// RailRing is a ring in one of several networks.
type RailRing struct {
	Rail  string   `msgpack:"rail"`  // the network
	Order []int    `msgpack:"order"` // host ids
	Why   []string `msgpack:"why"`   // reason for each edge
	Share int      `msgpack:"share"` // of a tensor, in thousandths
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

// Stream is standard output or standard error.
type Stream uint8

// Streams of a rank.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Output is what a process wrote, in order per stream, cut anywhere.
type Output struct {
	Process int    `msgpack:"process"`
	Stream  Stream `msgpack:"stream"`
	Data    []byte `msgpack:"data"`
}

// Exited is the end of a process, after its last Output.
type Exited struct {
	Process int    `msgpack:"process"`
	Code    int    `msgpack:"code"`   // exit status; 128+n for signal n; 126/127 when it could not start
	Signal  int    `msgpack:"signal"` // 0 if none
	Error   string `msgpack:"error"`  // why it could not start
	Asked   bool   `msgpack:"asked"`  // the daemon was told to stop it
	// Unfinished is true of an MPI program that exited with 0 without MPI_Finalize; Code says that this is no success.
	Unfinished bool `msgpack:"unfinished"`
	// Alone is the MPI library of a program that exited with 0 and that never found the other ranks; Code says that this is no success.
	Alone string `msgpack:"alone"`
	// Deaf is true if the daemon did not hear its launcher at that time.
	Deaf bool `msgpack:"deaf"`
}

// Failed says that the daemon cannot go on, or has not been able to for a while, at which step and what to do about it.
type Failed struct {
	Step string `msgpack:"step"`
	Text string `msgpack:"text"`
	Hint string `msgpack:"hint"`
	Code int    `msgpack:"code"` // exit code for the launcher, 0 for the default
	Peer int    `msgpack:"peer"` // host id, if it is a peer that failed; the sender's own otherwise
	// Again is true if it goes on trying.
	Again bool `msgpack:"again"`
}

// Evidence is all that a host knows against a peer. It takes the place of what the host sent about that peer before: a zero value means
// that there is nothing any more. What follows is the launcher's decision, as of two hosts that do not hear each other either may be the
// one that is cut off.
type Evidence struct {
	Peer      int       `msgpack:"peer"`  // host id
	Epoch     uint32    `msgpack:"epoch"` // of the sender's world
	Suspicion Suspicion `msgpack:"suspicion"`
	// HungUp is true if the peer has ended all connections with the sender, as the kernel does for a process that is gone.
	HungUp bool `msgpack:"hung_up"`
	// UnansweredMS is for how long the peer has not answered what was sent to it over the link, 0 if that is not worth a line.
	UnansweredMS int64 `msgpack:"unanswered"`
	// AwaitedMS is for how long the world that is being formed has waited for the peer, 0 if that is not worth a line.
	AwaitedMS int64 `msgpack:"awaited"`
}

// Suspicion is how sure a host is that it does not hear a peer.
type Suspicion int8

// Suspicions, weakest first.
const (
	NoSuspicion   Suspicion = iota
	LeaseEndsSoon           // the peer does not answer, and its lease ends soon: others are to report which hosts they miss
	NeverReached            // there has been no link between them for the lease
	LeaseOver               // the peer has been silent for its lease
)

// Log is a line for a user who asked for -v.
type Log struct {
	Text string `msgpack:"text"`
}

// Alive says that a daemon is there, every second, or that the launcher is, every SpeakEvery.
type Alive struct{}

// Stdin is the launcher's standard input, for the processes of a host that read it.
type Stdin struct {
	Data []byte `msgpack:"data"`
	EOF  bool   `msgpack:"eof"`
}

// Taken says that all of them took (or refused) one Stdin message. A launcher has at most StdinWindow of them
// under way, so that a rank that reads slowly slows the launcher down and nobody has to store its input.
type Taken struct{}

// StdinWindow bounds the Stdin messages that are not Taken yet.
const StdinWindow = 16

// Fence is a barrier of programs that find each other by PMI. A daemon sends it when all ranks of its host
// have arrived, with what they published; the launcher answers every host with what all published.
type Fence struct {
	Number uint64            `msgpack:"number"` // from 1
	Pairs  map[string]string `msgpack:"pairs"`
}

// Name is what a rank asks about the names that programs publish by PMI; the launcher, which keeps them for the whole job,
// sends it back with the answer. A rank asks one thing at a time.
type Name struct {
	Rank    int    `msgpack:"rank"`
	Asks    string `msgpack:"asks"` // one of NamePublish, NameUnpublish, NameLookup
	Service string `msgpack:"service"`
	Port    string `msgpack:"port"` // to publish, or found
	OK      bool   `msgpack:"ok"`
}

// What a rank may ask about a name, in PMI's words.
const (
	NamePublish   = "publish"
	NameUnpublish = "unpublish"
	NameLookup    = "lookup"
)

// Alone says that an MPI library keeps a rank apart from the others.
type Alone struct {
	Process int    `msgpack:"process"`
	Library string `msgpack:"library"`
	Sure    bool   `msgpack:"sure"` // it has begun with MPI; otherwise it has ended, and may have
}

// IfAlone says what becomes of a job if an MPI library keeps a rank apart from the others.
type IfAlone int8

// By default the job fails when that rank has ended, unless something shows that it has found the others in another way.
const (
	AloneFails IfAlone = iota
	AloneEnds          // it ends as soon as that is seen
	AloneWarns         // a warning is all
)

// Stuck says that ranks of a host wait at a fence for another one of it that has ended.
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
}

// Inspect asks a daemon what its ranks are doing.
type Inspect struct{}

// Inspected is the answer. For what they wait is asked with AskStalled.
type Inspected struct {
	Ranks []RankState `msgpack:"ranks"`
}

// RankState is what a rank's process does, in words.
type RankState struct {
	Process int    `msgpack:"process"`
	State   string `msgpack:"state"`
}

// Done is the daemon's last word: every rank has ended and nothing of the job is left on its host.
type Done struct {
	Links Links `msgpack:"links"`
}

// Links is what the links of a host have carried.
type Links struct {
	SentBytes      uint64 `msgpack:"sent"` // without what was sent again
	ResentBytes    uint64 `msgpack:"resent"`
	ResentSegments uint64 `msgpack:"segments"` // those that were sent again
	Renewed        uint64 `msgpack:"renewed"`  // connections that took the place of others; each is counted at both ends
	Damaged        uint64 `msgpack:"damaged"`  // connections that were replaced because of damaged data
}

// Daemon to daemon, by gossip.

// Facts is what a host tells the coordinator about itself.
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

// Prepared says that a member has its links for the proposed world, and what one of them costs.
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
	Host   int    `msgpack:"host"` // which cannot prepare it
	Reason string `msgpack:"reason"`
}

// Migrating says that the sender's machine is about to stand still, or has done so. It goes to the launcher too.
type Migrating struct {
	Host  int    `msgpack:"host"`  // the sender's id
	State string `msgpack:"state"` // MoveStarts or MoveEnds
	Text  string `msgpack:"text"`
	Moved bool   `msgpack:"moved"` // with MoveEnds: it is on another host of the hypervisor's, with other ways to its peers
	// From the launcher, with MoveEnds: labels of where it is now, as in a topology file but newer, and who told them.
	Labels map[string]string `msgpack:"labels"`
	By     string            `msgpack:"by"`
}

// Moved says that a host is found at other addresses than in the roster. It goes to its peers, and to the launcher, which
// tells them again: they may have moved at the same time.
type Moved struct {
	Host   int      `msgpack:"host"`   // its id
	Stamp  uint64   `msgpack:"stamp"`  // greater than those before
	Gossip string   `msgpack:"gossip"` // as in Ready
	Data   []string `msgpack:"data"`   // as in Ready
}

// Hears says whether a host hears the launcher, to those of its peers that may not.
type Hears struct {
	Host     int    `msgpack:"host"`  // its id
	Stamp    uint64 `msgpack:"stamp"` // greater than those before
	Launcher bool   `msgpack:"launcher"`
}

// Without says, to a peer that is in no world any more, that the one of an epoch does without it.
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
func (*Topology) kind() byte     { return 27 }
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
