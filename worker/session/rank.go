package session

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/kernel"
)

// Rank is the other end of a session: a rank that is a Go program. It is for one goroutine at a time and starts
// none that outlives Close.
//
// On one host, small allreduces that come again under the same name cost no system call: see slots in PROTOCOL.md.
// Cost of another operation: one send, one receive, and the wake-up of the receive. The receive blocks its thread
// instead of going through the runtime's poller, which would cost a second system call and a second wake-up. No
// garbage in steady state, but for kinds with results of their own.
type Rank struct {
	Welcome Welcome

	mu     sync.Mutex // of fd, which the end of the context shuts down
	fd     int
	detach func() bool

	in, out  []byte
	next     uint32
	open     map[uint32]bool       // handles that are not complete
	done     map[uint32]completion // completed, and not yet waited for
	results  map[uint32][]byte     // result regions, which this rank may only read
	memories map[*Memory]bool
	carries  map[uint32]bool // those whose completion may bring a descriptor
	names    map[name]bool   // in flight, by Submit: until Wait or Test has reported the end
	named    map[uint32]name // the same by handle
	gone     error           // why the world has ended
	slots    *rankSlots      // nil where there are none
}

// name is what ranks know an operation by: sets have names of their own, and so have pairs of ranks.
type name struct {
	hash uint64
	set  uint32
	kind collective.Kind // 0 where other kinds have the same names
	peer int
}

var nameSeed = maphash.MakeSeed()

func (o *Operation) name() name {
	n := name{hash: maphash.String(nameSeed, o.Name), set: o.Group}
	switch o.Kind {
	case collective.Send, collective.Recv:
		n.kind, n.peer = o.Kind, o.Root
	case collective.AddGroup, collective.RemoveGroup, collective.Join:
		n.kind = o.Kind
	}
	return n
}

// Welcome is the world as the rank learns it.
type Welcome struct {
	Epoch                                   uint32
	Rank, Size, LocalRank, LocalSize, Hosts int

	slots bool // there are slots
}

// Memory is shared with the daemon; tensors of operations lie in it.
type Memory struct {
	Bytes  []byte
	region uint32
}

// Piece is a tensor's place. The zero Piece is none.
type Piece struct {
	Memory        *Memory
	Offset, Bytes int
}

func (p Piece) number() uint32 {
	if p.Memory == nil {
		return noRegion
	}
	return p.Memory.region
}

// Operation is what a rank submits: collective.Request, with places instead of memory.
type Operation struct {
	Kind    collective.Kind
	Name    string
	Group   uint32
	Type    kernel.Type
	Op      kernel.Op
	Coding  kernel.Coding
	Root    int
	Pre     float64 // 0, not set, is 1
	Post    float64 // 0, not set, is 1
	Shape   []int
	Splits  []int
	In, Out Piece
}

// Outcome is the result of a kind that brings its own memory; it may be read until Release.
type Outcome struct {
	Bytes       []byte
	Shape, Rows []int
	handle      uint32
	kept        bool
}

// JoinJob joins as the rank that gorun started this process as. getenv is os.Getenv: the daemon says who a rank is in its
// environment.
func JoinJob(ctx context.Context, getenv func(string) string) (*Rank, error) {
	number, err := strconv.Atoi(getenv("GORUN_PROCESS"))
	if err != nil {
		return nil, errors.New("join world: no rank of a job: GORUN_PROCESS is missing or wrong; start it by gorun")
	}
	var token [32]byte
	if n, err := hex.Decode(token[:], []byte(getenv("GORUN_TOKEN"))); err != nil || n != len(token) {
		return nil, errors.New("join world: GORUN_TOKEN is missing or wrong")
	}
	return Join(ctx, getenv("GORUN_SOCKET"), number, token)
}

