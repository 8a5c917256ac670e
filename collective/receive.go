package collective

import "gorun/collective/link"

// Place implements link.Handler.
func (e *Engine) Place(peer int, h link.Header) ([]byte, error) {
	o, err := e.find(peer, &h)
	if o == nil {
		return nil, err
	}
	return o.place(peer, &h)
}

// Deliver implements link.Handler.
func (e *Engine) Deliver(peer int, h link.Header, payload []byte) {
	o, err := e.find(peer, &h)
	switch {
	case err != nil:
		e.cfg.Log.Error("drop segment", "peer", peer, "err", err)
	case o != nil:
		o.deliver(peer, h, payload)
	default:
		e.hear(peer, &h, payload)
	}
}

// find returns the operation of a data segment; none and no error for a control segment.
func (e *Engine) find(peer int, h *link.Header) (*op, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.Epoch != e.epoch.Load() {
		return nil, errEpoch
	}
	if e.channels[peer] == nil {
		return nil, errPeer
	}
	if h.Kind == link.Control {
		if h.Length > maxControl {
			return nil, errMessage
		}
		return nil, nil
	}
	// A peer sends data when it knows that all hosts are ready, so this one has its contributions, although it
	// may not have heard of every other host.
	if o := e.ops.open[h.Op]; o != nil && h.Kind == link.Data && o.declared(o.group.self) {
		return o, nil
	}
	return nil, errUnknown
}
