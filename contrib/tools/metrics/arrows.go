package main

import (
	"go/types"
	"maps"
	"slices"
	"strings"
)

// arrows counts the arrows of one package.
type arrows struct {
	all, circular int
	up            []string // each as "FROM uses NAMES of TO"
}

// graph holds for each file the files that it uses, with what it uses of them.
type graph map[string]map[string][]string

// fileArrows counts the arrows between the files of a package.
func fileArrows(s *source) arrows {
	uses := graph{}
	for name, object := range s.info.Uses {
		if object.Pkg() == s.types && object.Pos().IsValid() && shared(s, object) {
			uses.add(s.file(name.Pos()), s.file(object.Pos()), name.Name)
		}
	}
	return uses.count()
}

// shared reports whether other files can use an object: it is declared at package level, or is a method or a field.
func shared(s *source, object types.Object) bool {
	if object.Parent() == s.types.Scope() {
		return true
	}
	v, isVar := object.(*types.Var)
	_, isFunc := object.(*types.Func)
	return isFunc || isVar && v.IsField()
}

// add draws an arrow, unless it leads from a file to itself.
func (g graph) add(from, to, name string) {
	for _, file := range []string{from, to} {
		if g[file] == nil {
			g[file] = map[string][]string{}
		}
	}
	if from != to && !slices.Contains(g[from][to], name) {
		g[from][to] = append(g[from][to], name)
	}
}

func (g graph) count() (n arrows) {
	rank := map[string]int{}
	for i, file := range g.order() {
		rank[file] = i
	}
	for from, targets := range g {
		for to, names := range targets {
			n.all++
			if g.reaches(to, from, map[string]bool{}) {
				n.circular++
			}
			if rank[to] < rank[from] {
				slices.Sort(names)
				n.up = append(n.up, from+" uses "+strings.Join(names, ", ")+" of "+to)
			}
		}
	}
	slices.Sort(n.up)
	return n
}

// reaches reports whether arrows lead from a file to another one.
func (g graph) reaches(from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	for next := range g[from] {
		if !seen[next] && g.reaches(next, to, seen) {
			return true
		}
	}
	return false
}

// order puts files that use others first. It removes one file at a time: one that no remaining file uses goes to the
// front, one that uses none goes to the back; otherwise the file with the largest surplus of uses goes to the front.
func (g graph) order() []string {
	left := slices.Sorted(maps.Keys(g))
	var front, back []string
	for len(left) > 0 {
		best, bestSurplus, atBack := 0, 0, false
		for i, file := range left {
			out, in := g.degrees(file, left)
			if out == 0 || in == 0 {
				best, atBack = i, in != 0
				break
			}
			if i == 0 || out-in > bestSurplus {
				best, bestSurplus = i, out-in
			}
		}
		if atBack {
			back = append(back, left[best])
		} else {
			front = append(front, left[best])
		}
		left = slices.Delete(left, best, best+1)
	}
	slices.Reverse(back)
	return append(front, back...)
}

// degrees counts the arrows from a file and to it, among the remaining files.
func (g graph) degrees(file string, left []string) (out, in int) {
	for _, other := range left {
		if g[file][other] != nil {
			out++
		}
		if g[other][file] != nil {
			in++
		}
	}
	return out, in
}
