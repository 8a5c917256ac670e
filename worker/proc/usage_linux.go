package proc

import (
	"maps"
	"os"
	"slices"
	"time"
)

// Usage is what a process and its descendants use.
type Usage struct {
	CPU       time.Duration // includes children that have ended
	RSS       int64         // bytes; shared memory counts for each process
	Processes int
}

// Used returns what the given processes use, each with its descendants.
func Used(pids []int) (map[int]Usage, error) {
	table, err := ReadTable()
	if err != nil {
		return nil, err
	}
	out, children := map[int]Usage{}, byParent(table)
	for _, pid := range pids {
		var u Usage
		self := slices.DeleteFunc(slices.Clone(table), func(p Process) bool { return p.PID != pid })
		for _, p := range append(self, below(maps.Clone(children), pid)...) {
			u.CPU += time.Duration(p.Ticks+p.ChildTicks) * Tick
			u.RSS += p.Pages * int64(os.Getpagesize())
			u.Processes++
		}
		out[pid] = u
	}
	return out, nil
}
