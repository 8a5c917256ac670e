//go:build !purego

package kernel

// vectorStep is the multiple of bytes that the assembly works on.
const vectorStep = 128

const neon level = 1

var levelNames = [...]string{"generic", "neon"}

// detect need not look: every ARMv8-A CPU has what the loops use.
func detect() level { return neon }

// vector reduces the bytes from a.from to a.to, a multiple of vectorStep. It reports false, and does
// nothing, if there is no loop for that.
func vector(t Type, op Op, a *args) bool {
	if t < Float16 && a.flags&(flagPre|flagPost) != 0 || level(active.Load()) < neon {
		return false // scaled integers go through float64
	}
	return runNEON(a, loopOf(t, op))
}

// runNEON runs a loop, and reports whether there is one.
//
//go:noescape
func runNEON(a *args, loop int) bool
