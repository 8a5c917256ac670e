package collective

import (
	"encoding/binary"
	"fmt"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// A small allreduce is decided and carried out by the same messages: a host's ready message has its contribution
// inline. This is the negotiation's half of it, strategy_inline.go has the other one.

// maxInline bounds a contribution that is inline.
const maxInline = 2 << 10

// inlines reports whether an allreduce of n bytes is done by ready messages. All hosts of a world come to the
// same answer. It must take less time to send contributions to every host than to run any other algorithm afterwards.
func (e *Engine) inlines(n int64, hosts int) bool {
	if e.by != schedule.Auto || n == 0 || n > maxInline {
		return false
	}
	c := e.first
	return float64(hosts-1)*float64(n)*c.Beta <= c.Allreduce(c.Choose(n, hosts, e.directMax), n, hosts)
}

// appendInline appends the host's contribution to a ready message if the operation is a small allreduce.
// An Adasum is not element-wise: it needs the hosts in pairs.
func (t *readiness) appendInline(msg []byte, g *group, reqs []Request) []byte {
	r := &reqs[0]
	n := len(r.In)
	if r.Kind != Allreduce || r.Op == kernel.Adasum || r.flaw(g) != nil || t.inlines == nil ||
		!t.inlines(int64(n), len(g.hosts)) {
		return msg
	}
	binary.LittleEndian.PutUint16(msg[14:], uint16(n))
	at := len(msg)
	msg = append(msg, t.zeros[:n]...)
	v := &t.view
	v.dst, v.src = append(v.dst[:0], msg[at:]), v.src[:0]
	for i := range reqs {
		v.src = append(v.src, reqs[i].In)
	}
	plan := r.plan(len(g.ranks))
	plan.Post = 1
	plan.Reduce(v.dst, nil, v.src)
	clear(v.src)
	v.dst[0] = nil
	return msg
}

// checkInline checks that a host sent as large a contribution as this one. It did if it is of the same job.
func (*readiness) checkInline(o *op, pos int) *Error {
	own, theirs := o.inlined(o.group.self), o.inlined(pos)
	if len(own) == len(theirs) {
		return nil
	}
	return &Error{Code: CodeInternal, Text: fmt.Sprintf("allreduce %q: %s sent %d bytes with its word, %s %d",
		o.name, o.group.hosts[pos].Name, len(theirs), o.group.hosts[o.group.self].Name, len(own))}
}
