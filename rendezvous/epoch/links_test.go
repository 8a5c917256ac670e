package epoch_test

import (
	"context"
	"log/slog"
	"slices"

	"gorun/collective"
	"gorun/collective/link"
	"gorun/rendezvous/epoch"
)

// How the hosts of TestOperations are linked.

// station is what a host has beside its machine.
type station struct {
	t        *training
	id       int
	engine   *collective.Engine
	roster   epoch.Roster
	prepared uint32 // the engine knows the world
	first    int    // rank of this host there
	size     int    // of the world
	links    map[int]*session
	out      map[int][]*letter
	acks     map[int][]*letter
	ranks    []*process
	used     []*call // of all ranks that were here
}

// session is a link between two hosts, until one of them forgets it.
type session struct{ over bool }

// letter is a segment that a link keeps until it is acknowledged.
type letter struct {
	segment *link.Segment
	header  link.Header
	payload []byte // copied as it was sent, if it is short
	ready   bool
	placed  []byte // where it is being read to
	reading bool
	to      int
	session *session
}

// fail is a log of engines: they complain about what should not be there.
type fail struct{ t *training }

func (f fail) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (f fail) WithAttrs([]slog.Attr) slog.Handler           { return f }
func (f fail) WithGroup(string) slog.Handler                { return f }
func (f fail) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		r.Message += " " + a.String()
		return true
	})
	f.t.fatalf("an engine says: %s", r.Message)
	return nil
}

// forget drops a link: nothing of it touches memory any more.
func (h *station) forget(peer int) {
	h.links[peer].over = true
	for _, l := range h.out[peer] {
		if l.ready && len(h.t.stale) < 64 {
			h.t.stale = append(h.t.stale, letter{header: l.header, payload: slices.Clone(l.payload), to: peer, segment: &link.Segment{}})
		}
	}
	delete(h.links, peer)
	delete(h.out, peer)
	delete(h.acks, peer)
}

// Send implements collective.Transport.
func (h *station) Send(peer int, g *link.Segment) {
	g.Length = uint32(len(g.Payload))
	l := &letter{segment: g, header: g.Header, to: peer, session: h.links[peer]}
	if l.session == nil {
		h.t.fatalf("host %d sends to host %d without a link: %+v", h.id, peer, g.Header)
	}
	if len(g.Payload) <= link.CopyLimit {
		l.payload, l.ready = slices.Clone(g.Payload), true
	}
	h.out[peer] = append(h.out[peer], l)
}

// carry lets something happen on a link from this host: a segment is begun, broken off or delivered, or what was
// delivered is acknowledged.
func (h *station) carry() {
	s := h.t
	peers := sorted(h.out)
	if len(peers) == 0 {
		return
	}
	peer := peers[s.rng.IntN(len(peers))]
	if l := h.links[peer]; l == nil || l.over || s.asleep(peer) || s.side[h.id] != s.side[peer] {
		return
	}
	if s.rng.IntN(4) == 0 { // in batches, in any order
		batch := h.acks[peer]
		h.acks[peer] = nil
		s.rng.Shuffle(len(batch), func(i, k int) { batch[i], batch[k] = batch[k], batch[i] })
		for _, l := range batch {
			if l.segment.Owner != nil {
				l.segment.Owner.Acked(l.segment)
			}
		}
		return
	}
	queue := h.out[peer]
	if len(queue) == 0 {
		return
	}
	at := s.rng.IntN(min(4, len(queue))) // streams
	l, to := queue[at], s.hosts[peer].engine
	if !l.ready {
		l.ready = true
		if l.segment.Owner != nil {
			l.segment.Owner.Prepare(l.segment)
		}
	}
	payload := l.payload
	if payload == nil {
		payload = l.segment.Payload
	}
	if !l.reading {
		dst, err := to.Place(h.id, l.header)
		if err != nil {
			s.fatalf("host %d refuses %+v of host %d: %v", peer, l.header, h.id, err)
		}
		if dst == nil {
			dst = make([]byte, len(payload))
		}
		l.placed, l.reading = dst, true
	}
	if s.faults && s.rng.IntN(4) == 0 { // the stream breaks, after some of it
		copy(l.placed, payload[:s.rng.IntN(len(payload)+1)])
		l.reading = s.rng.IntN(2) == 0 // or is only slow
		return
	}
	copy(l.placed, payload)
	h.out[peer] = slices.DeleteFunc(h.out[peer], func(o *letter) bool { return o == l })
	to.Deliver(h.id, l.header, l.placed)
	h.acks[peer] = append(h.acks[peer], l)
}

// replay has a segment of a world that ended come once more.
func (s *training) replay() {
	if len(s.stale) == 0 {
		return
	}
	l := s.stale[s.rng.IntN(len(s.stale))]
	h := s.hosts[l.to]
	if s.asleep(l.to) || h.prepared <= l.header.Epoch || h.prepared != h.roster.Epoch {
		return // it is of the world of this host, or there is none
	}
	s.replayed++
	for id := range s.hosts {
		if id == l.to {
			continue
		}
		if _, err := h.engine.Place(id, l.header); err == nil {
			s.fatalf("host %d takes a segment of epoch %d in epoch %d: %+v", l.to, l.header.Epoch, h.prepared, l.header)
		}
	}
}
