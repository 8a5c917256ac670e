package launchers

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
)

// testVersion is the version of the daemons, which their clients must have too.
const testVersion = "test"

// testKey returns the daemons' key.
func testKey(t *testing.T) standing.Key {
	t.Helper()
	key, err := standing.ParseKey([]byte("bx+QCnMZ7vYJ0hL9rTq3w5uXk2aVdE8sGiPzR1yFoMc="))
	must.Do(t, err)
	return key
}

// disk saves states for jobs, unless it is full. saved, if it is not nil, gets them. No launcher starts there.
type disk struct {
	full  bool
	saved chan authority.State
}

// Load implements standing.Failover.
func (disk) Load() ([]authority.State, error) { return nil, nil }

// Save implements standing.Failover.
func (d disk) Save(s authority.State) error {
	if d.full {
		return errors.New("no space left on device")
	}
	if d.saved != nil {
		d.saved <- s
	}
	return nil
}

// HasLauncher implements standing.Failover.
func (disk) HasLauncher(authority.State) bool { return true }

// TakeOver implements standing.Failover.
func (disk) TakeOver(authority.State, authority.Snapshot) {}

// QuorumLost implements standing.Failover.
func (disk) QuorumLost(authority.State, int) error { return nil }

// QuorumBack implements standing.Failover.
func (disk) QuorumBack(authority.State) error { return nil }

// startDaemon starts the resident daemon of a host until the end of the test. It returns its address and its gossip's.
// failover is its standing.Launchers too, if it can be.
func startDaemon(t *testing.T, key standing.Key, name string, failover standing.Failover, join ...string) (addr, gossip string) {
	t.Helper()
	return startDaemonAs(t, key, name, "127.0.0.1", failover, join...)
}

// startDaemonAs starts a daemon that others reach at an address.
func startDaemonAs(t *testing.T, key standing.Key, name, address string, failover standing.Failover, join ...string) (addr, gossip string) {
	t.Helper()
	l := must.Listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	launchers, _ := failover.(standing.Launchers)
	go func() {
		ended <- standing.Serve(ctx, nil, standing.Config{
			Key: key, Name: name, Version: testVersion, Slots: 1, Listener: l, Bind: "127.0.0.1", Address: address, Join: join,
			Failover: failover, Launchers: launchers, Log: slog.New(slog.DiscardHandler),
			Command: func() *exec.Cmd { return exec.Command("cat") },
			Ready:   func(gossip string) { ready <- gossip },
		})
	}()
	select {
	case gossip = <-ready:
	case err := <-ended:
		t.Fatal(name, err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(name, err)
		}
	})
	return l.Addr().String(), gossip
}
