package collective

import (
	"fmt"
	"math"
	"slices"

	"gorun/collective/kernel"
)

// normalize checks a request of rank, one of g, by itself and clears what its kind does not use, so that contributions
// can be compared field by field. What no rank could do (flaw) passes: if others submitted something else, all of them
// must hear of it.
func (r *Request) normalize(g *group, rank int) *Error {
	switch r.Kind {
	case AddGroup, RemoveGroup:
		r.Name, r.Splits = groupsName, nil
	case Join:
		r.Name, r.Splits = joinName, nil
	case Alltoall, Scatter:
	default:
		r.Splits = nil
	}
	if len(r.Name) == 0 || len(r.Name) > MaxName {
		return refuse("%s: name has %d bytes, allowed are 1 to %d", r.Kind, len(r.Name), MaxName)
	}
	if r.Client == nil {
		return refuse("%s %q: no client to tell", r.Kind, r.Name)
	}
	if !r.Coding.Valid() {
		return refuse("%s %q: unknown coding %d", r.Kind, r.Name, uint8(r.Coding))
	}
	switch r.Kind {
	case Allreduce:
	case Allgather:
		r.Op, r.Root, r.Pre, r.Post = 0, 0, 1, 1
	case Alltoall:
		r.Op, r.Root, r.Pre, r.Post = 0, 0, 1, 1
		if err := r.checkSplits(g); err != nil {
			return err
		}
	case ReduceScatter:
		r.Root = 0
	case Broadcast, Reduce, Gather, Scatter, Send:
		if err := r.checkRoot(g, rank); err != nil {
			return err
		}
	case AddGroup, RemoveGroup:
		r.clearTensor()
		return r.checkGroup(g)
	case Barrier, Join:
		r.Root, r.Shape = 0, nil
		r.clearTensor()
		if r.Kind == Join && g.id != 0 {
			return refuse("join: all ranks of the world take part, not only those of group %d", g.id)
		}
		return nil
	default:
		return refuse("%s %q: not an operation of this engine", r.Kind, r.Name)
	}
	return r.checkTensor()
}

func (r *Request) clearTensor() {
	r.Type, r.Op, r.Pre, r.Post = 0, 0, 1, 1
	r.In, r.Out = nil, nil
}

// flaw returns what is wrong with a request on which all ranks agree, nil if it can be done.
func (r *Request) flaw(g *group) *Error {
	if !r.Kind.hasTensor() {
		return nil
	}
	if wrong := r.misdealt(); wrong != "" {
		return refuse("%s %q: %s", r.Kind, r.Name, wrong)
	}
	if _, ok := slices.BinarySearch(g.ranks, r.Root); r.Kind.rooted() && !ok {
		return refuse("%s %q: root rank %d is not in the group", r.Kind, r.Name, r.Root)
	}
	if (r.Kind.ragged() || r.Kind == ReduceScatter) && len(r.Shape) == 0 {
		return refuse("%s %q: a scalar has no rows: give it one", r.Kind, r.Name)
	}
	if !r.Kind.reduces() {
		return nil
	}
	p := r.plan(max(len(g.ranks), 2)) // as for two at least: what can be done must not depend on how many there are
	if r.Op == kernel.Adasum && r.Kind == Allreduce {
		if !r.Type.HasAdasum() {
			return refuse("%s %q: adasum is not defined for %s", r.Kind, r.Name, r.Type)
		}
		p.Op = kernel.Sum // as which kernels see its factors
	}
	if err := p.Check(); err != nil {
		return refuse("%s %q: %v", r.Kind, r.Name, err)
	}
	return nil
}

// Whether the rows of an alltoall, gather or scatter can be dealt, or why not. All ranks hear of the reason.
const (
	dealt = 1 + iota
	uneven
	miscounted
	impossible
	overdrawn
)

// misdealt returns why rows cannot be dealt, "" if they can.
func (r *Request) misdealt() string {
	switch how, rows := r.dealing(); how {
	case uneven:
		return fmt.Sprintf("%.0f rows cannot be dealt evenly, and there are no splits", rows)
	case miscounted:
		return "splits are not one number of 32 bits for each rank"
	case impossible:
		return fmt.Sprintf("splits have %.0f rows for a rank (0 to %d are possible)", rows, math.MaxInt32)
	case overdrawn:
		return fmt.Sprintf("splits are %.0f rows, more than there are", rows)
	}
	return ""
}

// dealing returns what misdeal wrote, or that all can be dealt.
func (r *Request) dealing() (how int, rows float64) {
	if !r.Kind.exchanges() {
		return dealt, 0
	}
	return int(r.Post), r.Pre
}

// misdeal marks a request whose rows cannot be dealt: Post holds the reason, and Pre the number of rows to report.
func (r *Request) misdeal(why int, rows float64) {
	r.Splits, r.Pre, r.Post = nil, rows, float64(why)
}

