package rank

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
	"gorun/worker/session/codec"
)

// The rank's end of slots: "Slots" in worker/session/codec/PROTOCOL.md has the layout of the memory, and why all ranks
// come to the same decision.

const (
	maxReopens  = 16 // slots of one name, when different tensors come under it: each takes memory for good
	slotDecided = 40 // offset in the first line of a slot
	maxWidened  = 4  // how many of them may be wide: a plain one does not care where a tensor lies

	// How long a rank polls before it sleeps; a wake-up takes about as long. It yields the CPU in the second part of that
	// time, and in the first too if ranks outnumber CPUs.
	slotSpin  = 50 * time.Microsecond
	slotYield = 200 * time.Microsecond

	// Where other programs keep the CPUs busy, ranks rarely run at the same time. A rank that polled in vain so many
	// times in a row sleeps at once, and polls again after some more operations. The kernel runs a thread that has slept
	// sooner than one that spins.
	slotVain  = 3
	slotRetry = 64
)

// slotTable holds the slots as this rank sees them.
type slotTable struct {
	memory      []byte
	ranks, self int
	doorbell    int // the socket on which other ranks wake this one
	doorbells   [codec.MaxSlotRanks]*unix.SockaddrUnix
	yields      bool // there are more ranks than CPUs: let others run while waiting
	vain        int  // waits in a row in which spinning was useless
	left        bool // this rank has joined, and comes to no slot any more
	table       map[string]*slot
	offered     uint32              // the operation at whose end the daemon may assign a slot, 0 for none
	next        *slot               // the slot that offered is about
	seen        map[regionOf][]byte // memory of the other ranks
	buffers     [][]byte            // scratch
	results     [][]byte            // scratch
}

type slotState uint8

const (
	slotOffered slotState = iota
	slotTaken
	slotClosed
)

// slot is the slot of one name as this rank sees it.
type slot struct {
	state   slotState
	reopens int
	call    Operation // the one that it is for
	use     uint64
	at      int // where its words begin
	stride  int // from one of its buffers to the next

	offersWide, wide bool
}