// Join connects to the daemon and waits until the world is committed. The end of ctx ends the connection, now and
// later.
func Join(ctx context.Context, socket string, rank int, token [32]byte) (_ *Rank, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("join world: %w", os.NewSyscallError("socket", err))
	}
	r := &Rank{fd: fd, in: make([]byte, maxMessage), open: map[uint32]bool{}, done: map[uint32]completion{},
		results: map[uint32][]byte{}, memories: map[*Memory]bool{}, carries: map[uint32]bool{},
		names: map[name]bool{}, named: map[uint32]name{}}
	r.detach = context.AfterFunc(ctx, r.shutdown)
	defer func() {
		if err != nil {
			r.release()
			err = fmt.Errorf("join world: %w", err)
		}
	}()
	if err := retry(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + socket}) }); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	r.out = appendHello(r.out[:0], hello{version: version, process: rank, pid: os.Getpid(), token: token})
	if err := r.send(); err != nil {
		return nil, err
	}
	for r.Welcome.Size == 0 {
		if err := r.receive(nil); err != nil {
			return nil, err
		}
	}
	if err := r.openSlots(); err != nil {
		return nil, err
	}
	return r, nil
}

// shutdown wakes a receive, which then finds the end of the connection.
func (r *Rank) shutdown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd >= 0 {
		unix.Shutdown(r.fd, unix.SHUT_RDWR)
	}
}

// release closes and unmaps everything.
func (r *Rank) release() {
	r.detach()
	r.mu.Lock()
	unix.Close(r.fd)
	r.fd = -1
	r.mu.Unlock()
	for _, b := range r.results {
		unix.Munmap(b)
	}
	for m := range r.memories {
		unix.Munmap(m.Bytes)
		m.Bytes = nil
	}
	if r.slots != nil {
		r.slots.release()
	}
}

// Close says goodbye, waits until the daemon has heard it, and unmaps all memory.
func (r *Rank) Close() error {
	defer r.release()
	r.out = appendPair(r.out[:0], typeBye, 0)
	err := r.send()
	for left := false; err == nil && !left; {
		err = r.receive(func(kind uint32, _ []byte, _ int) error { left = left || kind == typeGoodbye; return nil })
	}
	if err != nil {
		return fmt.Errorf("say goodbye: %w", err)
	}
	return nil
}

