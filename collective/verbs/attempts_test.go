package verbs

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A stream without a port looks for one at growing intervals, and in a pause not at all.
func TestLooksForPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, id, looks := portless(t)
		tr.failed(id, errPeer)
		time.Sleep(500 * time.Millisecond)
		tr.Pause()
		time.Sleep(10 * time.Second)
		if n := looks.Load(); n > 0 {
			t.Errorf("%d looks in a pause", n)
		}
		tr.Resume()
		time.Sleep(time.Minute)
		if n := looks.Load(); n < 10 || n > 15 {
			t.Errorf("%d looks in a minute", n)
		}
	})
}

// A stream whose attempt fails while the queue pair before still carries it is opened again once that has ended, even if it
// did not break.
func TestLooksAfterReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, id, looks := portless(t)
		tr.state(id).on = 1
		tr.failed(id, errPeer)
		time.Sleep(time.Minute)
		if n := looks.Load(); n > 0 {
			t.Errorf("%d looks while RDMA carries the stream", n)
		}
		tr.broke(id, nil, net.ErrClosed)
		time.Sleep(time.Minute)
		if looks.Load() == 0 {
			t.Error("the stream stays on TCP")
		}
	})
}

// A stream is opened again after a connection without a queue pair, which came up first, has replaced one that has it.
func TestLooksAfterCrossing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, id, looks := portless(t)
		tr.retry(id) // one side opens the stream before it is the time for RDMA
		tr.mu.Lock()
		tr.state(id).on, tr.state(id).waits = 1, false // what the other side opens gets a queue pair
		tr.mu.Unlock()
		time.Sleep(time.Minute)
		before := looks.Load()
		tr.broke(id, nil, net.ErrClosed)
		time.Sleep(time.Minute)
		if looks.Load() == before {
			t.Error("the stream stays on TCP")
		}
	})
}

// portless returns a transport that finds no port, one of its streams, and how often it has looked for ports.
func portless(t *testing.T) (*Transport, streamID, *atomic.Int64) {
	looks, id := &atomic.Int64{}, streamID{1, 1}
	tr := New(Config{Provider: noPorts{looks}, Retry: func(int, int) bool { return true }})
	t.Cleanup(func() { tr.Close() })
	tr.state(id).from = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	return tr, id, looks
}

// noPorts counts how often it is asked for ports.
type noPorts struct{ looks *atomic.Int64 }

func (p noPorts) Ports() ([]Port, error)       { p.looks.Add(1); return nil, nil }
func (noPorts) Open(Place, Size) (Pair, error) { return nil, errNoPort }

// Only a peer that does not answer means that the network loses packets; the error of a probe is none of a queue pair
// that has carried data.
func TestLost(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{os.ErrDeadlineExceeded, errLost.Error()},
		{&StatusError{StatusRetries}, errLost.Error()},
		{&StatusError{StatusTime}, errLost.Error()},
		{&StatusError{StatusRemoteAccess}, "probe queue pair: queue pair failed: remote access error"},
		{&EventError{Event: EventDevice, Device: "mlx5_0"}, "probe queue pair: mlx5_0 has failed or was removed"},
		{errors.New("other bytes"), "probe queue pair: other bytes"},
	} {
		if got := lost(c.err); got == nil || got.Error() != c.want || Broken(got) {
			t.Errorf("%v: %v, should be %s", c.err, got, c.want)
		}
	}
	if err := lost(nil); err != nil {
		t.Error(err)
	}
}
