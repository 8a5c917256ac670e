package kernel

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// level is an instruction set that the loops are written for: generic, or one of levelNames that needs this
// architecture, the best last.
type level int32

const generic level = 0

func (l level) String() string { return levelNames[l] }

// best is what this CPU and its operating system can do.
var best = detect()

// active is best, unless a test forces another one.
var active atomic.Int32

func init() { active.Store(int32(best)) }

// Level names the instruction set in use: "avx512", "avx2", "neon" or "generic".
func Level() string { return level(active.Load()).String() }

// Force makes all reductions use the named instruction set until restore is called. It is for tests.
func Force(name string) (restore func(), err error) {
	l := level(slices.Index(levelNames[:], name))
	if l < generic || l > best {
		return nil, fmt.Errorf("force instruction set %q: this CPU or build has %s", name, best)
	}
	old := active.Swap(int32(l))
	return func() { active.Store(old) }, nil
}
