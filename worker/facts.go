package worker

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/rankenv"
)

// factsOf returns what the environment of a rank that is about to start depends on, and its end of the connection to the
// process manager of MPI, nil if it inherits none.
func (d *daemon) factsOf(ctx context.Context, r wire.Rank, gpus []string) (*os.File, rankenv.Facts) {
	token := d.tokens[r.Process]
	f := rankenv.Facts{Job: d.job.ID, Elastic: d.job.Elastic, DropIn: d.job.Shim, NICs: d.nics,
		Process: r.Process, Rank: r.Rank, Size: d.roster.Size, LocalRank: r.LocalRank, LocalSize: len(d.roster.Ranks),
		CrossRank: r.CrossRank, CrossSize: r.CrossSize, Host: d.job.Name,
		Binary: d.cfg.Exe, Socket: d.socket, Token: hex.EncodeToString(token[:]), SpareCPUs: d.spareCPUs(r), Threads: d.threadsOf(r),
		MasterAddr: d.roster.MasterAddr, MasterPort: d.roster.MasterPort, Coordinator: coordinator(d.roster),
		Accelerator: hasAccelerator(os.DirFS("/"))}
	_, f.Dir = d.program(r, "")
	f.Group, f.Groups = groupOf(d.roster, d.job.HostID)
	if r.LocalRank < len(gpus) {
		f.GPU = gpus[r.LocalRank]
	}
	if d.job.TF {
		f.Workers = workers(d.roster)
	}
	inherit, pmi, err := d.mpi.Connect(d.roster, r)
	if err != nil {
		d.log.Warn("an MPI program would not find the other ranks", "err", err)
	}
	f.PMI = pmi
	if f.Stock, err = d.horovod.Connect(ctx, r, d.self); err != nil {
		d.log.Warn("a program of stock Horovod would not find the other ranks", "err", err)
	}
	return inherit, f
}

// groupOf returns the number of a host among those that have ranks, and how many have some.
func groupOf(r *wire.Roster, host int) (group, groups int) {
	peers := slices.DeleteFunc(slices.Clone(r.Peers), func(p wire.Peer) bool { return len(p.Ranks) == 0 })
	return max(slices.IndexFunc(peers, func(p wire.Peer) bool { return p.ID == host }), 0), len(peers)
}

// threads is each rank's share of the CPUs: the default of OpenMP, one thread per CPU in every rank, makes
// ranks wait for each other's threads.
func (d *daemon) threads() int { return max(1, d.self.CPUs/max(1, d.job.Slots)) }

// threadsOf is that share for a rank, which has no more threads than it is bound to CPUs.
func (d *daemon) threadsOf(r wire.Rank) int {
	if cpus := len(d.binding(r).CPUs); cpus > 0 {
		return min(d.threads(), cpus)
	}
	return d.threads()
}

// sayThreads tells a user who wants to know.
func (d *daemon) sayThreads() {
	if d.job.Verbose {
		d.out.Write(&wire.Log{Text: fmt.Sprintf("OMP_NUM_THREADS=%d unless it is set: %s for %s", d.threads(), topology.Count(d.self.CPUs, "CPU"), topology.Count(d.job.Slots, "rank"))})
	}
}

// coordinator returns where rank 0 serves the other processes of a JAX program, "" if that is not known.
func coordinator(r *wire.Roster) string {
	if r == nil || len(r.Peers) == 0 || len(r.Peers[0].Ports) == 0 || r.MasterAddr == "" {
		return ""
	}
	return net.JoinHostPort(r.MasterAddr, strconv.Itoa(r.Peers[0].Ports[0]))
}

// workers returns the address of each rank's server in tf.distribute, nil when a host has reserved too few ports.
func workers(r *wire.Roster) []string {
	addrs := map[int]string{}
	for _, p := range r.Peers {
		if len(p.Data) == 0 || len(p.Ports) < 1+len(p.Ranks) {
			return nil
		}
		host, _, err := net.SplitHostPort(p.Data[0])
		if err != nil {
			return nil
		}
		for i, rank := range p.Ranks {
			addrs[rank] = net.JoinHostPort(host, strconv.Itoa(p.Ports[1+i]))
		}
	}
	var out []string
	for rank := range len(addrs) {
		out = append(out, addrs[rank])
	}
	if slices.Contains(out, "") {
		return nil
	}
	return out
}
