// Package failovertest has resident daemons, with disks that fail and disks that show what they get, for tests of
// failover.
package failovertest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"testing"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
)

// Version is the version of the daemons, which their clients must have too.
const Version = "test"

// Key returns the daemons' key.
func Key(t *testing.T) standing.Key {
	t.Helper()
	key, err := standing.ParseKey([]byte("bx+QCnMZ7vYJ0hL9rTq3w5uXk2aVdE8sGiPzR1yFoMc="))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Disk saves states for jobs, unless it is full. Saved, if it is not nil, gets them. No launcher starts there.
type Disk struct {
	Full  bool
	Saved chan authority.State
}

// Load implements standing.Failover.
func (Disk) Load() ([]authority.State, error) { return nil, nil }

// Save implements standing.Failover.
func (d Disk) Save(s authority.State) error {
	if d.Full {
		return errors.New("no space left on device")
	}
	if d.Saved != nil {
		d.Saved <- s
	}
	return nil
}

// HasLauncher implements standing.Failover.
func (Disk) HasLauncher(authority.State) bool { return true }

// TakeOver implements standing.Failover.
func (Disk) TakeOver(authority.State, authority.Snapshot) {}

// QuorumLost implements standing.Failover.
func (Disk) QuorumLost(authority.State, int) error { return nil }

// QuorumBack implements standing.Failover.
func (Disk) QuorumBack(authority.State) error { return nil }

// Daemon starts the resident daemon of a host until the end of the test. It returns its address and its gossip's.
// failover is its standing.Launchers too, if it can be.
func Daemon(t *testing.T, key standing.Key, name string, failover standing.Failover, join ...string) (addr, gossip string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	launchers, _ := failover.(standing.Launchers)
	go func() {
		ended <- standing.Serve(ctx, nil, standing.Config{
			Key: key, Name: name, Version: Version, Slots: 1, Listener: l, Bind: "127.0.0.1", Address: "127.0.0.1", Join: join,
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
