package collective

import (
	"encoding/binary"
	"fmt"
	"slices"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// A small allreduce is decided and carried out by the same messages: a host's ready message has its contribution
// inline. The negotiation's half is here, the strategy's in strategy_inline.go. This saves a message's time, and the
// system calls and wake-ups that belong to it.
//
// A host that has sent much inline before other hosts were ready sends no more contributions inline. The operation is
// then a direct exchange, which adds in the same order, so the bits of the result are the same.

const (
	alwaysInline = 2 << 10 // such a contribution is inline however many operations are open
	inlineAhead  = 1 << 20 // about the most bytes that a host sends inline before others are ready
)

// mayInline reports whether an allreduce of n bytes in a group may be inline: if it takes less time to send
// contributions to every host than to run any other algorithm afterwards. All hosts come to the same answer. The host
// reads what its ranks contribute with the engine locked, hence the limit. mu is held.
func (e *Engine) mayInline(n int64, ranks, hosts int) bool {
	c := e.cost
	if e.cfg.Algorithm != schedule.Auto || n == 0 || n > alwaysInline && n*int64(ranks) > e.cfg.Carry {
		return false
	}
	return float64(hosts-1)*float64(n)*c.Beta <= c.Allreduce(c.Choose(n, hosts, e.cfg.Direct), n, hosts)
}

// inlining decides which contributions are inline, and reads them.
type inlining struct {
	fits func(n int64, ranks, hosts int) bool // nil: none is
	view view                                 // for the arguments of a kernel
}

// small reports whether a request that has no flaw may be inline. An Adasum never is: it combines hosts
// pairwise. A coded tensor is only if it has at most alwaysInline bytes.
func (in *inlining) small(g *group, r *Request) bool {
	size, _ := BytesOf(r.Shape, r.Type)
	if r.Kind != Allreduce || r.Op == kernel.Adasum || in.fits == nil || r.Coding > kernel.CodingNone && size > alwaysInline {
		return false
	}
	ranks := 0
	for _, h := range g.hosts {
		ranks = max(ranks, len(h.Ranks))
	}
	return in.fits(int64(size), ranks, len(g.hosts))
}

// append appends the host's contribution to a ready message if the operation, one of so many that are open, is a small
// allreduce.
func (in *inlining) append(msg []byte, g *group, reqs []Request, open int) []byte {
	r := &reqs[0]
	n := len(r.In)
	if r.flaw(g) != nil || !in.small(g, r) || n > alwaysInline && n*open > inlineAhead {
		return msg
	}
	binary.LittleEndian.PutUint32(msg[inlineAt:], uint32(n))
	at := len(msg)
	msg = slices.Grow(msg, n)[:at+n]
	v := &in.view
	v.dst, v.src = append(v.dst[:0], msg[at:]), v.src[:0]
	for i := range reqs {
		v.src = append(v.src, reqs[i].In)
	}
	plan := r.planIn(g)
	plan.Post = 1
	plan.Reduce(v.dst, nil, v.src)
	clear(v.src)
	v.dst[0] = nil
	return msg
}

// check decides how an allreduce is carried out: inline, unless a rank has joined or a host sent nothing with its
// word. All hosts see the same. Two contributions have the same size if the hosts are of the same job.
func (in *inlining) check(o *op, lead *Request, joined bool) *Error {
	first := 0
	o.inline = !joined
	for pos := range o.votes {
		n, m := len(o.inlined(pos)), len(o.inlined(first))
		switch {
		case n == 0:
			o.inline = false
			continue
		case m > 0 && m != n:
			return &Error{Code: CodeInternal, Text: fmt.Sprintf("allreduce %q: %s sent %d bytes with its ready message, %s %d",
				o.name, o.group.hosts[pos].Name, n, o.group.hosts[first].Name, m)}
		}
		first = pos
	}
	o.direct = !o.inline && !joined && in.small(o.group, lead)
	return nil
}
