package collective

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"gorun/collective/link"
)

// Limits of what a peer sends after a control message that is still missing. A host that resumed before this one may
// have announced all that its ranks have in flight.
const (
	maxHeld      = 1 << 17
	maxHeldBytes = 256 << 20
)

// hear takes a control message, and the later ones that came before it.
func (e *Engine) hear(peer int, h *link.Header, p []byte) {
	e.mu.Lock()
	e.recorder.tick()
	err := e.order(peer, h, p)
	e.mu.Unlock()
	if err != nil {
		e.breaks(peer, err)
	}
}

// order takes a message whose turn it is, and keeps one that came early. An error ends the world: what the peer
// declared is lost, and operations would wait for it for ever. mu is held.
func (e *Engine) order(peer int, h *link.Header, p []byte) error {
	c := e.channels[peer]
	if c == nil || c.lost || h.Epoch != e.epoch.Load() {
		return nil
	}
	ahead := h.Offset - c.next
	if ahead == 0 && !e.early(p) {
		e.listen(peer, c, p, true)
		return nil
	}
	if _, twice := c.held[h.Offset]; twice || int64(ahead) < 0 {
		e.cfg.Log.Error("drop control message", "peer", peer, "number", h.Offset, "expected", c.next)
		return nil
	}
	if ahead > maxHeld || c.size+len(p) > maxHeldBytes {
		c.lost, c.held = true, nil
		return fmt.Errorf("control message %d of host id %d is missing in epoch %d, but number %d came",
			c.next, peer, h.Epoch, h.Offset)
	}
	if c.held == nil {
		c.held = map[uint64][]byte{}
	}
	c.held[h.Offset] = bytes.Clone(p)
	c.size += len(p)
	return nil
}

// listen takes a message, and the later ones that came before it. mu is held, and released in between.
func (e *Engine) listen(peer int, c *channel, p []byte, ok bool) {
	for ; ok; p, ok = e.take(c) {
		c.next++
		e.read(peer, p)
		e.settle()
		e.mu.Lock()
		if e.channels[peer] != c {
			return
		}
	}
}

// take returns the next message if it is there and its time has come.
func (e *Engine) take(c *channel) ([]byte, bool) {
	p, ok := c.held[c.next]
	if !ok || e.early(p) {
		return nil, false
	}
	delete(c.held, c.next)
	c.size -= len(p)
	return p, true
}

// read takes a control message. mu is held.
func (e *Engine) read(peer int, p []byte) {
	if e.stopped != nil || len(p) == 0 {
		return
	}
	var err error
	if p[0] == msgReady {
		err = e.negotiation.hear(peer, p)
	} else {
		err = e.hearShort(peer, p)
	}
	if err != nil {
		e.cfg.Log.Error("drop control message", "peer", peer, "err", err)
	}
}

// hearShort takes a control message that is no ready message. mu is held.
func (e *Engine) hearShort(peer int, p []byte) error {
	which, flag, numbers, err := readShort(p)
	switch {
	case err != nil:
		return err
	case which == msgLeave:
		e.negotiation.leave(numbers[0])
	case which == msgMark:
		if flag == 0 {
			e.channels[peer].stopped = uint32(numbers[0])
		}
	case which == msgDeclare:
		return e.groups.hear(peer, uint32(numbers[0]), numbers[1:])
	default:
		return errMessage
	}
	return nil
}

// early reports whether a control message is about the group that this host is about to have, or comes after
// a pause that is not over here.
func (e *Engine) early(p []byte) bool {
	if len(p) > 0 && p[0] == msgMark {
		_, flag, numbers, err := readShort(p)
		return err == nil && flag == 1 && uint32(numbers[0]) == e.paused.number
	}
	return len(p) >= readyHead && p[0] == msgReady && binary.LittleEndian.Uint32(p[4:]) == e.groups.next
}

// listenAll hears what waited in the channels and whose time has come. mu is held, and released in between.
func (e *Engine) listenAll() {
	peers := make([]int, 0, len(e.channels))
	for peer := range e.channels {
		peers = append(peers, peer)
	}
	for _, peer := range peers {
		if c := e.channels[peer]; c != nil {
			p, ok := e.take(c)
			e.listen(peer, c, p, ok)
		}
	}
}
