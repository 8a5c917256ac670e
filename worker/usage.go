package worker

import (
	"slices"

	"gorun/rendezvous/wire"
	"gorun/worker/proc"
)

// usage tells the launcher what the ranks of this host use.
func (d *daemon) usage() {
	var pids []int
	for rank := range d.running {
		pids = append(pids, d.pids[rank])
	}
	used, err := proc.Used(pids)
	if err != nil {
		d.log.Warn("read usage", "err", err)
	}
	msg := &wire.Usage{}
	for rank := range d.running {
		pid := d.pids[rank]
		u := used[pid]
		msg.Ranks = append(msg.Ranks, wire.RankUsage{Rank: rank, CPUMS: u.CPU.Milliseconds(), RSS: u.RSS, Processes: u.Processes, State: proc.Describe(pid)})
	}
	slices.SortFunc(msg.Ranks, func(a, b wire.RankUsage) int { return a.Rank - b.Rank })
	d.out.Write(msg)
}
