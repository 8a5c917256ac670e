package collective

import (
	"slices"
	"strings"
)

// peek answers a Peek: a rank that would receive from any rank asks which ones send, and receives from one of them.
// Every sender's host has announced its send to this one, so the answer needs no message.
func (e *Engine) peek(rank int, r Request) error {
	e.mu.Lock()
	senders, err := e.senders(rank, &r)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	r.Client.Complete(r.Handle, Result{Rows: senders})
	return nil
}

// senders returns the ranks with a send to a local rank, under a name that contains the request's, which it has not
// received. mu is held.
func (e *Engine) senders(rank int, r *Request) ([]int, *Error) {
	if err := e.refusal(r); err != nil {
		return nil, err
	}
	world := e.groups.byID[0]
	switch {
	case r.Client == nil:
		return nil, refuse("%s %q: no client to tell", r.Kind, r.Name)
	case len(r.Name) == 0 || len(r.Name) > MaxName:
		return nil, refuse("%s: name has %d bytes, allowed are 1 to %d", r.Kind, len(r.Name), MaxName)
	case world == nil || !slices.Contains(world.local(), rank):
		return nil, refuse("%s %q: rank %d is not on this host", r.Kind, r.Name, rank)
	}
	var senders []int
	for _, o := range e.ops.open {
		if o.group.id&pairs != 0 && strings.Contains(o.name, r.Name) {
			if other := o.group.other(rank); other >= 0 && o.has(other) && !o.has(rank) && !slices.Contains(senders, other) {
				senders = append(senders, other)
			}
		}
	}
	slices.Sort(senders)
	if len(senders) == 0 && len(world.gone) >= len(world.ranks)-1 {
		return nil, &Error{Code: CodeShutdown, Text: "peek: all other ranks have left, and nothing more can come"}
	}
	return senders, nil
}

// other returns the other rank of a pair, -1 if rank is not in it.
func (g *group) other(rank int) int {
	if !slices.Contains(g.ranks, rank) {
		return -1
	}
	return g.ranks[0] + g.ranks[1] - rank
}

// has reports whether a rank has contributed, as far as this host knows: other hosts announce theirs.
func (u *use) has(rank int) bool {
	at, _ := u.group.find(rank)
	if at.pos == u.group.self {
		return u.own.have[at.index]
	}
	return u.declared(at.pos)
}
