package collective

import "gorun/collective/schedule"

// broadcast gives all ranks what the root has, along a chain of hosts or a tree of them. A send is a broadcast in a
// group of two.
type broadcast struct{ base }

var broadcasts = newStrategies[broadcast](always)

func (s *broadcast) layout(o *op, r *Request) {
	s.o = o
	g := o.group
	root, _ := g.find(r.Root)
	o.acc, o.holder = o.outs[0], 0
	if root.pos == g.self {
		o.acc, o.holder = o.ins[root.index], root.index
	}
	for _, out := range o.outs {
		if !same(out, o.acc) {
			o.copies = append(o.copies, out)
		}
	}
	run := &o.run
	switch hosts := len(g.hosts); {
	case hosts == 1 || o.size == 0:
		o.holder = noRank
	case o.cost.Tree(o.size, hosts) <= o.cost.Chain(o.size, o.engine.cfg.Segment, hosts):
		run.steps = schedule.Tree(run.steps, hosts, g.self, root.pos, o.size)
	default:
		run.steps = schedule.Chain(run.steps, hosts, g.self, root.pos, o.size)
	}
}

func (s *broadcast) make(_ int, lo, hi int64) { s.o.copyOut(lo, hi) }

func (s *broadcast) local(lo, hi int64) { s.o.copyOut(lo, hi) }
