package ranks

import (
	"cmp"
	"context"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/member"
	"gorun/worker/packed"
	"gorun/worker/proc"
	"gorun/worker/rankenv"
)

// factsOf returns what the environment of a rank that is about to start depends on, and its end of the connection to
// the process manager of MPI, nil if it inherits none.
func (s *Starter) factsOf(ctx context.Context, rank wire.Rank, gpus []string) (*os.File, rankenv.Facts) {
	cfg, job := s.cfg, s.cfg.Job
	token := s.processes.of(rank.Process).token
	roster := cfg.Daemon.World().Roster
	f := rankenv.Facts{Job: job.ID, Elastic: job.Elastic, DropIn: job.Shim, NICs: cfg.NICs,
		Process: rank.Process, Rank: rank.Rank, Size: roster.Size, LocalRank: rank.LocalRank, LocalSize: len(roster.Ranks),
		CrossRank: rank.CrossRank, CrossSize: rank.CrossSize, Host: job.Name,
		Python: cfg.Python, Binary: cfg.Exe, Socket: cfg.Socket, Token: hex.EncodeToString(token[:]), SpareCPUs: s.cpus.binding.spareOf(rank),
		Threads:    s.cpus.threadsOf(rank),
		MasterAddr: roster.MasterAddr, MasterPort: roster.MasterPort, Coordinator: coordinator(roster),
		Accelerator: hasAccelerator(os.DirFS("/")), Verbose: job.Verbose,
		GPUPath: job.GPUPath}
	_, f.Dir = s.programOf(rank, "")
	if f.Spare = lists(roster.Spares, rank.Process); f.Spare {
		f.LocalSize = max(job.Slots, rank.Slot+1)
	}
	host := cfg.Daemon.Host()
	self, ok := member.Peer(roster, job.HostID)
	if !ok { // it has spares alone
		self.Data = cfg.Daemon.Own()
	}
	if len(self.Data) > 0 && !job.Alone {
		at, _ := netip.ParseAddrPort(self.Data[0])
		if f.NIC = host.NICAt(at.Addr()); f.NIC != "" {
			f.Addr, f.RDMA, f.NCCLBy = at.Addr().Unmap().String(), len(host.RDMA) > 0, ncclConfigured(os.ReadFile, slices.Concat(cfg.Env, job.Env))
		}
	}
	if s.library != nil {
		f.MPILibrary = packed.Path(s.library)
	}
	f.Group, f.Groups = groupOf(roster, job.HostID)
	f.Counters, f.Stacks = s.gauges.paths(rank.Process)
	if rank.Slot < len(gpus) {
		f.GPU = gpus[rank.Slot]
	}
	if job.TF {
		f.Workers = workers(roster)
	}
	if f.Spare {
		return nil, f
	}
	inherit, mpi, err := cfg.MPI.Connect(roster, rank)
	if err != nil {
		cfg.Log.Warn("an MPI program would not find the other ranks", "err", err)
	}
	f.PMI = mpi
	if f.Stock, err = cfg.Horovod.Connect(ctx, rank, host); err != nil {
		cfg.Log.Warn("a program of stock Horovod would not find the other ranks", "err", err)
	}
	return inherit, f
}

// ncclConfigured reports whether one of NCCL's files sets its interfaces: NCCL prefers the environment to them.
func ncclConfigured(read func(string) ([]byte, error), env []string) bool {
	home, _ := rankenv.Lookup(env, "HOME")
	own, _ := rankenv.Lookup(env, "NCCL_CONF_FILE")
	for _, file := range []string{"/etc/nccl.conf", cmp.Or(own, filepath.Join(home, ".nccl.conf"))} {
		text, _ := proc.Within(time.Second, func() []byte { text, _ := read(file); return text }) // most hosts have none
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "NCCL_SOCKET_IFNAME") {
				return true
			}
		}
	}
	return false
}

// groupOf returns the number of a host among the hosts with ranks, and how many hosts have some. A host with spares alone
// follows them.
func groupOf(r *wire.Roster, host int) (group, groups int) {
	peers := slices.DeleteFunc(slices.Clone(r.Peers), func(p wire.Peer) bool { return len(p.Ranks) == 0 })
	if group = slices.IndexFunc(peers, func(p wire.Peer) bool { return p.ID == host }); group < 0 {
		group = len(peers)
	}
	return group, len(peers)
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
