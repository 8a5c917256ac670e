package verbs_test

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/verbs"
	"gorun/collective/verbs/verbstest"
	"gorun/contrib/must"
)

// stuck is a provider whose driver hangs until free is closed.
type stuck struct {
	verbs.Provider
	opened *atomic.Int64
	free   chan struct{}
}

func (s stuck) Open(at verbs.Place, size verbs.Size) (verbs.Pair, error) {
	s.opened.Add(1)
	<-s.free
	return s.Provider.Open(at, size)
}

// A driver that hangs costs streams RDMA and one of them a moment. When it goes on, its queue pair is closed, and RDMA
// carries streams again.
func TestDriverHangs(t *testing.T) {
	fabric := verbstest.New(1)
	driver := stuck{fabric.Host(localhost), &atomic.Int64{}, make(chan struct{})}
	reported := make(chan error, 10)
	one := transport(t, verbs.Config{Provider: driver, Tuning: hasty, Driver: 50 * time.Millisecond,
		Problem: func(_ int, err error) { reported <- err }})
	other := transport(t, verbs.Config{Provider: fabric.Host(localhost), Tuning: hasty})
	for range 5 {
		if a, _ := upgraded(t, one, other); one.Up() != 0 {
			t.Errorf("%T carries the stream", a)
		}
		time.Sleep(5 * time.Millisecond) // the rest after an attempt
	}
	if n := driver.opened.Load(); n != 1 {
		t.Errorf("%d calls of a driver that hangs", n)
	}
	if err := <-reported; err == nil || err.Error() != "the RDMA device does not answer; see dmesg" {
		t.Errorf("reported: %v", err)
	}
	close(driver.free)
	upAgain(t, one, other)
	if n := fabric.Pairs(); n > 2*one.Up() {
		t.Errorf("%d queue pairs for %d streams", n, one.Up())
	}
}

// refuses is a provider whose pairs refuse to send after so many messages.
type refuses struct {
	verbs.Provider
	after int64
}

func (r refuses) Open(at verbs.Place, size verbs.Size) (verbs.Pair, error) {
	p, err := r.Provider.Open(at, size)
	return &refusing{Pair: p, left: r.after}, err
}

type refusing struct {
	verbs.Pair
	left int64
}

func (p *refusing) Write(offset, length int, imm uint32) error {
	if p.left--; p.left < 0 {
		return errors.New("post write: cannot allocate memory")
	}
	return p.Pair.Write(offset, length, imm)
}

// A queue pair that a library refuses to use has failed as one that the network broke: it is counted and reported, and
// after the second the stream stays on TCP for a while.
func TestLibraryRefuses(t *testing.T) {
	fabric := verbstest.New(1)
	var mu sync.Mutex
	var reported []error
	one := transport(t, verbs.Config{Provider: refuses{fabric.Host(localhost), 10}, Problem: func(_ int, err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err)
	}})
	other := transport(t, verbs.Config{Provider: fabric.Host(localhost)})
	var conn net.Conn
	for turn := range 3 {
		conn, _ = upgraded(t, one, other)
		if _, tcp := conn.(*net.TCPConn); tcp != (turn == 2) {
			t.Fatalf("turn %d: %T carries the stream", turn, conn)
		}
		if turn == 2 {
			break
		}
		var err error
		for range 20 {
			if _, err = conn.Write(make([]byte, 1000)); err != nil {
				break
			}
		}
		if err == nil {
			t.Fatal("the library refuses nothing")
		}
		must.Soon(t, "the connection ends", func() bool { return one.Up() == 0 })
	}
	mu.Lock()
	defer mu.Unlock()
	if n := one.Failures(); n != 2 || len(reported) != 2 || !verbs.Broken(reported[0]) {
		t.Errorf("%d failures, reported: %v", n, reported)
	}
}
