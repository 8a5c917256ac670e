package session

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/kernel"
)

// The rank's end of lanes: "Lanes" in PROTOCOL.md says what is where, and why all ranks come to the same decision.

const (
	laneBell   = 8  // in the line of a rank: the length of its bell's name, and the name
	maxBell    = 32 // bytes of that name
	maxReopens = 16 // lanes of a name, when different tensors come under it: each takes memory for good
	maxWidened = 4  // of them those that may be wide: a plain one does not mind where a tensor is

	// How long a rank looks again before it sleeps, because a wake-up takes about as long: first alone, unless ranks
	// outnumber CPUs, then so that others run.
	laneSpin  = 50 * time.Microsecond
	laneYield = 200 * time.Microsecond

	// Where other programs keep the CPUs, ranks are rarely there together: a rank that looked in vain so many times in a
	// row sleeps at once, and tries again after some more operations. Who sleeps is let in sooner than who spins.
	laneVain  = 3
	laneRetry = 64
)

// rankLanes are the lanes of a rank.
type rankLanes struct {
	memory      []byte
	ranks, self int
	bell        int // the socket on which other ranks wake this one
	bells       [maxLaneRanks]*unix.SockaddrUnix
	yields      bool // more ranks than CPUs: let others run while waiting
	vain        int  // waits in a row for which spinning was of no use
	left        bool // this rank has joined, and comes to no lane any more
	table       map[string]*rankLane
	offered     uint32                 // the operation after which a lane may be taken, 0 for none,
	next        *rankLane              // and that lane
	seen        map[shownRegion][]byte // memory of the other ranks
	buffers     [][]byte               // scratch
	results     [][]byte               // scratch
}

type laneState uint8

const (
	laneOffered laneState = iota
	laneTaken
	laneClosed
)

// rankLane is what a rank knows of the lane of one name.
type rankLane struct {
	state   laneState
	reopens int
	call    Operation // what it is for
	use     uint64
	at      int // of its words
	stride  int // of its buffers

	offersWide bool
	wide       bool
}

