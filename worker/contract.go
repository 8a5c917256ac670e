package worker

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// What frameworks beside Horovod want to know, as far as it depends on this host or on the roster. What the
// placement alone decides is in launcher/plan.

// contracts returns the variables for a rank whose environment is env so far, on a host whose files are below root. What the
// user has set stays.
func (d *daemon) contracts(env []string, r wire.Rank, root fs.FS) []string {
	var out []string
	set := func(name, value string) {
		if _, ok := lookup(env, name); !ok && value != "" {
			out = append(out, name+"="+value)
		}
	}
	threads := d.threads()
	if cpus := len(d.binding(r).CPUs); cpus > 0 {
		threads = min(threads, cpus)
	}
	set("OMP_NUM_THREADS", strconv.Itoa(threads))
	set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1") // as torchrun does: or a rank whose peer died hangs in NCCL
	set("JAX_COORDINATOR_ADDRESS", coordinator(d.roster))
	if !hasAccelerator(root) {
		set("ACCELERATE_USE_CPU", "true") // or each rank of accelerate, and of HF Trainer, trains alone, and nothing says so
	}
	if d.job.TF {
		set("TF_CONFIG", tfConfig(d.roster, r.Rank))
	}
	return out
}

// threads is each rank's share of the CPUs: the default of OpenMP, one thread per CPU in every rank, makes
// ranks wait for each other's threads.
func (d *daemon) threads() int { return max(1, d.self.CPUs/max(1, d.job.Slots)) }

// sayThreads tells a user who wants to know.
func (d *daemon) sayThreads() {
	if d.job.Verbose {
		d.out.Write(&wire.Log{Text: fmt.Sprintf("OMP_NUM_THREADS=%d unless it is set: %s for %s", d.threads(), topology.Count(d.self.CPUs, "CPU"), topology.Count(d.job.Slots, "rank"))})
	}
}

// coordinator is where rank 0 serves the other processes of a JAX program, "" if that is not known.
func coordinator(r *wire.Roster) string {
	if r == nil || len(r.Peers) == 0 || len(r.Peers[0].Ports) == 0 || r.MasterAddr == "" {
		return ""
	}
	return net.JoinHostPort(r.MasterAddr, strconv.Itoa(r.Peers[0].Ports[0]))
}

// tfConfig is what tf.distribute reads: every worker's address in the order of the ranks, and which one this
// is. It is "" when a host has reserved too few ports.
func tfConfig(roster *wire.Roster, rank int) string {
	type task struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	config := struct {
		Cluster map[string][]string `json:"cluster"`
		Task    task                `json:"task"`
	}{map[string][]string{"worker": nil}, task{"worker", rank}}
	addrs := map[int]string{}
	for _, p := range roster.Peers {
		if len(p.Data) == 0 || len(p.Ports) < 1+len(p.Ranks) {
			return ""
		}
		host, _, err := net.SplitHostPort(p.Data[0])
		if err != nil {
			return ""
		}
		for i, r := range p.Ranks {
			addrs[r] = net.JoinHostPort(host, strconv.Itoa(p.Ports[1+i]))
		}
	}
	for r := range len(addrs) {
		config.Cluster["worker"] = append(config.Cluster["worker"], addrs[r])
	}
	text, err := json.Marshal(config)
	if err != nil || slices.Contains(config.Cluster["worker"], "") {
		return ""
	}
	return string(text)
}
