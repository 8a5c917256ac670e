// Package bench measures collectives the way nccl-tests does: an ordinary job whose ranks run one operation over a
// range of sizes, check what it computed, and report times and bandwidths.
//
// Run needs a rank of a world and works in the caller's goroutine; everything else here is pure. The package
// starts no job: that is the command's business.
package bench

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
)

// Config is what to measure. All ranks have the same.
type Config struct {
	Kind    collective.Kind
	Type    kernel.Type
	Op      kernel.Op
	Begin   int // bytes of the first size
	End     int // bytes of the last size, at most
	Factor  int
	Iters   int           // of every size; 0: as many as MinTime needs
	MinTime time.Duration // of every size
	JSON    bool
	Coding  kernel.Coding // of the job: how far results may be off
	// Transport is the way between hosts that the user asked for, for the report; "" for none.
	Transport string
	// Before is written ahead of the JSON document, such as a comma between two documents of a list.
	Before string
}

// maxIters bounds the times that are kept of one size.
const maxIters = 20_000

var (
	kindsByName = map[string]collective.Kind{"allreduce": collective.Allreduce, "allgather": collective.Allgather,
		"broadcast": collective.Broadcast, "barrier": collective.Barrier, "reducescatter": collective.ReduceScatter,
		"alltoall": collective.Alltoall, "reduce": collective.Reduce, "gather": collective.Gather,
		"scatter":  collective.Scatter,
		"sendrecv": collective.Send}
	typesByName = map[string]kernel.Type{}
	opsByName   = map[string]kernel.Op{"sum": kernel.Sum, "prod": kernel.Product, "min": kernel.Min, "max": kernel.Max,
		"avg": kernel.Average}
)

func init() {
	for t := kernel.Uint8; t <= kernel.Float64; t++ {
		typesByName[t.String()] = t
	}
}

// Kinds returns the names of the operations.
func Kinds() []string { return slices.Sorted(maps.Keys(kindsByName)) }

// KindName is the inverse of Kind.
func KindName(k collective.Kind) string {
	if k == collective.Send {
		return "sendrecv"
	}
	return k.String()
}

// Reduces reports whether the operation combines what ranks contribute, as Op says.
func (c *Config) Reduces() bool {
	return c.Kind == collective.Allreduce || c.Kind == collective.ReduceScatter || c.Kind == collective.Reduce
}

// gathers reports whether the size counts what all ranks contribute together.
func (c *Config) gathers() bool { return c.Kind == collective.Allgather || c.Kind == collective.Gather }

// deals reports whether a tensor has a part for every rank.
func (c *Config) deals() bool {
	return c.Kind == collective.ReduceScatter || c.Kind == collective.Alltoall || c.Kind == collective.Scatter
}

// Kind returns the operation of that name.
func Kind(name string) (collective.Kind, error) { return find("operation", kindsByName, name) }

// Type returns the element type of that name.
func Type(name string) (kernel.Type, error) { return find("element type", typesByName, name) }

// Op returns the reduction of that name; nccl-tests uses the same names.
func Op(name string) (kernel.Op, error) { return find("reduction", opsByName, name) }

func find[T any](what string, m map[string]T, name string) (T, error) {
	v, ok := m[name]
	if !ok {
		return v, fmt.Errorf("unknown %s %q: one of %s", what, name, strings.Join(slices.Sorted(maps.Keys(m)), ", "))
	}
	return v, nil
}

// opName is the inverse of Op.
func opName(op kernel.Op) string {
	for name, o := range opsByName {
		if o == op {
			return name
		}
	}
	return op.String()
}

// Size reads a number of bytes: 4, 64K, 1M, 1G, with powers of 1024; 64KiB and 64kB are the same.
func Size(s string) (int, error) {
	digits := strings.TrimRight(s, "KkMmGgIiBb")
	unit := strings.ToLower(s[len(digits):])
	shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30,
		"gb": 30, "gib": 30}[unit]
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || !ok || n > math.MaxInt>>shift {
		return 0, fmt.Errorf("size %q: a number of bytes such as 4, 64K, 1M or 1G", s)
	}
	return int(n) << shift, nil
}

// Check refuses what cannot be measured.
func (c *Config) Check() error {
	switch {
	case c.Kind != collective.Barrier && (c.Begin < 1 || c.End < c.Begin):
		return fmt.Errorf("sizes from %d to %d: the first must be at least 1 and not above the last", c.Begin, c.End)
	case c.Kind != collective.Barrier && c.Factor < 2:
		return fmt.Errorf("step factor %d: must be at least 2", c.Factor)
	case c.Iters < 0 || c.Iters > maxIters:
		return fmt.Errorf("%d iterations: must be between 1 and %d, or 0 for as many as the time allows", c.Iters, maxIters)
	case c.Iters == 0 && c.MinTime <= 0:
		return errors.New("neither iterations nor a time are given")
	case c.Reduces() && c.Op == kernel.Average && !floating(c.Type):
		return fmt.Errorf("average of %s: has no exact result to compare with", c.Type)
	}
	return nil
}

// counts returns how many elements each rank contributes, for each size. The result of an allgather or gather is the
// size, as in nccl-tests, so that a rank contributes its share of it. Sizes are rounded down to whole elements, as many
// for each rank where they are dealt out, and to at least one.
func (c *Config) counts(ranks int) []int {
	if c.Kind == collective.Barrier {
		return []int{0}
	}
	var counts []int
	for size := c.Begin; size <= c.End; size *= c.Factor {
		n := size / c.Type.Size()
		if c.gathers() || c.deals() {
			n /= ranks
		}
		n = max(1, n)
		if c.deals() {
			n *= ranks
		}
		if len(counts) == 0 || counts[len(counts)-1] != n {
			counts = append(counts, n)
		}
		if size > math.MaxInt/c.Factor {
			break
		}
	}
	return counts
}

// Sizes returns the bytes that the rows are about.
func (c *Config) Sizes(ranks int) []int {
	var sizes []int
	for _, count := range c.counts(ranks) {
		sizes = append(sizes, c.size(count, ranks))
	}
	return sizes
}

// size returns the bytes that a row is about: of the tensor, or of the gathered result.
func (c *Config) size(count, ranks int) int {
	if c.gathers() {
		count *= ranks
	}
	return count * c.Type.Size()
}

// busFactor is what the bandwidth of the algorithm (size by time) is multiplied by, to give the traffic on each
// rank's link or memory if the operation moved as little as it can: a figure that can be compared with the
// hardware's whatever the number of ranks. nccl-tests defines them alike.
func busFactor(kind collective.Kind, ranks int) float64 {
	n := float64(ranks)
	switch kind {
	case collective.Allreduce:
		return 2 * (n - 1) / n
	case collective.Allgather, collective.ReduceScatter, collective.Alltoall, collective.Gather, collective.Scatter:
		return (n - 1) / n
	case collective.Broadcast, collective.Reduce, collective.Send:
		return 1
	default:
		return 0
	}
}
