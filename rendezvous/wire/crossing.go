package wire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Called returns the kind of an operation and its name as the user wrote them. In Python, ranks match operations by
// both, because one name may be in flight for several kinds at a time, in any order on each rank.
func (w *Waiting) Called() (what, name string) {
	for _, what := range []string{w.Kind, "grouped_" + w.Kind} {
		name, ok := strings.CutPrefix(w.Name, what+".")
		if !ok {
			continue
		}
		if at := strings.LastIndexByte(name, '_'); at >= 0 { // x_1of2: the first one of two tensors
			var i, n int
			if _, err := fmt.Sscanf(name[at:], "_%dof%d", &i, &n); err == nil && name[at:] == fmt.Sprintf("_%dof%d", i, n) {
				return fmt.Sprintf("%s of %d tensors", what, n), name[:at]
			}
		}
		return what, name
	}
	return w.Kind, w.Name
}

// Crossed is an operation in which ranks wait that another operation of the same name misses.
type Crossed struct {
	Op    int // place in the list
	Ranks []Missing
}

// Crossings finds different operations of one name, each of which misses ranks that wait in another.
func Crossings(ops []Waiting) (all [][]Crossed) {
	type subject struct {
		group uint32
		name  string
	}
	byName := map[subject][]int{}
	var names []subject // in the order of ops
	for i := range ops {
		if len(ops[i].Missing) == 0 {
			continue
		}
		_, name := ops[i].Called()
		s := subject{ops[i].Group, name}
		if byName[s] == nil {
			names = append(names, s)
		}
		byName[s] = append(byName[s], i)
	}
	for _, s := range names {
		var crossing []Crossed
		for _, i := range byName[s] {
			waits := map[string][]int{}
			for _, j := range byName[s] {
				mine, theirs := ops[i].Missing, ops[j].Missing
				if here := without(theirs, mine); len(here) > 0 && len(without(mine, theirs)) > 0 {
					for _, m := range here {
						waits[m.Host] = append(waits[m.Host], m.Ranks...)
					}
				}
			}
			if len(waits) == 0 {
				continue
			}
			c := Crossed{Op: i}
			for _, host := range slices.Sorted(maps.Keys(waits)) {
				slices.Sort(waits[host])
				c.Ranks = append(c.Ranks, Missing{host, slices.Compact(waits[host])})
			}
			slices.SortFunc(c.Ranks, func(a, b Missing) int { return cmp.Compare(a.Ranks[0], b.Ranks[0]) })
			crossing = append(crossing, c)
		}
		if len(crossing) > 0 {
			all = append(all, crossing)
		}
	}
	return all
}

// without returns the ranks of a that are not in b.
func without(a, b []Missing) (rest []Missing) {
	in := map[int]bool{}
	for _, m := range b {
		for _, rank := range m.Ranks {
			in[rank] = true
		}
	}
	for _, m := range a {
		if ranks := slices.DeleteFunc(slices.Clone(m.Ranks), func(rank int) bool { return in[rank] }); len(ranks) > 0 {
			rest = append(rest, Missing{m.Host, ranks})
		}
	}
	return rest
}
