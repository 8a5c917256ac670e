package ranks

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

// factsOf returns what the environment of a rank that is about to start depends on, and its end of the connection to
// the process manager of MPI, nil if it inherits none.
func (r *Ranks) factsOf(ctx context.Context, rank wire.Rank, gpus []string) (*os.File, rankenv.Facts) {
	token := r.of(rank.Process).token
	roster := r.cfg.Daemon.World().Roster
	f := rankenv.Facts{Job: r.job.ID, Elastic: r.job.Elastic, DropIn: r.job.Shim, NICs: r.cfg.NICs,
		Process: rank.Process, Rank: rank.Rank, Size: roster.Size, LocalRank: rank.LocalRank, LocalSize: len(roster.Ranks),
		CrossRank: rank.CrossRank, CrossSize: rank.CrossSize, Host: r.job.Name,
		Binary: r.cfg.Exe, Socket: r.cfg.Socket, Token: hex.EncodeToString(token[:]), SpareCPUs: r.binding.spareOf(rank),
		Threads:    r.threadsOf(rank),
		MasterAddr: roster.MasterAddr, MasterPort: roster.MasterPort, Coordinator: coordinator(roster),
		MPILibrary: r.library.path(), Accelerator: hasAccelerator(os.DirFS("/"))}
	_, f.Dir = r.program(rank, "")
	f.Group, f.Groups = groupOf(roster, r.job.HostID)
	if page := r.of(rank.Process).counters; page != nil {
		f.Counters = page.Path()
	}
	if stacks := r.of(rank.Process).stacks; stacks != nil {
		f.Stacks = stacks.Path()
	}
	if rank.LocalRank < len(gpus) {
		f.GPU = gpus[rank.LocalRank]
	}
	if r.job.TF {
		f.Workers = workers(roster)
	}
	inherit, mpi, err := r.cfg.MPI.Connect(roster, rank)
	if err != nil {
		r.cfg.Log.Warn("an MPI program would not find the other ranks", "err", err)
	}
	f.PMI = mpi
	if f.Stock, err = r.cfg.Horovod.Connect(ctx, rank, r.cfg.Daemon.Host()); err != nil {
		r.cfg.Log.Warn("a program of stock Horovod would not find the other ranks", "err", err)
	}
	return inherit, f
}

// groupOf returns the number of a host among the hosts with ranks, and how many hosts have some.
func groupOf(r *wire.Roster, host int) (group, groups int) {
	peers := slices.DeleteFunc(slices.Clone(r.Peers), func(p wire.Peer) bool { return len(p.Ranks) == 0 })
	return max(slices.IndexFunc(peers, func(p wire.Peer) bool { return p.ID == host }), 0), len(peers)
}

// threads is each rank's share of the CPUs: the default of OpenMP, one thread per CPU in every rank, makes
// ranks wait for each other's threads.
func (r *Ranks) threads() int { return max(1, r.cfg.Daemon.Host().CPUs/max(1, r.job.Slots)) }

// threadsOf is that share for a rank, which has no more threads than it is bound to CPUs.
func (r *Ranks) threadsOf(rank wire.Rank) int {
	if cpus := len(r.binding.of(rank).CPUs); cpus > 0 {
		return min(r.threads(), cpus)
	}
	return r.threads()
}

// reportThreads shows that share to a user who wants to know.
func (r *Ranks) reportThreads() {
	if r.job.Verbose {
		r.say(fmt.Sprintf("OMP_NUM_THREADS=%d unless it is set: %s for %s", r.threads(),
			topology.Count(r.cfg.Daemon.Host().CPUs, "CPU"), topology.Count(r.job.Slots, "rank")))
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
