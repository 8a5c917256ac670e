package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/collective/link"
	"gorun/collective/tcp"
	"gorun/collective/verbs"
	"gorun/collective/verbs/verbstest"
	"gorun/contrib/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hasty rests for a millisecond.
var hasty = func() verbs.Tuning {
	t := verbs.DefaultTuning
	t.Rest = time.Millisecond
	return t
}()

var localhost = netip.MustParseAddr("127.0.0.1")

// connected returns both ends of a TCP connection to an address.
func connected(t *testing.T, to netip.Addr) (a, b net.Conn) {
	t.Helper()
	l, err := tcp.Options{}.Listen(t.Context(), netip.AddrPortFrom(to, 0).String())
	must.Do(t, err)
	defer l.Close()
	if a, err = (tcp.Options{}).Dial(t.Context(), []string{l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// upgraded returns what two transports make of a TCP connection.
func upgraded(t *testing.T, one, other *verbs.Transport) (a, b net.Conn) {
	t.Helper()
	return upgradedAt(t, one, other, localhost)
}

// upgradedAt has the other transport at an address.
func upgradedAt(t *testing.T, one, other *verbs.Transport, at netip.Addr) (a, b net.Conn) {
	t.Helper()
	plain, accepted := connected(t, at)
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { b, failed = other.Upgrade(t.Context(), accepted, 0, 1) })
	a, err := one.Upgrade(t.Context(), plain, 1, 1)
	wg.Wait()
	must.Do(t, errors.Join(err, failed))
	return a, b
}

// upAgain opens the stream until RDMA carries it.
func upAgain(t *testing.T, one, other *verbs.Transport) {
	t.Helper()
	must.Soon(t, "RDMA carries the stream again", func() bool {
		upgraded(t, one, other)
		return one.Up() > 0
	})
}

func transport(t *testing.T, cfg verbs.Config) *verbs.Transport {
	tr := verbs.New(cfg)
	t.Cleanup(tr.Close)
	return tr
}

// What is written arrives, in every size of pieces, and both ends may write at once.
func TestConn(t *testing.T) {
	fabric := verbstest.New(1)
	for _, size := range []verbs.Size{{Ring: 2 << 20, Depth: 64}, {Ring: 16 << 10, Depth: 4}, {Ring: 8 << 20, Depth: 127}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var ends atomic.Bool
			cfg := verbs.Config{Provider: fabric.Host(localhost), Size: size, Problem: func(_ int, err error) {
				if !ends.Load() {
					t.Error(err)
				}
			}}
			a, b := upgraded(t, transport(t, cfg), transport(t, cfg))
			var wg sync.WaitGroup
			for seed, ends := range [][2]net.Conn{{a, b}, {b, a}} {
				text := make([]byte, 3<<20+seed)
				rand.NewChaCha8([32]byte{byte(seed)}).Read(text)
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(seed), 1))
					rest := text
					for len(rest) > 0 {
						n := min(1+rng.IntN(1+rng.IntN(300_000)), len(rest))
						up := ends[0].(link.Upgraded)
						var err error
						switch half := rng.IntN(n); rng.IntN(3) {
						case 0:
							_, err = up.Write(rest[:n])
						case 1:
							err = up.WriteBuffers([][]byte{rest[:half], nil, rest[half:n]})
						default:
							n, err = up.WriteNow(rest[:half], rest[half:n])
						}
						if err != nil {
							t.Error(err)
							return
						}
						rest = rest[n:]
					}
				})
				wg.Go(func() {
					got := make([]byte, len(text))
					if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, text) {
						t.Errorf("error %v, or other bytes", err)
					}
				})
			}
			wg.Wait()
			if rtt := a.(link.Upgraded).RTT(); rtt <= 0 || rtt > time.Minute {
				t.Errorf("the round trip takes %v", rtt)
			}
			ends.Store(true)
			a.Close()
			// A report of b may be under way, which finds no queue pair.
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !verbs.Broken(err) {
				t.Errorf("after the other end was closed: %v", err)
			}
		})
	}
	if err := fabric.Misused(); err != nil {
		t.Error(err)
	}
}