// Alloc returns n bytes of zeroed shared memory, rounded up. It stays until Free or Close.
func (r *Rank) Alloc(n int) (*Memory, error) {
	var m *Memory
	request := r.number()
	r.out = appendAlloc(r.out[:0], request, uint64(n))
	err := r.send()
	for err == nil && m == nil {
		err = r.receive(func(kind uint32, b []byte, fd int) error {
			switch kind {
			case typeRegion:
				_, number, size, err := decodeRegion(b)
				if err != nil {
					return err
				}
				data, err := mmap(fd, size, unix.PROT_READ|unix.PROT_WRITE)
				if err != nil {
					return err
				}
				m = &Memory{Bytes: data, region: number}
				r.memories[m] = true
			case typeFail:
				_, _, why, err := decodeFail(b)
				return errors.Join(err, why)
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes of shared memory: %w", n, err)
	}
	return m, nil
}

// Free gives memory back that no operation in flight uses. Its bytes must not be touched any more.
func (r *Rank) Free(m *Memory) error {
	if !r.memories[m] {
		return errors.New("free shared memory: it is not of this rank, or was freed already")
	}
	delete(r.memories, m)
	err := os.NewSyscallError("munmap", unix.Munmap(m.Bytes))
	m.Bytes = nil
	if err == nil {
		r.out = appendPair(r.out[:0], typeFree, m.region)
		err = r.send()
	}
	if err != nil {
		return fmt.Errorf("free shared memory: %w", err)
	}
	return nil
}

// Traffic returns the bytes that this host has sent to others since its daemon began.
func (r *Rank) Traffic() (sent uint64, err error) {
	r.out = appendPair(r.out[:0], typeTraffic, 0)
	err = r.send()
	for heard := false; err == nil && !heard; {
		err = r.receive(func(kind uint32, b []byte, _ int) (err error) {
			if heard = kind == typeTraffic; heard {
				sent, err = decodeTraffic(b)
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("ask for traffic: %w", err)
	}
	return sent, nil
}

// Do submits an operation and waits for its end. Ranks of one host do small ones that come again by themselves.
func (r *Rank) Do(o *Operation) (Outcome, error) {
	if err := r.check(o); err != nil {
		return Outcome{}, err
	}
	x := r.slots.slot(o)
	if x != nil && x.state == slotTaken {
		if met, err := r.meet(x, o); met || err != nil {
			return Outcome{}, err
		}
	}
	handle, err := r.submit(o, r.slots.offer(x, o))
	if err != nil {
		return Outcome{}, err
	}
	return r.Wait(handle)
}

// Submit starts an operation; Wait must be called for its handle. It keeps nothing of o. Its name is in flight until Wait
// or Test has reported the end, however fast the others are.
func (r *Rank) Submit(o *Operation) (handle uint32, err error) {
	if err := r.check(o); err != nil {
		return 0, err
	}
	r.slots.close(o)
	handle, err = r.submit(o, 0)
	if err == nil {
		n := o.name()
		r.names[n], r.named[handle] = true, n
	}
	return handle, err
}

// free frees the name of an operation whose end the caller has seen.
func (r *Rank) free(handle uint32) {
	if n, ok := r.named[handle]; ok {
		delete(r.names, n)
		delete(r.named, handle)
	}
}

// check reports what keeps an operation from being submitted.
func (r *Rank) check(o *Operation) error {
	if len(o.Shape) > maxDims || len(o.Name) > maxName || len(o.Splits) > maxMessage/8 {
		return fmt.Errorf("submit operation: %d dimensions, %d splits or a name of %d bytes are too many", len(o.Shape), len(o.Splits), len(o.Name))
	}
	if r.gone != nil {
		return fmt.Errorf("submit %s: %w", o.Name, r.gone)
	}
	if len(r.names) > 0 && r.names[o.name()] {
		return fmt.Errorf("submit %s: an operation of this name is in flight", o.Name)
	}
	if o.Kind == collective.Join {
		r.slots.leave() // the daemon tells the others that this rank never comes again
	}
	return nil
}

// submit gives an operation to the daemon.
func (r *Rank) submit(o *Operation, offers slotOffer) (handle uint32, err error) {
	handle = r.number()
	r.out = appendSubmit(r.out[:0], handle, o)
	if offers != noSlot {
		r.out[submitKind] |= takesSlot
		r.slots.offered = handle
	}
	if offers == wideSlotToo {
		r.out[submitNdim] |= takesWide
	}
	if err := r.send(); err != nil {
		return 0, fmt.Errorf("submit %s: %w", o.Name, err)
	}
	r.open[handle] = true
	switch o.Kind {
	case collective.Allreduce, collective.Broadcast, collective.Barrier, collective.Send, collective.Recv:
	default:
		r.carries[handle] = true
	}
	return handle, nil
}

// Test reports whether an operation has ended, well or not, and does not wait; Wait must still be called.
func (r *Rank) Test(handle uint32) (bool, error) {
	for {
		if _, ended := r.done[handle]; ended {
			r.free(handle)
			return true, nil
		}
		if !r.open[handle] {
			return false, fmt.Errorf("test operation: no handle %d", handle)
		}
		heard, err := r.glance()
		if err != nil {
			return false, fmt.Errorf("test operation: %w", err)
		}
		if !heard {
			return false, nil
		}
	}
}

// glance takes a message of the daemon, and reports whether there was one.
func (r *Rank) glance() (bool, error) {
	if r.gone != nil {
		return false, r.gone
	}
	fds := [...]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	var n int
	if err := retry(func() (err error) { n, err = unix.Poll(fds[:], 0); return err }); err != nil || n == 0 {
		return false, os.NewSyscallError("poll", err)
	}
	return true, r.receive(nil)
}

// Wait returns when the operation is complete. A *collective.Error is its failure, and others may go on.
func (r *Rank) Wait(handle uint32) (Outcome, error) {
	for r.open[handle] {
		if r.gone != nil {
			return Outcome{}, fmt.Errorf("wait for operation: %w", r.gone)
		}
		if err := r.receive(nil); err != nil {
			return Outcome{}, fmt.Errorf("wait for operation: %w", err)
		}
	}
	c, ok := r.done[handle]
	if !ok {
		return Outcome{}, fmt.Errorf("wait for operation: no handle %d", handle)
	}
	delete(r.done, handle)
	r.free(handle)
	if c.code != 0 {
		return Outcome{}, &collective.Error{Code: c.code, Text: c.text}
	}
	if c.region == noRegion {
		return Outcome{}, nil
	}
	return Outcome{Bytes: r.results[c.region][c.offset : c.offset+c.bytes], Shape: c.dims, Rows: c.rows, handle: handle, kept: true}, nil
}

// Release gives the memory of a result back.
func (r *Rank) Release(o Outcome) error {
	if !o.kept {
		return nil
	}
	r.out = appendPair(r.out[:0], typeRelease, o.handle)
	if err := r.send(); err != nil {
		return fmt.Errorf("release result: %w", err)
	}
	return nil
}

// number returns a number that no open operation has, and not 0. 2^32 operations later an unreleased result might have it.
func (r *Rank) number() uint32 {
	r.next = max(r.next+1, 1)
	return r.next
}

func (r *Rank) send() error {
	return os.NewSyscallError("send", retry(func() error { return unix.Send(r.fd, r.out, unix.MSG_NOSIGNAL) }))
}

// receive takes the next message, and hands it to answer if it is not about an operation.
func (r *Rank) receive(answer func(kind uint32, b []byte, fd int) error) error {
	n, fd, err := r.read(answer != nil || len(r.carries) > 0 || r.slots != nil && r.slots.offered != 0)
	if fd >= 0 {
		defer unix.Close(fd)
	}
	switch {
	case err == unix.ECONNRESET || err == nil && n == 0:
		return fmt.Errorf("the daemon closed the connection: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return os.NewSyscallError("receive", err)
	case n < pairLen:
		return malformed("%d bytes", n)
	}
	b := r.in[:n]
	switch kind := le.Uint32(b); kind {
	case typeWelcome:
		r.Welcome, err = decodeWelcome(b)
		return err
	case typeComplete:
		return r.complete(b, fd)
	case typeFail:
		handle, what, why, err := decodeFail(b)
		if err != nil {
			return err
		}
		if what == typeSubmit {
			return r.finish(completion{handle: handle, code: why.Code, region: noRegion, text: why.Text})
		}
		if answer == nil {
			return why
		}
		return answer(kind, b, fd)
	case typeGone:
		why, err := decodeGone(b)
		if r.gone = err; err == nil {
			r.gone = why
		}
		return r.gone
	case typeChanged:
		return nil // a rank that keeps its world need not know
	case typeWake:
		return nil // whoever waits in a slot looks again
	case typeShow:
		return r.slots.see(b, fd)
	case typeHide:
		return r.slots.unsee(b)
	default:
		if answer == nil {
			return malformed("unexpected type %d", kind)
		}
		return answer(kind, b, fd)
	}
}

// read is the cheap receive unless a descriptor may come.
func (r *Rank) read(withFD bool) (n, fd int, err error) {
	if !withFD {
		err = retry(func() (err error) { n, err = unix.Read(r.fd, r.in); return err })
		return n, -1, err
	}
	var oob [64]byte
	var oobn int
	err = retry(func() (err error) {
		n, oobn, _, _, err = unix.Recvmsg(r.fd, r.in, oob[:], unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil || oobn == 0 {
		return n, -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return n, -1, malformed("control message")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return n, -1, malformed("%d descriptors", len(fds))
	}
	return n, fds[0], nil
}

func (r *Rank) complete(b []byte, fd int) error {
	var c completion
	if err := decodeComplete(b, &c); err != nil {
		return err
	}
	if c.region != noRegion {
		if fd >= 0 && r.results[c.region] == nil {
			data, err := mmap(fd, int(c.regionBytes), unix.PROT_READ)
			if err != nil {
				return err
			}
			r.results[c.region] = data
		}
		if len(r.results[c.region]) < c.offset+c.bytes {
			return malformed("result in unknown memory")
		}
	}
	return r.finish(c)
}

func (r *Rank) finish(c completion) error {
	if !r.open[c.handle] {
		return malformed("end of operation %d, which is not open", c.handle)
	}
	delete(r.open, c.handle)
	delete(r.carries, c.handle)
	r.done[c.handle] = c
	if r.slots != nil {
		return r.slots.ended(&c)
	}
	return nil
}

// mmap maps a region of the daemon.
func mmap(fd, size, prot int) ([]byte, error) {
	if fd < 0 || size <= 0 || size > math.MaxInt {
		return nil, malformed("region of %d bytes, descriptor %d", size, fd)
	}
	data, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return data, nil
}

// retry repeats a call that a signal interrupted: the runtime preempts threads by signals.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
