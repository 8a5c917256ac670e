//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// vectorStep is the multiple of bytes that the assembly works on.
const vectorStep = 256

const (
	avx2   level = 1
	avx512 level = 2
)

var levelNames = [...]string{"generic", "avx2", "avx512"}

func detect() level {
	x := &cpu.X86 // takes account of the operating system, which must save the registers
	switch {
	case !x.HasAVX2 || !x.HasF16C:
		return generic
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return avx512
	}
	return avx2
}

// vector reduces the bytes from a.from to a.to, a multiple of vectorStep. It reports false, and does
// nothing, if there is no loop for that.
func vector(t Type, op Op, a *args) bool {
	if t < Float16 && a.flags&(flagPre|flagPost) != 0 {
		return false // scaled integers go through float64
	}
	switch level(active.Load()) {
	case avx512:
		return runAVX512(a, loopOf(t, op))
	case avx2:
		return runAVX2(a, loopOf(t, op))
	}
	return false
}

// runAVX2 runs a loop, and reports whether there is one.
//
//go:noescape
func runAVX2(a *args, loop int) bool

//go:noescape
func runAVX512(a *args, loop int) bool