// A stream stays on TCP where a queue pair cannot be had, and the reason is reported where it is known.
func TestStaysOnTCP(t *testing.T) {
	fabric, other := verbstest.New(1), verbstest.New(2)
	down := verbstest.New(3)
	down.Down(true)
	here := verbs.Config{Provider: fabric.Host(localhost)}
	for name, c := range map[string]struct {
		there    verbs.Config
		reported bool // here, too
	}{
		"no port with the address": {verbs.Config{Provider: fabric.Host(netip.MustParseAddr("10.0.0.1"))}, false},
		"port down":                {verbs.Config{Provider: down.Host(localhost)}, false},
		"another device wanted":    {verbs.Config{Provider: fabric.Host(localhost), Devices: []string{"mlx5_0"}}, false},
		"other sizes":              {verbs.Config{Provider: fabric.Host(localhost), Size: verbs.Size{Ring: 4096, Depth: 8}}, true},
		"no path":                  {verbs.Config{Provider: other.Host(localhost), Probe: time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var reports [2][]error
			report := func(i int) func(int, error) {
				return func(_ int, err error) {
					mu.Lock()
					defer mu.Unlock()
					reports[i] = append(reports[i], err)
				}
			}
			mine, theirs := here, c.there
			mine.Problem, theirs.Problem = report(0), report(1)
			a, b := upgraded(t, transport(t, mine), transport(t, theirs))
			for _, conn := range []net.Conn{a, b} {
				if _, tcp := conn.(*net.TCPConn); !tcp {
					t.Errorf("%T carries it", conn)
				}
			}
			if _, err := a.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			var got [1]byte
			if _, err := io.ReadFull(b, got[:]); err != nil || got[0] != 'x' {
				t.Errorf("%q, %v", got, err)
			}
			if len(reports[1]) != 1 || (len(reports[0]) == 1) != c.reported {
				t.Errorf("reported: %v", reports)
			}
		})
	}
	if n := fabric.Pairs() + other.Pairs(); n != 0 {
		t.Errorf("%d pairs are left", n)
	}
}

// A port that goes down, an address that moves and a device that is removed end the use of a queue pair at once, though
// nothing is sent. TCP follows, and RDMA again when it works.
func TestEvents(t *testing.T) {
	for _, event := range []uint32{verbs.EventPort, verbs.EventGID, verbs.EventDevice, verbs.EventPair} {
		t.Run(fmt.Sprint(event), func(t *testing.T) {
			fabric := verbstest.New(1)
			reported := make(chan error, 100)
			var again atomic.Bool
			cfg := verbs.Config{Provider: fabric.Host(localhost), Tuning: hasty,
				Problem: func(_ int, err error) { reported <- err },
				Retry:   func(int, int) bool { again.Store(true); return true }}
			one, other := transport(t, cfg), transport(t, cfg)
			a, _ := upgraded(t, one, other)
			fabric.Happen(event)
			if _, err := a.Read(make([]byte, 1)); err == nil {
				t.Error("something was read")
			}
			if err := <-reported; !verbs.Broken(err) {
				t.Errorf("reported: %v", err)
			}
			fabric.Down(true)
			a, _ = upgraded(t, one, other)
			if _, tcp := a.(*net.TCPConn); !tcp {
				t.Errorf("%T carries the stream while the port is down", a)
			}
			for err := range reported {
				if err.Error() == "test0 port 1 is down; see rdma link and gorun doctor" {
					break
				}
			}
			fabric.Down(false)
			must.Soon(t, "the stream is opened again", again.Load)
			upAgain(t, one, other)
		})
	}
}