// openLanes asks for the lanes of the world, if there are any.
func (r *Rank) openLanes() error {
	w := &r.Welcome
	if !w.lanes || w.LocalRank < 0 || w.LocalRank >= w.LocalSize || w.LocalSize > maxLaneRanks {
		return nil
	}
	r.out = appendPair(r.out[:0], typeLanes, 0)
	err := r.send()
	l := &rankLanes{ranks: w.LocalSize, self: w.LocalRank, bell: -1,
		table: map[string]*rankLane{},
		seen:  map[shownRegion][]byte{}}
	for err == nil && l.memory == nil {
		err = r.receive(func(kind uint32, b []byte, fd int) error {
			if kind != typeLanes || len(b) != pairLen+8 || le.Uint64(b[pairLen:]) < maxLaneRanks*laneLine || le.Uint64(b[pairLen:]) > lanesBytes {
				return malformed("type %d instead of lanes", kind)
			}
			l.memory, err = mmap(fd, int(le.Uint64(b[pairLen:])), unix.PROT_READ|unix.PROT_WRITE)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("open lanes: %w", err)
	}
	r.lanes = l // from here on release gives it back
	if err := l.hangBell(); err != nil {
		return fmt.Errorf("open lanes: %w", err)
	}
	var cpus unix.CPUSet
	l.yields = unix.SchedGetaffinity(0, &cpus) != nil || cpus.Count() < l.ranks
	return nil
}

func (l *rankLanes) release() {
	if l.bell >= 0 {
		unix.Close(l.bell)
	}
	unix.Munmap(l.memory)
	for _, b := range l.seen {
		unix.Munmap(b)
	}
}

// hangBell makes the bell, and lets other ranks know its name.
func (l *rankLanes) hangBell() error {
	bell, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	l.bell = bell
	if err := unix.Bind(bell, &unix.SockaddrUnix{}); err != nil { // the kernel chooses a name
		return os.NewSyscallError("bind", err)
	}
	at, err := unix.Getsockname(bell)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	a, ok := at.(*unix.SockaddrUnix)
	if !ok || !strings.HasPrefix(a.Name, "@") || len(a.Name) > maxBell {
		return fmt.Errorf("name of a socket: %v", at)
	}
	line := l.memory[l.self*laneLine:]
	copy(line[laneBell+1:], "\x00"+a.Name[1:])
	line[laneBell] = byte(len(a.Name)) // others read it after a system call: this rank must sleep first
	return nil
}

// ring wakes another rank. A bell that is full has been rung.
func (l *rankLanes) ring(rank int) {
	if l.bells[rank] == nil {
		line := l.memory[rank*laneLine:]
		n := int(line[laneBell])
		if n == 0 || n > maxBell {
			return
		}
		l.bells[rank] = &unix.SockaddrUnix{Name: "@" + string(line[laneBell+2:laneBell+1+n])}
	}
	_ = unix.Sendto(l.bell, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, l.bells[rank])
}

func (l *rankLanes) word(x *rankLane, rank int) *uint64 {
	return (*uint64)(unsafe.Pointer(&l.memory[x.at+rank*laneLine]))
}

func (l *rankLanes) flag(rank, at int) *uint32 {
	return (*uint32)(unsafe.Pointer(&l.memory[rank*laneLine+at]))
}

// buffer is that of a rank for a use.
func (l *rankLanes) buffer(x *rankLane, rank int) []byte {
	at := x.at + l.ranks*laneLine + (2*rank+int(x.use&1))*x.stride
	return l.memory[at : at+x.call.In.Bytes]
}

// suits reports whether lanes are for an operation.
func (l *rankLanes) suits(o *Operation) bool {
	most := maxWideBytes
	if l.yields {
		most = maxCrowdBytes
	}
	if o.Kind != collective.Allreduce || o.Group != 0 || o.Root != 0 || o.Pre != 0 && o.Pre != 1 || o.Post != 0 && o.Post != 1 {
		return false
	}
	switch o.Type {
	case kernel.Float32, kernel.Float64:
		if o.Op != kernel.Sum && o.Op != kernel.Average {
			return false
		}
	case kernel.Int32, kernel.Uint32, kernel.Int64, kernel.Uint64:
		if o.Op != kernel.Sum {
			return false
		}
	default:
		return false
	}
	n := o.Type.Size()
	for _, d := range o.Shape {
		if d <= 0 || d > most {
			return false
		}
		if n *= d; n > most {
			return false
		}
	}
	return o.In.holds(n, o.Type.Size()) && o.Out.holds(n, o.Type.Size())
}

// holds reports whether a piece is n bytes of memory that elements of a size can lie in.
func (p Piece) holds(n, element int) bool {
	return p.Memory != nil && p.Bytes == n && p.Offset >= 0 && p.Offset%element == 0 && p.Offset <= len(p.Memory.Bytes)-n
}

func (p Piece) bytes() []byte { return p.Memory.Bytes[p.Offset : p.Offset+p.Bytes] }

// overlap reports whether two pieces of the same length share bytes without being the same.
func overlap(a, b Piece) bool {
	return a.Memory == b.Memory && a.Offset != b.Offset && a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes
}

// fits reports whether an operation is what the lane is for.
func (l *rankLanes) fits(x *rankLane, o *Operation) bool {
	same := l.suits(o) && x.call.Type == o.Type && x.call.Op == o.Op && x.call.Coding == o.Coding && slices.Equal(x.call.Shape, o.Shape)
	if x.wide { // the others reach into this memory and no other
		same = same && x.call.In.number() == o.In.number() && x.call.Out.number() == o.Out.number() && !overlap(o.In, o.Out)
	}
	return same
}

// find returns the lane of an operation's name, nil if there is none.
func (l *rankLanes) find(o *Operation) *rankLane {
	if l == nil || l.left || o.Group != 0 || o.Kind == collective.Send || o.Kind == collective.Recv {
		return nil // process sets, and pairs of ranks, have names of their own
	}
	return l.table[o.Name]
}

// lane returns the lane of an operation's name, which is to be offered, or is for that operation: nil if there shall be none.
func (l *rankLanes) lane(o *Operation) *rankLane {
	x := l.find(o)
	switch {
	case x != nil && x.state == laneTaken && !l.fits(x, o):
		l.give(x)
	case x == nil && l != nil && !l.left && len(l.table) < maxLanes && l.suits(o):
		x = &rankLane{}
		l.table[strings.Clone(o.Name)] = x
	}
	return x
}

// close gives the lane of an operation's name up, because the operation goes to the daemon.
func (l *rankLanes) close(o *Operation) {
	if x := l.find(o); x != nil && x.state == laneTaken {
		l.give(x)
	}
}

// give gives a lane up, and has the others go to the daemon too.
func (l *rankLanes) give(x *rankLane) {
	x.close()
	l.announce(x, 2*x.use+1)
}

// laneOffer is what a rank offers with an operation for the next one of its name.
type laneOffer uint8

const (
	noLane laneOffer = iota
	plainLane
	wideLaneToo
)

// offer decides what this rank offers with an operation, whose lane this is.
func (l *rankLanes) offer(x *rankLane, o *Operation) laneOffer {
	if x == nil || x.state != laneOffered || !l.suits(o) {
		return noLane
	}
	x.keep(o)
	l.next = x
	if x.offersWide = x.reopens < maxWidened; x.offersWide {
		return wideLaneToo
	}
	return plainLane
}

// leave gives all lanes up for good.
func (l *rankLanes) leave() {
	if l == nil {
		return
	}
	l.left = true
	for _, x := range l.table {
		if x.state == laneTaken {
			l.announce(x, 2*x.use+1)
		}
		x.state = laneClosed
	}
}

// close gives a lane up; another one may be offered for what comes under its name then.
func (x *rankLane) close() {
	x.state = laneOffered
	if x.reopens++; x.reopens >= maxReopens {
		x.state = laneClosed
	}
}

// keep remembers what a lane is used for.
func (x *rankLane) keep(o *Operation) {
	shape := append(x.call.Shape[:0], o.Shape...)
	name := x.call.Name
	if name != o.Name {
		name = strings.Clone(o.Name)
	}
	x.call = *o
	x.call.Shape, x.call.Splits, x.call.Name = shape, nil, name
}

// take makes the lane that the daemon gave a name this rank's.
func (l *rankLanes) take(x *rankLane, offset int) error {
	wide := offset&wideLane != 0
	if wide && !x.offersWide || !wide && x.call.In.Bytes > maxLaneBytes {
		return malformed("lane at %d for %d bytes", offset, x.call.In.Bytes)
	}
	offset &^= wideLane
	stride := strideOf(x.call.In.Bytes)
	if wide {
		stride = 0
	}
	need := l.ranks * (laneLine + 2*stride)
	if offset%laneLine != 0 || offset < l.ranks*laneLine || offset > len(l.memory)-need {
		return malformed("lane at %d of %d bytes", offset, len(l.memory))
	}
	if x.state == laneOffered {
		x.state, x.at, x.stride, x.use, x.wide = laneTaken, offset, stride, 0, wide
	}
	return nil
}

// enter begins a use of a lane.
func (l *rankLanes) enter(x *rankLane, o *Operation) {
	x.use++
	if x.wide {
		x.keep(o)
		l.show(x)
	} else {
		copy(l.buffer(x, l.self), o.In.bytes())
	}
	l.announce(x, 2*x.use)
}

// announce publishes this rank's word, and wakes who sleeps if that can change anything for them.
func (l *rankLanes) announce(x *rankLane, value uint64) {
	atomic.StoreUint64(l.word(x, l.self), value)
	for rank := range l.ranks {
		if value%2 == 0 && atomic.LoadUint64(l.word(x, rank)) < value {
			return // whoever comes last does it
		}
	}
	l.rouse()
}

// rouse wakes the ranks that sleep.
func (l *rankLanes) rouse() {
	for rank := range l.ranks {
		if rank != l.self && atomic.LoadUint32(l.flag(rank, laneAsleep)) != 0 {
			l.ring(rank)
		}
	}
}

// meeting is how far the ranks have come in a lane.
type meeting uint8

const (
	awaited meeting = iota // somebody is not there yet, or GONE is on its way
	complete
	broken // somebody never will be
)

func (l *rankLanes) meeting(x *rankLane) meeting {
	goal, how := 2*x.use, complete
	for rank := range l.ranks { // all of them: who comes last does not wake others where one will never come
		w := atomic.LoadUint64(l.word(x, rank))
		switch {
		case w >= goal:
		case w&1 != 0:
			return broken
		case atomic.LoadUint32(l.flag(rank, laneLeft)) != rankLeft:
			how = awaited
		case atomic.LoadUint64(l.word(x, rank)) < goal:
			return broken
		}
	}
	// Looked at last: who comes after the end of the world finds it marked, and others may have been told that this failed.
	if atomic.LoadUint32(l.flag(l.self, laneLeft)) == worldGone {
		return awaited
	}
	return how
}

// reduce makes the result.
func (l *rankLanes) reduce(x *rankLane, o *Operation) {
	l.buffers = l.buffers[:0]
	for rank := range l.ranks {
		l.buffers = append(l.buffers, l.buffer(x, rank))
	}
	l.results = append(l.results[:0], o.Out.bytes())
	x.plan(l.ranks).Reduce(l.results, nil, l.buffers)
}

// plan is what a lane computes. Suits made sure that it may.
func (x *rankLane) plan(ranks int) kernel.Plan {
	p := kernel.Plan{Type: x.call.Type, Op: kernel.Sum, Pre: 1, Post: 1}
	if x.call.Op == kernel.Average {
		p.Post = 1 / float64(ranks)
	}
	return p
}

// meet does an operation in its lane. It reports false, and gives the lane up, if somebody does not come.
func (r *Rank) meet(x *rankLane, o *Operation) (met bool, err error) {
	l := r.lanes
	l.enter(x, o)
	how, err := r.await(func() meeting { return l.meeting(x) })
	if err != nil {
		return false, fmt.Errorf("wait for %s: %w", o.Name, err)
	}
	if how == broken {
		x.close()
		return false, nil
	}
	if !x.wide {
		l.reduce(x, o)
		return true, nil
	}
	if err := l.reduceSlice(x); err != nil {
		return false, err
	}
	how, err = r.await(func() meeting { return l.parting(x) })
	if err == nil && how == broken { // what the tensors held is gone
		err = &collective.Error{Code: collective.CodeAborted, Text: l.desertion(x)}
	}
	return true, err
}

// await looks how far the others are until that is known. It spins, and then sleeps until the bell rings or the daemon sends
// something.
func (r *Rank) await(look func() meeting) (meeting, error) {
	l, yields, since := r.lanes, r.lanes.yields, time.Time{}
	sleeps := l.vain >= laneVain && l.vain%laneRetry != 0
	vain := sleeps
	defer func() {
		if vain {
			l.vain++
		} else {
			l.vain = 0
		}
	}()
	for turn := 0; ; turn++ {
		if how := look(); how != awaited {
			return how, nil
		}
		switch {
		case sleeps:
			if err := r.sleep(look); err != nil {
				return awaited, err
			}
			continue
		case yields:
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		case turn%64 != 63:
			continue
		}
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		spent := now.Sub(since)
		vain = spent >= laneSpin
		yields = yields || vain
		sleeps = spent >= laneYield
	}
}

// sleep waits for the bell or a message of the daemon, which it takes, unless there is something to see.
func (r *Rank) sleep(look func() meeting) error {
	l := r.lanes
	if r.gone != nil {
		return r.gone
	}
	asleep := l.flag(l.self, laneAsleep)
	atomic.StoreUint32(asleep, 1)
	defer atomic.StoreUint32(asleep, 0)
	if look() != awaited { // once more, now that others would ring
		return nil
	}
	fds := [...]unix.PollFd{{Fd: int32(l.bell), Events: unix.POLLIN}, {Fd: int32(r.fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds[:], -1); err != nil {
		if err == unix.EINTR {
			return nil
		}
		return os.NewSyscallError("poll", err)
	}
	if fds[0].Revents != 0 {
		for {
			if _, err := unix.Read(l.bell, r.in); err != nil { // it does not block
				break
			}
		}
	}
	if fds[1].Revents != 0 {
		return r.receive(nil)
	}
	return nil
}

// ended takes the end of an operation that offered a lane.
func (l *rankLanes) ended(c *completion) error {
	if c.handle != l.offered {
		return nil
	}
	l.offered = 0
	if c.code != 0 || c.region != noRegion || c.offset == 0 {
		return nil
	}
	return l.take(l.next, c.offset)
}
