package worker

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"gorun/rendezvous/kvhttp"
	"gorun/rendezvous/wire"
)

// Ranks of stock Horovod in an elastic job. What the sessions are to ranks of ours, a service on this host is to each of
// these: by it they leave a world, hear of the next, and find the others there.

// stockRanks are known by process.
type stockRanks struct {
	members map[int]*kvhttp.Member
	seated  map[int]uint32              // the epoch in which they were last told their place
	asking  map[int]chan<- kvhttp.Place // those that wait to be told, each with room for the answer
	hush    context.CancelFunc          // ends what is announced, nil for nothing
}

// openStock opens the service of a rank that is about to start.
func (d *daemon) openStock(ctx context.Context, r wire.Rank) (addr string, port int, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, fmt.Errorf("listen for Horovod's rank: %w", err)
	}
	if d.stock.members == nil {
		d.stock.members, d.stock.seated, d.stock.asking = map[int]*kvhttp.Member{}, map[int]uint32{}, map[int]chan<- kvhttp.Place{}
	}
	process := r.Process
	m := kvhttp.NewMember(d.place(r), func(asked context.Context) (kvhttp.Place, error) {
		answer := make(chan kvhttp.Place, 1)
		d.post(ctx, func() { d.askPlace(process, answer) })
		select {
		case p := <-answer:
			return p, nil
		case <-asked.Done():
			return kvhttp.Place{}, context.Cause(asked)
		}
	})
	d.stock.members[process], d.stock.seated[process] = m, d.began
	d.wg.Go(func() {
		if err := m.Serve(ctx, l); err != nil {
			d.log.Warn("a rank of Horovod will not find the others", "process", process, "err", err)
		}
	})
	at := l.Addr().(*net.TCPAddr)
	return at.IP.String(), at.Port, nil
}

// place is that of a rank in the present world.
func (d *daemon) place(r wire.Rank) kvhttp.Place {
	return kvhttp.Place{Rank: r.Rank, Size: d.roster.Size, LocalRank: r.LocalRank, LocalSize: len(d.roster.Ranks), CrossRank: r.CrossRank, CrossSize: r.CrossSize,
		Epoch: d.began, Store: net.JoinHostPort(d.roster.MasterAddr, strconv.Itoa(d.roster.KVPort))}
}

// askPlace is a rank that has left the world in which it was: it is told its place in the next, which may have begun.
func (d *daemon) askPlace(process int, answer chan<- kvhttp.Place) {
	d.stock.asking[process] = answer
	if d.stock.seated[process] == d.began {
		d.rejoining(&wire.Rejoining{Process: process, Epoch: d.began})
		return
	}
	d.seatStock()
}

// seatStock tells those that ask where they are in the world that has begun.
func (d *daemon) seatStock() {
	if d.stock.hush != nil && d.began == d.roster.Epoch {
		d.stock.hush() // what was announced has happened
		d.stock.hush = nil
	}
	for _, r := range d.roster.Ranks {
		answer := d.stock.asking[r.Process]
		if answer == nil || d.began != d.roster.Epoch || d.stock.seated[r.Process] == d.began {
			continue
		}
		answer <- d.place(r)
		delete(d.stock.asking, r.Process)
		d.stock.seated[r.Process] = d.began
	}
}

// announceStock tells the first rank, if it runs here, that the world could be another one.
func (d *daemon) announceStock(ctx context.Context, c *wire.HostsChanged) {
	if c.Epoch != d.began || d.roster == nil || c.Epoch != d.roster.Epoch {
		return
	}
	for _, r := range d.roster.Ranks {
		m := d.stock.members[r.Process]
		if r.Rank != 0 || m == nil {
			continue
		}
		if d.stock.hush != nil {
			d.stock.hush()
		}
		ctx, d.stock.hush = context.WithCancel(ctx)
		d.wg.Go(func() { m.Announce(ctx, c.Stamp, c.Added, c.Removed) })
	}
}