// A pause frees every queue pair, and lets none come until it ends.
func TestPause(t *testing.T) {
	fabric := verbstest.New(1)
	cfg := verbs.Config{Provider: fabric.Host(localhost), Tuning: hasty}
	one, other := transport(t, cfg), transport(t, cfg)
	a, _ := upgraded(t, one, other)
	text := make([]byte, 1<<20) // which fits into the ring
	if _, err := a.Write(text); err != nil {
		t.Fatal(err)
	}
	one.Pause()(time.Minute)
	if n, err := a.Write(text); n > 0 || err == nil {
		t.Errorf("%d bytes written in a pause, error %v", n, err)
	}
	must.Soon(t, "no queue pair is left", func() bool { return fabric.Pairs() == 0 })
	if a, _ = upgraded(t, one, other); one.Up() != 0 {
		t.Errorf("%T carries a stream in the pause", a)
	}
	one.Resume()
	if a, _ = upgraded(t, one, other); one.Up() != 1 {
		t.Errorf("%T carries a stream after the pause", a)
	}
	if err := fabric.Misused(); err != nil {
		t.Error(err)
	}
}

// A pause ends what a peer keeps waiting, and frees its queue pair, however far the sides have come.
func TestPauseWhileOpening(t *testing.T) {
	const offer, verdict = 56, 1
	for name, answers := range map[string][]int64{"offer": nil, "first verdict": {offer}, "second verdict": {offer, verdict}} {
		t.Run("without "+name, func(t *testing.T) {
			fabric := verbstest.New(1)
			tr := transport(t, verbs.Config{Provider: fabric.Host(localhost)})
			conn, mirror := connected(t, localhost)
			ended := make(chan error)
			go func() {
				_, err := tr.Upgrade(t.Context(), conn, 1, 1)
				ended <- err
			}()
			for _, n := range answers { // the peer offers the same queue pair, so that it is connected to itself
				io.CopyN(mirror, mirror, n)
			}
			if _, err := mirror.Read(make([]byte, offer)); err != nil || fabric.Pairs() != 1 {
				t.Errorf("%d queue pairs, error %v", fabric.Pairs(), err)
			}
			tr.Pause()(time.Minute)
			if n := fabric.Pairs(); n != 0 {
				t.Errorf("%d queue pairs are left", n)
			}
			if err := <-ended; err == nil {
				t.Error("the stream is carried")
			}
		})
	}
}

// A link that is busy goes on by TCP when RDMA pauses, and over RDMA afterwards.
func TestLinkOutlivesPauses(t *testing.T) {
	fabric := verbstest.New(1)
	pauses := 0
	totals := verbstest.Exercise(t, verbstest.Exercised{
		Provider: func() verbs.Provider { return fabric.Host(localhost) }, Segments: 2_000,
		DisturbTransport: func(round int, tr *verbs.Transport) {
			if round%10 == 5 {
				tr.Pause()(time.Duration(pauses%2) * time.Second) // every other leaves no time for what was posted
				if pauses++; tr.Up() != 0 {
					t.Errorf("%d streams go over RDMA in a pause", tr.Up())
				}
				tr.Resume()
			}
		}})
	if n := fabric.Pairs(); n != 0 || fabric.Misused() != nil {
		t.Errorf("%d pairs are left; misused: %v", n, fabric.Misused())
	}
	if pauses == 0 || totals.UpgradedBytes == 0 {
		t.Errorf("%d pauses, %d of %d bytes went over RDMA", pauses, totals.UpgradedBytes, totals.SentBytes)
	}
}

// A host whose address changes while a stream waits for RDMA opens it again when the port with the new address is up.
func TestRetriesFromNewAddress(t *testing.T) {
	moved := netip.MustParseAddr("127.0.0.2")
	fabric := verbstest.New(1)
	fabric.Down(true)
	var again atomic.Bool
	tr := transport(t, verbs.Config{Provider: fabric.Host(moved), Tuning: hasty, Retry: func(int, int) bool { again.Store(true); return true }})
	other := transport(t, verbs.Config{Provider: fabric.Host(localhost)})
	upgradedAt(t, other, tr, localhost)
	upgradedAt(t, other, tr, moved)
	fabric.Down(false)
	must.Soon(t, "the stream is opened again", again.Load)
}

