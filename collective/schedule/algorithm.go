package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// Algorithm is how an allreduce between hosts goes. Hosts and users exchange its name, never the number.
type Algorithm uint8

// Algorithms. Auto is whichever costs least.
const (
	Auto Algorithm = iota
	ByRing
	ByDirect
	ByRecursiveDoubling
	ByRabenseifner
)

// algorithms describes them. A new one is a constant above, a line here, a file with its steps, and a method of Cost.
// Flags, completion and most tests take it from here.
//
// The engine carries out the steps of a new algorithm with its strategy for rings (collective/strategy_ring.go), and
// with the one for coded sums. Both need that
//   - no step collects, and every receive is thus an Add, Finish, Take, Merge or Conclude;
//   - bytes have their last value in memory before a step sends them, because they are sent from there;
//   - no position sends another one more than twice the tensor.
var algorithms = [...]struct {
	name  string
	steps func(dst []Step, hosts, self int, size int64) []Step
	time  func(c Cost, n int64, hosts int) float64
}{
	Auto:                {name: "auto"},
	ByRing:              {"ring", Ring, Cost.Ring},
	ByDirect:            {"direct", Direct, Cost.Direct},
	ByRecursiveDoubling: {"recursive-doubling", RecursiveDoubling, Cost.RecursiveDoubling},
	ByRabenseifner:      {"rabenseifner", Rabenseifner, Cost.Rabenseifner},
}

// Valid reports whether a is a known algorithm or Auto.
func (a Algorithm) Valid() bool { return int(a) < len(algorithms) }

func (a Algorithm) String() string {
	if !a.Valid() {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return algorithms[a].name
}

// ParseAlgorithm is the inverse of String; no text is Auto.
func ParseAlgorithm(s string) (Algorithm, error) {
	if s == "" {
		return Auto, nil
	}
	names := AlgorithmNames()
	if i := slices.Index(names, s); i >= 0 {
		return Algorithm(i), nil
	}
	return Auto, fmt.Errorf("unknown algorithm %q: it is one of %s", s, strings.Join(names, ", "))
}

// AlgorithmNames returns what ParseAlgorithm understands, with Auto first.
func AlgorithmNames() []string {
	var names []string
	for _, a := range algorithms {
		names = append(names, a.name)
	}
	return names
}

// Algorithms returns all algorithms but Auto.
func Algorithms() []Algorithm {
	var all []Algorithm
	for a := Auto + 1; a.Valid(); a++ {
		all = append(all, a)
	}
	return all
}

// Allreduce appends the steps of an allreduce of size bytes, size not 0. a is one that Fit returned.
//
// The bits of a result are the same at all positions. Two algorithms give the same bits where additions are
// exact (integers, minimum, maximum), or between two positions. Recursive doubling and Rabenseifner's give the same bits
// of floats too if hosts is a power of two and each has one contribution that is not scaled: they add in the same
// order, neighbours first.
func Allreduce(dst []Step, a Algorithm, hosts, self int, size int64) []Step {
	return algorithms[a].steps(dst, hosts, self, size)
}

// Fit returns a, or what takes its place where it cannot be: Rabenseifner's algorithm needs a share for
// every position.
func (a Algorithm) Fit(hosts int, size int64) Algorithm {
	if a == ByRabenseifner && size < int64(hosts)*Align {
		return ByRecursiveDoubling
	}
	return a
}
