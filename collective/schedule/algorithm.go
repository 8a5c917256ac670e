package schedule

import (
	"fmt"
	"strings"
)

// Algorithm is a way to do an allreduce between hosts. The numbers are part of the control protocol.
type Algorithm uint8

// Algorithms. Auto is whichever costs least.
const (
	Auto Algorithm = iota
	ByRing
	ByDirect
	ByRecursiveDoubling
	ByRabenseifner
	ByTree
)

var algorithms = [...]string{"auto", "ring", "direct", "recursive-doubling", "rabenseifner", "tree"}

// Valid reports whether a is a known algorithm or Auto.
func (a Algorithm) Valid() bool { return int(a) < len(algorithms) }

func (a Algorithm) String() string {
	if !a.Valid() {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return algorithms[a]
}

// ParseAlgorithm is the inverse of String; no text is Auto.
func ParseAlgorithm(s string) (Algorithm, error) {
	if s == "" {
		return Auto, nil
	}
	for i, name := range algorithms {
		if s == name {
			return Algorithm(i), nil
		}
	}
	return Auto, fmt.Errorf("unknown algorithm %q: it is one of %s", s, strings.Join(algorithms[:], ", "))
}

// Algorithms returns all algorithms but Auto.
func Algorithms() []Algorithm {
	return []Algorithm{ByRing, ByDirect, ByRecursiveDoubling, ByRabenseifner, ByTree}
}

// Allreduce appends the steps of an allreduce of size bytes, size not 0. a is one that Fit returned.
//
// The bits of a result are the same at all positions. Two algorithms give the same bits where additions are
// exact (integers, minimum, maximum), or between two positions. Recursive doubling, Rabenseifner's and the
// tree give the same bits of floats too if hosts is a power of two and each has one part that is not scaled:
// they add in the same order, neighbours first.
func Allreduce(dst []Step, a Algorithm, hosts, self int, size int64) []Step {
	switch a {
	case ByDirect:
		return Direct(dst, hosts, self, size)
	case ByRecursiveDoubling:
		return RecursiveDoubling(dst, hosts, self, size)
	case ByRabenseifner:
		return Rabenseifner(dst, hosts, self, size)
	case ByTree:
		return Binomial(dst, hosts, self, size)
	}
	return Ring(dst, hosts, self, size)
}

// Fit returns a, or what takes its place where it cannot be: Rabenseifner's algorithm needs a share for
// every position.
func (a Algorithm) Fit(hosts int, size int64) Algorithm {
	if a == ByRabenseifner && size < int64(hosts)*Align {
		return ByRecursiveDoubling
	}
	return a
}
