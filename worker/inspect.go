package worker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/proc"
)

// inspect tells the launcher what the ranks of this host do and what they wait for.
func (d *daemon) inspect() {
	msg := &wire.Inspected{}
	now := time.Now()
	for process := range d.running {
		msg.Ranks = append(msg.Ranks, wire.RankState{Process: process, State: proc.Describe(d.pids[process])})
	}
	slices.SortFunc(msg.Ranks, func(a, b wire.RankState) int { return a.Process - b.Process })
	for _, s := range d.engine.Pending(now) {
		name := strings.ToLower(fmt.Sprint(s.Kind))
		if s.Name != "" {
			name += " " + s.Name
		}
		var missing []int
		for _, a := range s.Missing {
			missing = append(missing, a.Ranks...)
		}
		msg.Waits = append(msg.Waits, wire.Wait{Op: name, Missing: missing, MS: int(now.Sub(s.Since).Milliseconds())})
	}
	d.out.Write(msg)
}
