package kernel

import (
	"fmt"
	"math"
	"unsafe"
)

// Plan describes a reduction. Reduce expects a plan that passed Check.
type Plan struct {
	Type Type
	// Op Average is computed as Sum: the caller folds 1/size into Post.
	Op Op
	// Pre scales every source, Post the result; 1 means no scaling, 0 makes zeros.
	Pre, Post float64
	// NonTemporal stores past the cache, where the CPU can. It pays for results that are much larger
	// than the last-level cache and not read soon: it saves reading each line before it is overwritten.
	NonTemporal bool
}

// Check reports whether the type has that reduction and can be scaled.
func (p Plan) Check() error {
	if !p.Type.Valid() {
		return fmt.Errorf("reduce: unknown element %s", p.Type)
	}
	if !p.Op.Valid() {
		return fmt.Errorf("reduce: unknown reduction %s", p.Op)
	}
	if !p.Op.defined(p.Type) {
		return fmt.Errorf("reduce: %s is not defined for %s", p.Op, p.Type)
	}
	for _, by := range []float64{p.Pre, p.Post} {
		if math.IsNaN(by) || math.IsInf(by, 0) {
			return fmt.Errorf("reduce: scale factor %v is not a finite number", by)
		}
		if by != 1 && (p.Type == Bool || p.Op.bits()) {
			return fmt.Errorf("reduce: %s of %s cannot be scaled", p.Op, p.Type)
		}
	}
	return nil
}

// bits reports whether o looks at bits or truth rather than at numbers.
func (o Op) bits() bool { return o >= BitAnd && o <= LogicalXor }

func (o Op) defined(t Type) bool {
	switch {
	case o == Adasum, t > Complex128: // not element-wise, and types without arithmetic
		return false
	case o.bits():
		return t < Float16 || t == Bool
	case o == Min || o == Max:
		return t < Complex64
	}
	return true
}

// args is what one reduction works on. Its fields are read by the assembly.
type args struct {
	dsts, srcs   [][]byte
	partial      []byte
	from, to     int // bytes
	pre, post    float64
	pre32        float32
	post32       float32
	flags        uint64
	elementBytes int
}

// Flags of args.
const (
	flagPre         = 1 // pre is not 1
	flagPost        = 2 // post is not 1
	flagNonTemporal = 4
)

// piece is how much an assembly loop does at once. Such a loop cannot be preempted, and the garbage
// collector would wait for it: 256 KiB are some 30 µs.
const piece = 256 << 10

// The assembly has a table of loops per instruction set, with a row for each reduction and in it an entry for each
// type.
const (
	rowOfLoops  = 16
	sizeOfLoops = 8 * rowOfLoops * (int(BitXor) + 1) // bytes
)

// loopOf is the entry of a reduction of a type.
func loopOf(t Type, op Op) int { return int(op)*rowOfLoops + int(t) }

// Reduce computes every dsts[k][i] = Post × (partial[i] ⊕ Pre×srcs[0][i] ⊕ Pre×srcs[1][i] …), from left
// to right. partial is an already reduced contribution, which Pre does not touch; it may be nil. srcs may
// be empty if there is a partial.
//
// All buffers have the same length, a multiple of the element size, at any alignment. A dst may be the
// same memory as any src or partial, but not overlap one partially.
//
// The bits of a result depend on nothing but the inputs and their order, on whatever CPU:
//   - Float16 and BFloat16 are computed in float32 and rounded once, to nearest even, when stored;
//     Float32 is computed and scaled in float32, Float64 in float64, without fused multiply-add; complex
//     numbers are scaled by component.
//   - Integers wrap around. Scaled, they go through float64, are truncated towards zero, and saturate.
//   - Bool is any non-zero byte, and is stored as 0 or 1; its sum and maximum are "or", its product and
//     minimum "and". So are the logical reductions of integers.
//   - A NaN among the inputs of a float gives NaN, also for minimum and maximum, and it is always the
//     same one (positive, quiet, no payload). The minimum of -0 and +0 is -0, the maximum +0.
//   - A single input that is not scaled is copied as it is, unless it holds truth values.
//
// Its limit is memory: each input is read and each output written once, and without NonTemporal the CPU
// also reads each output line; all sums stay in registers, whatever the number of inputs.
func (p Plan) Reduce(dsts [][]byte, partial []byte, srcs [][]byte) {
	if !p.Op.valid(p.Type) {
		panic(fmt.Sprintf("kernel: reduce with an unchecked plan %+v", p))
	}
	n := p.length(dsts, partial, srcs)
	if n == 0 || len(dsts) == 0 {
		return
	}
	t, op, logical := p.lower()
	a := args{dsts: dsts, srcs: srcs, partial: partial, to: n,
		pre: p.Pre, post: p.Post, pre32: float32(p.Pre), post32: float32(p.Post), elementBytes: t.Size()}
	if p.Pre != 1 && len(srcs) > 0 {
		a.flags |= flagPre
	}
	if p.Post != 1 {
		a.flags |= flagPost
	}
	if one := single(partial, srcs); one != nil && a.flags == 0 && !logical {
		Copy(dsts, one)
		return
	}
	if !logical {
		a.from = p.vectors(t, op, &a, n)
		a.to = n
	}
	if a.from < a.to {
		reduceGeneric(t, op, &a)
	}
}

