// Package rank is the client for ranks that are Go programs: JoinJob connects a process that gorun has started to the
// daemon of its host, and the Session that it returns submits operations and waits for them. contrib/examples/gorank is
// a whole program; the Python and C bindings do the same in their languages. worker/session/codec/PROTOCOL.md describes
// the protocol.
//
// Tensors lie in memory that the rank shares with the daemon (Session.Alloc), and nothing is copied on the way to it.
// Ranks meet by the name of an operation, in any order.
//
// On one host, small allreduces that come again under the same name cost no system call: the ranks carry them out in a
// shared-memory slot. Another operation costs one send, one receive, and the wake-up of the receive. The receive blocks
// its thread instead of going through the runtime's poller, which would cost a second system call and a second wake-up.
// There is no garbage in steady state, except for kinds with results of their own.
//
//   - session.go: joining, memory, leaving
//   - operation.go: submitting operations and waiting for them
//   - receive.go: the messages of the daemon
//   - slots.go, wide.go: the rank's end of shared-memory slots
//
// Tests of both ends of a session are in worker/session.
package rank

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"gorun/worker/counters"
	"gorun/worker/session/codec"
)

// Session is the connection of a rank to its daemon. It is for one goroutine at a time and starts none that outlives
// Close.
type Session struct {
	Welcome Welcome

	mu     sync.Mutex // of fd, which the end of the context shuts down
	fd     int
	detach func() bool

	in, out  []byte
	next     uint32
	open     map[uint32]bool             // handles that are not complete
	done     map[uint32]codec.Completion // completed, and not yet waited for
	results  map[uint32][]byte           // result regions, which this rank may only read
	memories map[*Memory]bool
	carries  map[uint32]bool // of operations whose completion may bring a descriptor
	names    map[name]bool   // in flight, by Submit: until Wait has reported the end
	named    map[uint32]name // the same by handle
	gone     error           // why the world has ended
	slots    *slotTable      // nil where there are none
	counts   counters.Writer
}

// Welcome is the world as the rank learns it.
type Welcome = codec.Welcome

// Memory is shared with the daemon; tensors of operations lie in it.
type Memory struct {
	Bytes  []byte
	region uint32
}

// JoinJob joins as the rank that gorun started this process as. getenv is os.Getenv: the daemon identifies a rank by
// its environment.
func JoinJob(ctx context.Context, getenv func(string) string) (*Session, error) {
	number, err := strconv.Atoi(getenv("GORUN_PROCESS"))
	if err != nil {
		return nil, errors.New("join world: no rank of a job: GORUN_PROCESS is missing or wrong; start it by gorun")
	}
	var token [32]byte
	if n, err := hex.Decode(token[:], []byte(getenv("GORUN_TOKEN"))); err != nil || n != len(token) {
		return nil, errors.New("join world: GORUN_TOKEN is missing or wrong")
	}
	s, err := Join(ctx, getenv("GORUN_SOCKET"), number, token)
	if err != nil {
		return nil, err
	}
	s.counts, _ = counters.Open(getenv("GORUN_COUNTERS")) // another user, or another container: no one looks at them
	return s, nil
}

// Join connects to the daemon and waits until the world is committed. The end of ctx ends the connection, now and
// later.
func Join(ctx context.Context, socket string, rank int, token [32]byte) (_ *Session, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("join world: %w", os.NewSyscallError("socket", err))
	}
	s := &Session{fd: fd, in: make([]byte, codec.MaxMessage), open: map[uint32]bool{}, done: map[uint32]codec.Completion{},
		results: map[uint32][]byte{}, memories: map[*Memory]bool{}, carries: map[uint32]bool{},
		names: map[name]bool{}, named: map[uint32]name{}}
	s.detach = context.AfterFunc(ctx, s.shutdown)
	defer func() {
		if err != nil {
			s.release()
			err = fmt.Errorf("join world: %w", err)
		}
	}()
	if err := retry(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + socket}) }); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	s.out = codec.AppendHello(s.out[:0], codec.Hello{Version: codec.Version, Process: rank, PID: os.Getpid(), Token: token})
	if err := s.send(); err != nil {
		return nil, err
	}
	for s.Welcome.Size == 0 {
		if err := s.receive(nil); err != nil {
			return nil, err
		}
	}
	if err := s.openSlots(); err != nil {
		return nil, err
	}
	return s, nil
}

// shutdown wakes a receive, which then finds the end of the connection.
func (s *Session) shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		unix.Shutdown(s.fd, unix.SHUT_RDWR)
	}
}

// release closes and unmaps everything.
func (s *Session) release() {
	s.detach()
	s.mu.Lock()
	unix.Close(s.fd)
	s.fd = -1
	s.mu.Unlock()
	for _, b := range s.results {
		unix.Munmap(b)
	}
	s.counts.Close()
	for m := range s.memories {
		unix.Munmap(m.Bytes)
		m.Bytes = nil
	}
	if s.slots != nil {
		s.slots.release()
	}
}

// Close sends BYE, waits for the answer, and unmaps all memory.
func (s *Session) Close() error {
	defer s.release()
	s.out = codec.AppendPair(s.out[:0], codec.TypeBye, 0)
	if err := s.ask(func(kind uint32, _ []byte, _ int) (bool, error) { return kind == codec.TypeGoodbye, nil }); err != nil {
		return fmt.Errorf("say goodbye: %w", err)
	}
	return nil
}

// Alloc returns n bytes of zeroed shared memory, rounded up. It stays until Free or Close.
func (s *Session) Alloc(n int) (*Memory, error) {
	m := &Memory{}
	s.out = codec.AppendAlloc(s.out[:0], s.number(), uint64(n))
	err := s.ask(func(kind uint32, b []byte, fd int) (done bool, err error) {
		var size int
		switch kind {
		case codec.TypeRegion:
			if _, m.region, size, err = codec.DecodeRegion(b); err == nil {
				m.Bytes, err = mmap(fd, size, unix.PROT_READ|unix.PROT_WRITE)
			}
			return true, err
		case codec.TypeFail:
			_, _, why, err := codec.DecodeFail(b)
			return true, errors.Join(err, why)
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes of shared memory: %w", n, err)
	}
	s.memories[m] = true
	return m, nil
}

// Free gives memory back that no operation in flight uses. Its bytes must not be touched any more.
func (s *Session) Free(m *Memory) error {
	if !s.memories[m] {
		return errors.New("free shared memory: it is not of this rank, or was freed already")
	}
	delete(s.memories, m)
	err := os.NewSyscallError("munmap", unix.Munmap(m.Bytes))
	m.Bytes = nil
	if err == nil {
		s.out = codec.AppendPair(s.out[:0], codec.TypeFree, m.region)
		err = s.send()
	}
	if err != nil {
		return fmt.Errorf("free shared memory: %w", err)
	}
	return nil
}

// Traffic returns the bytes that this host has sent to others since its daemon began, and how many of them went over RDMA.
func (s *Session) Traffic() (sent, overRDMA uint64, err error) {
	s.out = codec.AppendPair(s.out[:0], codec.TypeTraffic, 0)
	err = s.ask(func(kind uint32, b []byte, _ int) (done bool, err error) {
		if done = kind == codec.TypeTraffic; done {
			sent, overRDMA, err = codec.DecodeTraffic(b)
		}
		return done, err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("ask for traffic: %w", err)
	}
	return sent, overRDMA, nil
}
