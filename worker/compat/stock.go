package compat

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	"gorun/rendezvous/kvhttp"
	"gorun/rendezvous/wire"
	"gorun/worker/member"
)

// stockRanks are the ranks of stock Horovod, by process. A service for each of them is what the
// session is to a rank of gorun's binding.
type stockRanks struct {
	members  map[int]*kvhttp.StockMember
	seated   map[int]uint32                   // the epoch in which they last got their place
	asking   map[int]chan<- kvhttp.StockPlace // processes that wait for it, each with space for the answer
	withdraw context.CancelFunc               // ends the announcement of another world, nil for none
	refused  *sync.Once                       // somebody else's connection
}

func newStockRanks() stockRanks {
	return stockRanks{members: map[int]*kvhttp.StockMember{}, seated: map[int]uint32{}, asking: map[int]chan<- kvhttp.StockPlace{}, refused: new(sync.Once)}
}

// openMember opens the service of a rank that is about to start.
func (h *Horovod) openMember(ctx context.Context, w member.View, r wire.Rank) (addr string, port int, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, fmt.Errorf("listen for Horovod's rank: %w", err)
	}
	process := r.Process
	m := kvhttp.NewMember(h.client, placeIn(w, r), func(asked context.Context) (kvhttp.StockPlace, error) {
		answer := make(chan kvhttp.StockPlace, 1)
		h.cfg.Loop.Post(ctx, func() { h.ask(process, answer) })
		select {
		case p := <-answer:
			return p, nil
		case <-asked.Done():
			return kvhttp.StockPlace{}, context.Cause(asked)
		}
	})
	h.stock.members[process], h.stock.seated[process] = m, w.Epoch
	h.cfg.Loop.Go(func() {
		if err := m.Serve(ctx, l, h.refused); err != nil {
			h.cfg.Log.Warn("a rank of Horovod will not find the others", "process", process, "err", err)
		}
	})
	at := l.Addr().(*net.TCPAddr)
	return at.IP.String(), at.Port, nil
}

// refused warns, once, that a connection for a rank is not its user's: or the kernel cannot tell.
func (h *Horovod) refused(err error) {
	h.stock.refused.Do(func() { h.cfg.Log.Warn("refused a connection to Horovod's rendezvous", "err", err) })
}

// placeIn returns the place of a rank in a world.
func placeIn(w member.View, r wire.Rank) kvhttp.StockPlace {
	return kvhttp.StockPlace{Rank: r.Rank, Size: w.Roster.Size, LocalRank: r.LocalRank, LocalSize: len(w.Roster.Ranks),
		CrossRank: r.CrossRank, CrossSize: r.CrossSize,
		Epoch: w.Epoch, Store: net.JoinHostPort(w.Roster.MasterAddr, strconv.Itoa(w.Roster.KVPort))}
}

// ask takes the question of a rank that has left its world: what is its place in the next, which may have begun?
func (h *Horovod) ask(process int, answer chan<- kvhttp.StockPlace) {
	h.stock.asking[process] = answer
	w := h.daemon.World()
	if h.stock.seated[process] == w.Epoch {
		h.daemon.Rejoining(&wire.Rejoining{Process: process, Epoch: w.Epoch})
		return
	}
	h.Seat()
}

// Seat answers the ranks that ask for their place in the world that has begun.
func (h *Horovod) Seat() {
	w := h.daemon.World()
	if h.stock.withdraw != nil && w.Formed() {
		h.stock.withdraw() // what was announced has happened
		h.stock.withdraw = nil
	}
	for _, r := range w.Roster.Ranks {
		answer := h.stock.asking[r.Process]
		if answer == nil || !w.Formed() || h.stock.seated[r.Process] == w.Epoch {
			continue
		}
		answer <- placeIn(w, r)
		delete(h.stock.asking, r.Process)
		h.stock.seated[r.Process] = w.Epoch
	}
}

// Announce lets the first rank know, if it runs here, that the world could be another one.
func (h *Horovod) Announce(ctx context.Context, c *wire.HostsChanged) {
	w := h.daemon.World()
	if c.Epoch != w.Epoch || !w.Formed() {
		return
	}
	for _, r := range w.Roster.Ranks {
		m := h.stock.members[r.Process]
		if r.Rank != 0 || m == nil {
			continue
		}
		if h.stock.withdraw != nil {
			h.stock.withdraw()
		}
		ctx, h.stock.withdraw = context.WithCancel(ctx)
		h.cfg.Loop.Go(func() { m.Announce(ctx, c.Stamp, c.Added, c.Removed) })
	}
}