// checkSplits makes sure that there is one split per rank of the group, and rows for all of them, or marks the request.
func (r *Request) checkSplits(g *group) *Error {
	if len(r.Shape) == 0 {
		r.Splits = nil
		return nil
	}
	if !g.exchanges {
		return refuse("%s %q: %d ranks are too many", r.Kind, r.Name, len(g.ranks))
	}
	rows, size := r.Shape[0], len(g.ranks)
	if r.Splits == nil {
		if rows%size != 0 {
			r.misdeal(uneven, float64(rows))
			return nil
		}
		r.deal(g, rows/size, 0)
	}
	if len(r.Splits) != size {
		r.misdeal(miscounted, 1)
		return nil
	}
	sum := 0.0
	for _, n := range r.Splits {
		if n < 0 || n > math.MaxInt32 {
			r.misdeal(impossible, float64(n))
			return nil
		}
		sum += float64(n)
	}
	if sum > float64(rows) { // 2³¹ for each of 2¹⁵ ranks: the sum is exact
		r.misdeal(overdrawn, sum)
	}
	return nil
}

// deal gives every rank of the group the same number of rows, and one more to the first ones. What it makes is good
// until the next request of the group is checked.
func (r *Request) deal(g *group, each, more int) {
	g.splits = resize(g.splits, len(g.ranks))
	for i := range g.splits {
		g.splits[i] = each
		if i < more {
			g.splits[i]++
		}
	}
	r.Splits = g.splits
}

func (r *Request) checkTensor() *Error {
	if !r.Type.Valid() {
		return refuse("%s %q: unknown element type %d", r.Kind, r.Name, uint8(r.Type))
	}
	n, ok := BytesOf(r.Shape, r.Type)
	if !ok {
		return refuse("%s %q: shape %v is not a shape of %s", r.Kind, r.Name, r.Shape, r.Type)
	}
	if len(r.In) != n {
		return refuse("%s %q: %s has %d bytes, the input %d", r.Kind, r.Name, describeTensor(r.Type, r.Shape), n, len(r.In))
	}
	if r.Kind.provides() {
		r.Out = nil
	} else if len(r.Out) != n {
		return refuse("%s %q: %s has %d bytes, the output %d", r.Kind, r.Name, describeTensor(r.Type, r.Shape), n, len(r.Out))
	}
	if !r.Kind.provides() && !same(r.In, r.Out) && overlap(r.In, r.Out) {
		return refuse("%s %q: input and output overlap without being the same", r.Kind, r.Name)
	}
	if r.Kind.reduces() && !r.Op.Valid() {
		return refuse("%s %q: unknown reduction %d", r.Kind, r.Name, uint8(r.Op))
	}
	return nil
}

// plan returns what the kernels do for a request in a group of size ranks.
func (r *Request) plan(size int) kernel.Plan {
	p := kernel.Plan{Type: r.Type, Op: r.Op, Pre: r.Pre, Post: r.Post}
	if r.Op == kernel.Average {
		p.Op = kernel.Sum
		p.Post /= float64(size)
	}
	return p
}

// checkGroup checks a request for a group by itself. g is the world.
func (r *Request) checkGroup(g *group) *Error {
	if g.id != 0 {
		return refuse("%s: all ranks of the world take part, not only those of group %d", r.Kind, g.id)
	}
	if r.Kind == RemoveGroup {
		r.Shape = nil
		return nil
	}
	r.Root, r.Shape = 0, slices.Clone(r.Shape)
	slices.Sort(r.Shape)
	return checkMembers(g, r.Shape)
}

// checkMembers checks the ranks of a new group, in ascending order. g is the world.
func checkMembers(g *group, ranks []int) *Error {
	if len(ranks) == 0 {
		return refuse("%s: there are no ranks in it", AddGroup)
	}
	for i, rank := range ranks {
		if i > 0 && rank == ranks[i-1] {
			return refuse("%s: rank %d is there twice", AddGroup, rank)
		}
		if _, ok := g.find(rank); !ok {
			return refuse("%s: there is no rank %d in a world of %d", AddGroup, rank, len(g.ranks))
		}
	}
	return nil
}

// checkRoot checks the root of a rank's request, and completes what follows from it.
func (r *Request) checkRoot(g *group, rank int) *Error {
	root, ok := slices.BinarySearch(g.ranks, r.Root)
	if r.Root != int(int32(r.Root)) {
		return refuse("%s %q: there is no rank %d", r.Kind, r.Name, r.Root)
	}
	if r.Kind == Reduce {
		return nil
	}
	pre := r.Pre
	r.Op, r.Pre, r.Post = 0, 1, 1
	switch r.Kind {
	case Send: // In and Out are one: nothing is copied
		if rank == r.Root {
			r.Out = r.In
		} else {
			r.In = r.Out
		}
		return nil
	case Broadcast:
		r.Pre = pre
		return nil
	}
	size := len(g.ranks)
	switch {
	case !ok || len(r.Shape) == 0: // which all ranks hear together
		r.Splits = nil
		return nil
	case r.Kind == Gather:
		r.deal(g, 0, 0)
		r.Splits[root] = r.Shape[0]
	case rank != r.Root:
		r.deal(g, 0, 0)
	case r.Splits == nil:
		r.deal(g, r.Shape[0]/size, r.Shape[0]%size)
	}
	return r.checkSplits(g)
}