// openSlots asks for the slots of the world, if there are any.
func (s *Session) openSlots() error {
	w := &s.Welcome
	if !w.Slots || w.LocalRank < 0 || w.LocalRank >= w.LocalSize || w.LocalSize > codec.MaxSlotRanks {
		return nil
	}
	s.out = codec.AppendPair(s.out[:0], codec.TypeSlots, 0)
	l := &slotTable{ranks: w.LocalSize, self: w.LocalRank, doorbell: -1, table: map[string]*slot{}, seen: map[regionOf][]byte{}}
	err := s.ask(func(kind uint32, b []byte, fd int) (done bool, err error) {
		if kind != codec.TypeSlots {
			return false, codec.Malformed("type %d instead of slots", kind)
		}
		size, err := codec.DecodeSlots(b)
		if err == nil {
			l.memory, err = mmap(fd, size, unix.PROT_READ|unix.PROT_WRITE)
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("open slots: %w", err)
	}
	s.slots = l // from here on release gives it back
	if err := l.hangDoorbell(); err != nil {
		return fmt.Errorf("open slots: %w", err)
	}
	var cpus unix.CPUSet
	l.yields = unix.SchedGetaffinity(0, &cpus) != nil || cpus.Count() < l.ranks
	return nil
}

func (l *slotTable) release() {
	if l.doorbell >= 0 {
		unix.Close(l.doorbell)
	}
	unix.Munmap(l.memory)
	for _, b := range l.seen {
		unix.Munmap(b)
	}
}

// hangDoorbell makes the doorbell, and publishes its name.
func (l *slotTable) hangDoorbell() error {
	doorbell, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	l.doorbell = doorbell
	if err := unix.Bind(doorbell, &unix.SockaddrUnix{}); err != nil { // the kernel chooses a name
		return os.NewSyscallError("bind", err)
	}
	at, err := unix.Getsockname(doorbell)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	a, ok := at.(*unix.SockaddrUnix)
	if !ok || !strings.HasPrefix(a.Name, "@") || len(a.Name) > codec.MaxDoorbell {
		return fmt.Errorf("name of a socket: %v", at)
	}
	line := l.memory[l.self*codec.SlotLine:]
	copy(line[codec.SlotDoorbell+1:], "\x00"+a.Name[1:])
	line[codec.SlotDoorbell] = byte(len(a.Name)) // others read it after a system call: this rank must sleep first
	return nil
}

// ring wakes another rank. If its doorbell is full, it has been rung already.
func (l *slotTable) ring(rank int) {
	if l.doorbells[rank] == nil {
		line := l.memory[rank*codec.SlotLine:]
		n := int(line[codec.SlotDoorbell])
		if n == 0 || n > codec.MaxDoorbell {
			return
		}
		l.doorbells[rank] = &unix.SockaddrUnix{Name: "@" + string(line[codec.SlotDoorbell+2:codec.SlotDoorbell+1+n])}
	}
	_ = unix.Sendto(l.doorbell, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, l.doorbells[rank])
}

func (l *slotTable) word(x *slot, rank int) *uint64 {
	return (*uint64)(unsafe.Pointer(&l.memory[x.at+rank*codec.SlotLine]))
}

func (l *slotTable) flag(rank, at int) *uint32 {
	return (*uint32)(unsafe.Pointer(&l.memory[rank*codec.SlotLine+at]))
}

// buffer returns the buffer of a rank for the current use.
func (l *slotTable) buffer(x *slot, rank int) []byte {
	at := x.at + l.ranks*codec.SlotLine + (2*rank+int(x.use&1))*x.stride
	return l.memory[at : at+x.call.In.Bytes]
}

// suits reports whether slots suit an operation.
func (l *slotTable) suits(o *Operation) bool {
	most := codec.MaxWideBytes
	if l.yields {
		most = codec.MaxCrowdBytes
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

// holds reports whether a piece is n bytes of memory, aligned for elements of a size.
func (p Piece) holds(n, element int) bool {
	return p.Memory != nil && p.Bytes == n && p.Offset >= 0 && p.Offset%element == 0 && p.Offset <= len(p.Memory.Bytes)-n
}

func (p Piece) bytes() []byte { return p.Memory.Bytes[p.Offset : p.Offset+p.Bytes] }

// overlap reports whether two pieces of the same length share bytes without being the same.
func overlap(a, b Piece) bool {
	at, other := uintptr(unsafe.Pointer(&a.bytes()[0])), uintptr(unsafe.Pointer(&b.bytes()[0]))
	return at != other && at < other+uintptr(b.Bytes) && other < at+uintptr(a.Bytes)
}

// fits reports whether the slot is for an operation.
func (l *slotTable) fits(x *slot, o *Operation) bool {
	same := l.suits(o) && x.call.Type == o.Type && x.call.Op == o.Op && x.call.Coding == o.Coding && slices.Equal(x.call.Shape, o.Shape)
	if x.wide { // the other ranks can map this memory only
		same = same && x.call.In.number() == o.In.number() && x.call.Out.number() == o.Out.number() && !overlap(o.In, o.Out)
	}
	return same
}

// find returns the slot of an operation's name, nil if there is none.
func (l *slotTable) find(o *Operation) *slot {
	if l == nil || l.left || o.Group != 0 || o.Kind == collective.Send || o.Kind == collective.Recv {
		return nil // process sets, and pairs of ranks, have names of their own
	}
	return l.table[o.Name]
}

// slot returns the slot of an operation's name to offer or to use, nil if the operation does without.
func (l *slotTable) slot(o *Operation) *slot {
	x := l.find(o)
	switch {
	case x != nil && x.state == slotTaken && !l.fits(x, o):
		l.give(x)
	case x == nil && l != nil && !l.left && len(l.table) < codec.MaxSlots && l.suits(o):
		x = &slot{}
		l.table[strings.Clone(o.Name)] = x
	}
	return x
}

// close gives up the slot of an operation's name, because the operation goes to the daemon.
func (l *slotTable) close(o *Operation) {
	if x := l.find(o); x != nil && x.state == slotTaken {
		l.give(x)
	}
}

// give gives up a slot. The other ranks see that in this rank's word, and go to the daemon too.
func (l *slotTable) give(x *slot) {
	x.close()
	l.announce(x, 2*x.use+1)
}

// slotOffer is what a rank offers with an operation for the next one of its name.
type slotOffer struct {
	slot, wide bool
}

// offer decides what this rank offers with an operation; x is the slot of its name.
func (l *slotTable) offer(x *slot, o *Operation) slotOffer {
	if x == nil || x.state != slotOffered || !l.suits(o) {
		return slotOffer{}
	}
	x.keep(o)
	l.next = x
	x.offersWide = x.reopens < maxWidened
	return slotOffer{true, x.offersWide}
}

// leave gives up all slots for good.
func (l *slotTable) leave() {
	if l == nil {
		return
	}
	l.left = true
	for _, x := range l.table {
		if x.state == slotTaken {
			l.announce(x, 2*x.use+1)
		}
		x.state = slotClosed
	}
}

// close gives up a slot; this rank may offer another one for the next operation of its name.
func (x *slot) close() {
	x.state = slotOffered
	if x.reopens++; x.reopens >= maxReopens {
		x.state = slotClosed
	}
}

// keep remembers what a slot is used for.
func (x *slot) keep(o *Operation) {
	shape := append(x.call.Shape[:0], o.Shape...)
	name := x.call.Name
	if name != o.Name {
		name = strings.Clone(o.Name)
	}
	x.call = *o
	x.call.Shape, x.call.Splits, x.call.Name = shape, nil, name
}

// take takes the slot that the daemon assigned to a name.
func (l *slotTable) take(x *slot, offset int) error {
	wide := offset&codec.WideSlot != 0
	if wide && !x.offersWide || !wide && x.call.In.Bytes > codec.MaxSlotBytes {
		return codec.Malformed("slot at %d for %d bytes", offset, x.call.In.Bytes)
	}
	offset &^= codec.WideSlot
	stride := codec.SlotStride(x.call.In.Bytes)
	if wide {
		stride = 0
	}
	need := l.ranks * (codec.SlotLine + 2*stride)
	if offset%codec.SlotLine != 0 || offset < l.ranks*codec.SlotLine || offset > min(len(l.memory), codec.SlotsBytes)-need {
		return codec.Malformed("slot at %d of %d bytes", offset, len(l.memory))
	}
	if x.state == slotOffered {
		x.state, x.at, x.stride, x.use, x.wide = slotTaken, offset, stride, 0, wide
	}
	return nil
}

// enter begins a use of a slot.
func (l *slotTable) enter(x *slot, o *Operation) {
	x.use++
	if x.wide {
		x.keep(o)
		l.show(x)
	} else {
		copy(l.buffer(x, l.self), o.In.bytes())
	}
	l.announce(x, 2*x.use)
}

// announce publishes this rank's word, and wakes the ranks that sleep if they have waited for it.
func (l *slotTable) announce(x *slot, value uint64) {
	atomic.StoreUint64(l.word(x, l.self), value)
	for rank := range l.ranks {
		if value%2 == 0 && atomic.LoadUint64(l.word(x, rank)) < value {
			return // the last rank does it
		}
	}
	l.rouse()
}

// rouse wakes the ranks that sleep.
func (l *slotTable) rouse() {
	for rank := range l.ranks {
		if rank != l.self && atomic.LoadUint32(l.flag(rank, codec.SlotAsleep)) != 0 {
			l.ring(rank)
		}
	}
}

// meeting is how far the ranks have come in a slot.
type meeting uint8

const (
	awaited meeting = iota // a rank is not there yet, or GONE is on its way
	complete
	broken // a rank never will be
)

func (l *slotTable) meeting(x *slot) meeting {
	goal, how := 2*x.use, complete
	for rank := range l.ranks { // all of them: the last to come wakes no others if one will never come
		w := atomic.LoadUint64(l.word(x, rank))
		switch {
		case w >= goal:
		case w&1 != 0:
			return broken
		case atomic.LoadUint32(l.flag(rank, codec.SlotLeft)) != codec.RankLeft:
			how = awaited
		case atomic.LoadUint64(l.word(x, rank)) < goal:
			return broken
		}
	}
	// Look at this last. A rank that comes after the end of the world finds its mark; the operation may have failed on
	// others.
	if atomic.LoadUint32(l.flag(l.self, codec.SlotLeft)) == codec.WorldGone {
		return awaited
	}
	return how
}

// settle reports whether a use of a wide slot takes place: not if a rank has given up before any saw that all had come.
func (l *slotTable) settle(x *slot) bool {
	goal, decided := 2*x.use, (*uint64)(unsafe.Pointer(&l.memory[x.at+slotDecided]))
	for was := atomic.LoadUint64(decided); was < goal; was = atomic.LoadUint64(decided) {
		atomic.CompareAndSwapUint64(decided, was, goal)
	}
	return atomic.LoadUint64(decided) == goal
}

// reduce makes the result.
func (l *slotTable) reduce(x *slot, o *Operation) {
	l.buffers = l.buffers[:0]
	for rank := range l.ranks {
		l.buffers = append(l.buffers, l.buffer(x, rank))
	}
	l.results = append(l.results[:0], o.Out.bytes())
	x.plan(l.ranks).Reduce(l.results, nil, l.buffers)
}

// plan returns what a slot computes; suits has made sure that it can.
func (x *slot) plan(ranks int) kernel.Plan {
	p := kernel.Plan{Type: x.call.Type, Op: kernel.Sum, Pre: 1, Post: 1}
	if x.call.Op == kernel.Average {
		p.Post = 1 / float64(ranks)
	}
	return p
}

// meet carries out an operation in its slot. If a rank does not come, it gives up the slot and returns false.
func (s *Session) meet(x *slot, o *Operation) (met bool, err error) {
	l := s.slots
	l.enter(x, o)
	began := s.counts.Waits()
	how, err := s.await(func() meeting { return l.meeting(x) })
	if how == broken || how == complete && x.wide && !l.settle(x) {
		s.counts.Missed(began)
		x.close()
		return false, nil
	}
	s.counts.Waited(began, 0)
	if err != nil {
		return false, fmt.Errorf("wait for %s: %w", o.Name, err)
	}
	if !x.wide {
		l.reduce(x, o)
		return true, nil
	}
	defer s.counts.Moved(s.counts.Waits())
	if err := l.reduceSlice(x); err != nil {
		return false, err
	}
	how, err = s.await(func() meeting { return l.slicesDone(x) })
	if err == nil && how == broken { // the tensors are overwritten in part
		err = l.deserted(x)
	}
	return true, err
}

// await calls look until its answer is known. It spins, and then sleeps until the doorbell rings or the daemon sends
// something.
func (s *Session) await(look func() meeting) (meeting, error) {
	l, yields, since := s.slots, s.slots.yields, time.Time{}
	sleeps := l.vain >= slotVain && l.vain%slotRetry != 0
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
			if err := s.sleep(look); err != nil {
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
		vain = spent >= slotSpin
		yields = yields || vain
		sleeps = spent >= slotYield
	}
}

// sleep waits for the doorbell or a message of the daemon, which it takes, unless look has an answer.
func (s *Session) sleep(look func() meeting) error {
	l := s.slots
	if s.gone != nil {
		return s.gone
	}
	asleep := l.flag(l.self, codec.SlotAsleep)
	atomic.StoreUint32(asleep, 1)
	defer atomic.StoreUint32(asleep, 0)
	if look() != awaited { // look once more, now that others would ring
		return nil
	}
	fds := [...]unix.PollFd{{Fd: int32(l.doorbell), Events: unix.POLLIN}, {Fd: int32(s.fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds[:], -1); err != nil {
		if err == unix.EINTR {
			return nil
		}
		return os.NewSyscallError("poll", err)
	}
	if fds[0].Revents != 0 {
		for {
			if _, err := unix.Read(l.doorbell, s.in); err != nil { // it does not block
				break
			}
		}
	}
	if fds[1].Revents != 0 {
		return s.receive(nil)
	}
	return nil
}

// ended takes the end of an operation that offered a slot.
func (l *slotTable) ended(c *codec.Completion) error {
	if c.Handle != l.offered {
		return nil
	}
	l.offered = 0
	if c.Code != 0 || c.Region != codec.NoRegion || c.Offset == 0 {
		return nil
	}
	return l.take(l.next, c.Offset)
}