// A connection that breaks while the sides agree is no failure of RDMA.
func TestConnectionBreaksInUpgrade(t *testing.T) {
	for name, verdicts := range map[string]int64{"after the offers": 0, "after the first verdict": 1} {
		t.Run(name, func(t *testing.T) {
			fabric := verbstest.New(1)
			tr := transport(t, verbs.Config{Provider: fabric.Host(localhost), Retry: func(int, int) bool { return true },
				Problem: func(_ int, err error) { t.Errorf("reported: %v", err) }})
			conn, mirror := connected(t, localhost)
			var wg sync.WaitGroup
			wg.Go(func() { // the peer offers the same queue pair, so that it is connected to itself
				const offer = 56
				io.CopyN(mirror, mirror, offer+verdicts)
				mirror.Close()
			})
			if got, err := tr.Upgrade(t.Context(), conn, 1, 1); err == nil {
				t.Errorf("%T carries the stream", got)
			}
			wg.Wait()
		})
	}
}

// slow is a provider that takes a while to make a queue pair.
type slow struct {
	verbs.Provider
	takes time.Duration
}

func (s slow) Open(at verbs.Place, size verbs.Size) (verbs.Pair, error) {
	time.Sleep(s.takes)
	return s.Provider.Open(at, size)
}

// A host that cannot make a queue pair as fast as a connection must be ready gets a stream all the same, by TCP.
func TestSlowQueuePairs(t *testing.T) {
	fabric := verbstest.New(1)
	tuning := verbs.DefaultTuning
	tuning.Rest = time.Minute
	var late atomic.Int64
	one := transport(t, verbs.Config{Provider: fabric.Host(localhost), Tuning: tuning})
	other := transport(t, verbs.Config{Provider: slow{fabric.Host(localhost), 50 * time.Millisecond}, Tuning: tuning,
		Problem: func(int, error) { late.Add(1) }})
	for range 10 {
		dialed, accepted := connected(t, localhost)
		for _, c := range []net.Conn{dialed, accepted} {
			c.SetDeadline(time.Now().Add(10 * time.Millisecond))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if c, err := one.Upgrade(t.Context(), dialed, 1, 1); c == nil {
				dialed.Close()
			} else if err != nil || c != dialed {
				t.Errorf("%T carries the stream, %v", c, err)
			}
		})
		c, err := other.Upgrade(t.Context(), accepted, 0, 1)
		accepted.Close()
		wg.Wait()
		if err == nil && c == accepted {
			if late.Load() == 0 {
				t.Error("no attempt was late")
			}
			return
		}
	}
	t.Errorf("no connection comes up; %d attempts were late", late.Load())
}

// Queue pairs die within segments, and the ports go down and come up: the link carries everything once, in part by TCP,
// and goes over RDMA in the end.
func TestLinkOutlivesQueuePairs(t *testing.T) {
	fabric := verbstest.New(27)
	kills := 0
	totals := verbstest.Exercise(t, verbstest.Exercised{
		Provider: func() verbs.Provider { return fabric.Host(localhost) }, Segments: 3_000,
		Disturb: func(round int) {
			if fabric.Kill() {
				kills++
			}
			if round%20 == 10 {
				fabric.Down(true)
				time.Sleep(5 * time.Millisecond)
				fabric.Down(false)
			}
		}})
	if n := fabric.Pairs(); n != 0 || fabric.Misused() != nil {
		t.Errorf("%d pairs are left; misused: %v", n, fabric.Misused())
	}
	if kills == 0 || totals.UpgradedBytes == 0 || totals.ResentSegments == 0 {
		t.Errorf("%d queue pairs died, %d bytes went over RDMA, %d segments were sent again", kills, totals.UpgradedBytes, totals.ResentSegments)
	}
}
