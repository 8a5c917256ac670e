// Package plan decides, without any I/O, which rank runs on which host, and which variables of the launcher's
// environment ranks inherit.
//
// Place deals ranks to a list of hosts by a Policy, in the terms of mpirun's --map-by and --rank-by; PlaceParts does
// the same for a job of several programs. The result is a Placement: the hosts that have ranks, and for each rank its
// number, its local and its cross rank. UserEnv removes the variables that must not reach a rank.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"gorun/launcher/hosts"
)

// PlacedRank is one process of the job. The numbers are those of Horovod and torchrun: ranks are dealt host by host,
// LocalRank counts within a host, and CrossRank is the host's position among the hosts that have a rank of the same
// LocalRank (Horovod's documentation, "Concepts").
type PlacedRank struct {
	Rank, LocalRank, CrossRank, CrossSize int
	Host                                  int // index into Placement.Hosts
}

// Placement assigns ranks to hosts.
type Placement struct {
	Hosts []PlacedHost // only hosts that have a rank
	Ranks []PlacedRank // by rank
}

// PlacedHost is a machine with its share of the ranks.
type PlacedHost struct {
	Name  string
	Ranks []int
}

// SlotsError means that the hosts have too few slots.
type SlotsError struct {
	NP, Slots int // ranks, and slots available to them
	Taken     int // slots used by the programs before this one
	PerHost   int // the limit that applies, if it is not the hosts' slots
	Hosts     []hosts.ListedHost
	Program   int // the number of the program that it is about, from 1; 0 if there is one
}

// ExitCode is the one for wrong flags.
func (e *SlotsError) ExitCode() int { return 2 }

// NextStep names what would give the hosts room.
func (e *SlotsError) NextStep() string {
	if n := len(e.Hosts); e.PerHost > 0 {
		return fmt.Sprintf("allow more ranks on each host (-ppn %d) or start fewer (-np %d)", (e.NP+n-1)/n, e.Slots)
	}
	return fmt.Sprintf("give the hosts more slots (-H %s:%d,…) or start fewer ranks (-np %d)", e.Hosts[0].Name,
		max(e.Hosts[0].Slots, 1)+e.NP-e.Slots, e.Slots)
}

func (e *SlotsError) Error() string {
	var list []string
	for _, h := range e.Hosts {
		list = append(list, fmt.Sprintf("%s:%d", h.Name, max(h.Slots, 1)))
	}
	text := fmt.Sprintf("place ranks: -np %d needs %d slots, but %s has %d", e.NP, e.NP, strings.Join(list, ","), e.Slots+e.Taken)
	if e.Taken > 0 {
		text += fmt.Sprintf(", of which programs before it take %d", e.Taken)
	}
	if e.Program > 0 {
		return fmt.Sprintf("program %d: %s", e.Program, text)
	}
	return text
}

// Place deals np ranks to the hosts, by a policy; np 0 fills every slot. A host without a number of slots gets one, or,
// if no host has a number, as many as it takes to place np ranks evenly. The zero Policy fills host by host.
func Place(list []hosts.ListedHost, np int, by Policy) (Placement, error) {
	list = slices.Clone(list)
	free := !slices.ContainsFunc(list, func(h hosts.ListedHost) bool { return h.Slots > 0 })
	total := 0
	for i := range list {
		switch {
		case by.PerHost > 0:
			list[i].Slots = by.PerHost
		case free && np > len(list): // "-np 4 -H host1,host2": two each
			list[i].Slots = np / len(list)
			if i < np%len(list) {
				list[i].Slots++
			}
		case list[i].Slots == 0:
			list[i].Slots = 1
		}
		total += list[i].Slots
	}
	if np == 0 {
		np = total
	}
	if np > total {
		if !by.Oversubscribe {
			return Placement{}, &SlotsError{NP: np, Slots: total, PerHost: by.PerHost, Hosts: list}
		}
		for i := 0; total < np; i, total = i+1, total+1 {
			list[i%len(list)].Slots++
		}
	}
	p := by.number(list, by.counts(list, np))
	p.cross()
	return p, nil
}

// scrubbed lists variables that would mislead a rank: the launcher's own session, and the contract of whatever started
// the launcher. Of Intel MPI's and Horovod's variables it lists the ones that their launchers, or a scheduler's module
// (I_MPI_PMI_LIBRARY), leave behind; others are the user's, such as I_MPI_FABRICS. GOVC_PASSWORD is for the command of
// --moves only, and credentials of package indexes are for --python.
var scrubbed = struct{ names, prefixes []string }{
	names: []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
		"ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK",
		"LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "TF_CONFIG", "K_MPI_JOB_ROLE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
		"JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT",
		"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
		"HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_ELASTIC", "I_MPI_MPIRUN", "I_MPI_PERHOST", "OLDPWD", "_", "SHLVL",
		"UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_PROXY"},
	prefixes: []string{"TORCHELASTIC_", "PET_", "SLURM_", "PBS_", "LSB_", "FLUX_", "PALS_", "OMPI_", "PMI_", "PMIX_", "PRTE_", "HYDRA_",
		"I_MPI_HYDRA_", "I_MPI_INFO_", "I_MPI_PMI", "MV2_COMM_WORLD_", "HOROVOD_GLOO_RENDEZVOUS_", "SSH_", "GOVC_",
		"UV_INDEX", "UV_PUBLISH_"},
}

// own are gorun's variables, without the GORUN_ with which their names begin.
var own = strings.Fields(`SSH_COMMAND LAUNCHER CLUSTER CLUSTER_KEY_FILE GPU_PATH ALGORITHM WIRE_COMPRESSION ENCRYPT CHECKSUM RDMA RDMA_OPTIONS METRICS WEB
	HOSTFILE WORKER WORKER_KEY ALLOW_ROOT DETACHED HOSTED NATIVE VERBOSE TIME_SCALE BLIND
	RANK SIZE LOCAL_RANK LOCAL_SIZE DEPTH ON_LOSS JOB PROCESS SOCKET TOKEN COUNTERS STACKS SPARE SPARE_CPUS`)

// agent is the one variable of a login that its programs need, as they would without gorun.
const agent = "SSH_AUTH_SOCK"

// machine lists variables that belong to a machine, its devices or a login there, not to the job. A remote rank keeps
// its own.
var machine = struct{ names, prefixes []string }{
	names: []string{agent, "HOME", "USER", "LOGNAME", "SHELL", "MAIL", "HOSTNAME", "HOST", "TMPDIR", "PWD", "DISPLAY",
		"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"},
	prefixes: []string{"XDG_", "DBUS_"},
}

// UserEnv filters the launcher's environment down to what ranks inherit; remote also drops what belongs to the
// launcher's machine.
func UserEnv(env []string, remote bool) []string {
	var out []string
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || name != agent && matches(name, scrubbed.names, scrubbed.prefixes) || Own(name) || remote && matches(name, machine.names, machine.prefixes) {
			continue
		}
		out = append(out, kv)
	}
	return out
}

// Own reports whether gorun reads a variable, or sets it.
func Own(name string) bool {
	rest, ok := strings.CutPrefix(name, "GORUN_")
	return ok && slices.Contains(own, rest)
}

func matches(name string, names, prefixes []string) bool {
	return slices.Contains(names, name) ||
		slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// cross sets the cross rank of every rank.
func (p *Placement) cross() {
	for i := range p.Ranks {
		r := &p.Ranks[i]
		for h, host := range p.Hosts {
			if len(host.Ranks) > r.LocalRank {
				r.CrossSize++
				if h < r.Host {
					r.CrossRank++
				}
			}
		}
	}
}
