package worker

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

// newGate returns an address that leads to a daemon's links: it takes connections, and passes nothing on until it is
// opened.
func newGate(t *testing.T, to string, open <-chan struct{}) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			passing.Go(func() {
				defer conn.Close()
				select {
				case <-open:
				case <-t.Context().Done():
					return
				}
				other, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer other.Close()
				var both sync.WaitGroup
				both.Go(func() { io.Copy(other, conn); other.Close() })
				both.Go(func() { io.Copy(conn, other); conn.Close() })
				both.Wait()
			})
		}
	})
	t.Cleanup(func() { l.Close(); passing.Wait() })
	return l.Addr().String()
}

// TestLinksTakeLong: hosts of a static job that gossip has brought together, but that do not reach each other over
// their links, report that and go on trying: one of them may be paused, which the launcher knows. When they do reach
// each other, their world begins.
func TestLinksTakeLong(t *testing.T) {
	impatient := Config{linkTimeout: 500 * time.Millisecond}
	hosts := []*conversation{startDaemonWith(t, t.Context(), impatient), startDaemonWith(t, t.Context(), impatient)}
	open := make(chan struct{})
	roster := wire.Roster{Epoch: 1, Size: 2, MasterAddr: "127.0.0.1"}
	for id, c := range hosts {
		await[*wire.Hello](c)
		must.Do(t, c.to.Write(&wire.Job{ID: "0123456789abcdef", Secret: make([]byte, 32), HostID: id, Name: "here", LocalIP: "127.0.0.1", Toward: "127.0.0.1", Slots: 1,
			Argv: []string{"sleep", "100"}, Dir: "/", JobOptions: wire.JobOptions{Grace: time.Second}}))
		ready := await[*wire.Ready](c)
		roster.Peers = append(roster.Peers, wire.Peer{ID: id, Name: "here", Gossip: ready.Gossip, Data: []string{newGate(t, ready.Data[0], open)}, Ranks: []int{id}})
		roster.MasterPort = ready.Port
	}
	failed := make(chan *wire.Failed, 2)
	worlds := make(chan uint32, 2)
	var reading sync.WaitGroup
	for id, c := range hosts {
		mine := roster
		mine.Ranks = []wire.Rank{{Process: id, Rank: id, CrossRank: id, CrossSize: 2}}
		must.Do(t, c.to.Write(&mine))
		reading.Go(func() {
			told := false
			for {
				m, err := c.from.Read()
				if err != nil {
					return
				}
				switch m := m.(type) {
				case *wire.Failed:
					if !told || !m.Again {
						failed <- m
					}
					told = true
				case *wire.Committed:
					worlds <- m.World.Epoch
				}
			}
		})
	}
	for range hosts {
		select {
		case f := <-failed:
			if !f.Again || f.Step != "connect hosts" {
				t.Fatalf("a host gives up: %+v", f)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no host says that it does not reach the other one")
		}
	}
	close(open)
	for range hosts {
		select {
		case epoch := <-worlds:
			if epoch != 1 {
				t.Errorf("they are in epoch %d", epoch)
			}
		case f := <-failed:
			t.Fatalf("a host gives up: %+v", f)
		case <-time.After(20 * time.Second):
			t.Fatal("no world begins")
		}
	}
	for _, c := range hosts {
		must.Do(t, c.to.Write(&wire.Stop{}))
	}
	reading.Wait()
	for _, c := range hosts {
		must.Do(t, <-c.ended)
	}
}
