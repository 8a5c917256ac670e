package collective

import (
	"encoding/binary"
	"fmt"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// A small allreduce is over when the hosts have heard of each other: every host puts what its ranks contribute
// into its ready message, and adds up what all of them sent, in the order of positions. It takes one message's
// time instead of two.

// maxPart bounds what a ready message carries.
const maxPart = 2 << 10

// carries reports whether an allreduce of n bytes is done by ready messages. All hosts of a world come to the
// same answer. It must take less time to send parts to everybody than to run any other algorithm afterwards.
func (e *Engine) carries(n int64, hosts int) bool {
	if e.by != schedule.Auto || n == 0 || n > maxPart {
		return false
	}
	c := e.early
	return float64(hosts-1)*float64(n)*c.Beta <= c.Allreduce(c.Choose(n, hosts, e.directMax), n, hosts)
}

// carry appends the host's part to a ready message if the operation is a small allreduce.
// An Adasum is not element-wise: it needs the hosts in pairs.
func (t *table) carry(msg []byte, g *group, reqs []Request) []byte {
	r := &reqs[0]
	n := len(r.In)
	if r.Kind != Allreduce || r.Op == kernel.Adasum || r.flaw(g) != nil || t.carries == nil || !t.carries(int64(n), len(g.hosts)) {
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

// carried checks that a host sent as large a part as this one. It did if it is of the same job.
func (o *op) carried(pos int) *Error {
	own, theirs := &o.votes[o.group.self], &o.votes[pos]
	if len(own.part) == len(theirs.part) {
		return nil
	}
	return &Error{Code: CodeInternal, Text: fmt.Sprintf("allreduce %q: %s sent %d bytes with its word, %s %d",
		o.name, o.group.hosts[pos].Name, len(theirs.part), o.group.hosts[o.group.self].Name, len(own.part))}
}

// addParts makes the result from the parts that came with the ready messages.
func (o *op) addParts() {
	v := o.engine.view()
	for pos := range o.votes {
		v.src = append(v.src, o.votes[pos].part)
	}
	v.dst = append(v.dst, o.outs...)
	o.combine.Reduce(v.dst, nil, v.src)
	o.engine.views.Put(v)
}