// vectors does what the CPU's vector unit can do of n bytes and returns how many bytes that is.
func (p Plan) vectors(t Type, op Op, a *args, n int) int {
	if p.NonTemporal {
		head, ok := unaligned(a.dsts, a.elementBytes)
		if ok && n-head >= vectorStep {
			a.flags |= flagNonTemporal
			if head > 0 {
				a.to = head
				reduceGeneric(t, op, a)
				a.from = head
			}
		}
	}
	for n-a.from >= vectorStep {
		a.to = a.from + min((n-a.from)&^(vectorStep-1), piece)
		if !vector(t, op, a) {
			break
		}
		a.from = a.to
	}
	return a.from
}

// unaligned returns how many bytes are before the first address that non-temporal stores can write, if
// that is the same for all of dsts.
func unaligned(dsts [][]byte, elementBytes int) (int, bool) {
	head := int(-uintptr(unsafe.Pointer(&dsts[0][0])) % nonTemporalAlign)
	for _, d := range dsts[1:] {
		if int(-uintptr(unsafe.Pointer(&d[0]))%nonTemporalAlign) != head {
			return 0, false
		}
	}
	return head, head%elementBytes == 0
}

const nonTemporalAlign = 64

// valid is Check without its error, for every call.
func (o Op) valid(t Type) bool { return t.Valid() && o.Valid() && o.defined(t) }

// lower maps what is the same arithmetic to one type and reduction. logical means that inputs count as
// true or false.
func (p Plan) lower() (t Type, op Op, logical bool) {
	t, op = p.Type, p.Op
	if op == Average {
		op = Sum
	}
	switch {
	case t == Bool:
		return Uint8, boolOps[op], true
	case t == Complex64 && op == Sum:
		return Float32, Sum, false
	case t == Complex128 && op == Sum:
		return Float64, Sum, false
	}
	return t, op, op >= LogicalAnd
}

var boolOps = [...]Op{
	Sum: LogicalOr, Max: LogicalOr, BitOr: LogicalOr, LogicalOr: LogicalOr,
	Product: LogicalAnd, Min: LogicalAnd, BitAnd: LogicalAnd, LogicalAnd: LogicalAnd,
	BitXor: LogicalXor, LogicalXor: LogicalXor,
}

// single returns the input if there is only one.
func single(partial []byte, srcs [][]byte) []byte {
	switch {
	case len(srcs) == 0:
		return partial
	case len(srcs) == 1 && partial == nil:
		return srcs[0]
	}
	return nil
}

// length returns the bytes of every buffer. The assembly trusts it.
func (p Plan) length(dsts [][]byte, partial []byte, srcs [][]byte) int {
	n := len(partial)
	if partial == nil {
		if len(srcs) == 0 {
			panic("kernel: reduce without input")
		}
		n = len(srcs[0])
	}
	for _, b := range srcs {
		if len(b) != n {
			panic(fmt.Sprintf("kernel: reduce a source of %d bytes with one of %d", len(b), n))
		}
	}
	for _, b := range dsts {
		if len(b) != n {
			panic(fmt.Sprintf("kernel: reduce %d bytes into %d", n, len(b)))
		}
	}
	if n%p.Type.Size() != 0 {
		panic(fmt.Sprintf("kernel: %d bytes are no whole number of %s", n, p.Type))
	}
	return n
}

// copyBlock is what Copy takes to all destinations before it reads on: it stays in the L1 cache.
const copyBlock = 16 << 10

// Copy copies src to every dst; all have the same length. A dst may be the same memory as src.
func Copy(dsts [][]byte, src []byte) {
	for _, d := range dsts {
		if len(d) != len(src) {
			panic(fmt.Sprintf("kernel: copy %d bytes to %d", len(src), len(d)))
		}
	}
	if len(dsts) == 1 { // in one go: the runtime's copy has non-temporal stores for large ones
		copy(dsts[0], src)
		return
	}
	for from := 0; from < len(src); from += copyBlock {
		to := min(from+copyBlock, len(src))
		for _, d := range dsts {
			if &d[from] != &src[from] {
				copy(d[from:to], src[from:to])
			}
		}
	}
}
