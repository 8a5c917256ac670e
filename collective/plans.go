package collective

import (
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// Results of at least nonTemporal bytes in total bypass the caches, unless they replace an input, whose lines the
// caches hold anyway.
const nonTemporal = 32 << 20

// plans are the arithmetic of a reduction.
type plans struct {
	mid     kernel.Plan // own contribution into a partial
	last    kernel.Plan // own contribution into a partial that becomes the result
	combine kernel.Plan // all contributions into the result
	join    kernel.Plan // two partials into one
}

// plansOf returns the arithmetic of an allreduce.
func plansOf(o *op, r *Request) (p plans) {
	p.last = resultPlanOf(o, r)
	p.mid, p.combine = p.last, p.last
	p.mid.Post, p.combine.Pre = 1, 1
	p.join = p.mid
	p.join.Pre = 1
	p.mid.NonTemporal, p.join.NonTemporal = false, false // partials are sent from the cache
	return p
}

// resultPlanOf returns the arithmetic for an input that becomes the result of an allreduce.
func resultPlanOf(o *op, r *Request) kernel.Plan {
	p := planOf(o, r)
	p.NonTemporal = o.size*int64(len(o.outs)) >= nonTemporal && !same(o.ins[0], o.outs[0])
	return p
}

// planOf returns the arithmetic for an input that becomes the result. If elements are coded on their way, an average
// divides before it adds, so that the sum cannot overflow.
func planOf(o *op, r *Request) kernel.Plan {
	p := r.planIn(o.group)
	if early := r.Pre / float64(len(o.group.ranks)); isCoded(o, r) && r.Op == kernel.Average && early != 0 {
		p.Pre, p.Post = early, r.Post
	}
	return p
}

// planIn returns what the kernels do for a request in a group. An average of float16 divides by what a host adds up before
// that is rounded: the sum could overflow there, and by the number of all ranks small numbers would vanish.
func (r *Request) planIn(g *group) kernel.Plan {
	p := r.plan(len(g.ranks))
	if r.Type == kernel.Float16 && r.Op == kernel.Average {
		most := mostRanks(g.hosts)
		p.Pre, p.Post = p.Pre/most, p.Post*most
	}
	return p
}

// mostRanks returns a power of two that no host has more ranks than, 1 for a single host. To scale by it is exact.
func mostRanks(hosts []HostRanks) float64 {
	most := 1.0
	for _, h := range hosts {
		for len(hosts) > 1 && most < float64(len(h.Ranks)) {
			most *= 2
		}
	}
	return most
}

// algorithm returns the algorithm of an allreduce between hosts, Auto if nothing has to be sent. Coded elements cost
// less per byte.
func (o *op) algorithm() schedule.Algorithm {
	hosts := len(o.group.hosts)
	if hosts == 1 || o.size == 0 || o.inline {
		return schedule.Auto
	}
	if by := o.engine.cfg.Algorithm; by != schedule.Auto {
		return by.Fit(hosts, o.size)
	}
	if o.direct {
		return schedule.ByDirect
	}
	cost := o.cost
	cost.Beta *= float64(o.run.length(o.size)) / float64(o.size)
	return cost.Choose(o.size, hosts, o.engine.cfg.Direct)
}

// route lays out the steps of an allreduce.
func (o *op) route() {
	o.run.steps = schedule.Allreduce(o.run.steps, o.by, len(o.group.hosts), o.group.self, o.size)
}

// isCoded reports whether an op sends its elements in fewer bytes.
func isCoded(o *op, _ *Request) bool { return o.run.coding > kernel.CodingNone }
