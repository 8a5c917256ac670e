package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// BindTo is the part of a machine that a rank may run on.
type BindTo string

// The units that ranks can be bound to. The empty BindTo is BindNone.
const (
	BindNone   BindTo = "none"
	BindThread BindTo = "hwthread"
	BindCore   BindTo = "core"
	BindNUMA   BindTo = "numa"
	BindSocket BindTo = "socket"
)

// Bind is the user's choice of binding.
type Bind struct {
	To       BindTo `msgpack:"to"`
	Each     int    `msgpack:"each"`     // cores, or hardware threads, of a rank; 0 for one
	Overload bool   `msgpack:"overload"` // allow more ranks than cores
	// NICs are the interfaces for data, if the user chose some; empty for the one that is known to carry it.
	NICs []string `msgpack:"nics"`
}

// maxCores bounds what a rank may ask for.
const maxCores = 1 << 12

// ParseBind reads mpirun's --bind-to, or Hydra's -bind-to: a unit, then a number of them or a modifier.
func ParseBind(text string) (Bind, error) {
	unit, modifiers, _ := strings.Cut(text, ":")
	b := Bind{To: BindTo(unit)}
	switch unit {
	case "", "none", "hwthread", "core", "numa", "socket":
	case "package":
		b.To = BindSocket
	default:
		return b, fmt.Errorf("%q is not none, hwthread, core, numa or socket", unit)
	}
	for m := range strings.SplitSeq(modifiers, ",") {
		n, err := strconv.Atoi(m)
		switch {
		case err == nil && n >= 1 && n <= maxCores && (b.To == BindCore || b.To == BindThread):
			b.Each = n
		case strings.EqualFold(m, "overload-allowed"):
			b.Overload = true
		case m == "", strings.EqualFold(m, "no-overload"), strings.EqualFold(m, "if-supported"):
		default:
			return b, fmt.Errorf("%q: unknown modifier %q", text, m)
		}
	}
	return b, nil
}

// Binding is where a rank runs.
type Binding struct {
	CPUs  []int  // in ascending order
	Nodes []int  // NUMA nodes of these CPUs, for its memory; empty if there is only one
	Why   string // the reason for the choice of the node
}

// Place returns where the ranks of a host run. devices[i] is the GPU of local rank i, by index or UUID, or "".
//
// A rank goes to the NUMA node of its GPU. Ranks without a GPU are spread over the nodes in proportion to their cores,
// starting with the node of the NIC that carries data. Cores are dealt in order, but on the NIC's node from the end, so
// that the first ones are left to the engine and the NIC's interrupts.
func (b Bind) Place(h Host, devices []string) ([]Binding, error) {
	if b.To == "" || b.To == BindNone || len(devices) == 0 {
		return nil, nil
	}
	m := newMachine(h, b.NICs)
	if len(m.domains) == 0 {
		return nil, fmt.Errorf("bind ranks to %s: the host does not tell what CPUs it has", b.To)
	}
	homes, why := m.homes(devices)
	for _, home := range homes {
		m.domains[home].wanted += max(b.Each, 1)
	}
	bindings := make([]Binding, len(devices))
	for rank, home := range homes {
		bound := &bindings[rank]
		bound.Why = why[rank]
		d := m.domains[home]
		switch b.To {
		case BindNUMA:
			bound.CPUs = d.cpus()
		case BindSocket:
			for _, other := range m.domains {
				if other.socket == d.socket {
					bound.CPUs = append(bound.CPUs, other.cpus()...)
				}
			}
		default:
			var err error
			if bound.CPUs, err = m.deal(b, home, max(b.Each, 1), len(devices)); err != nil {
				return nil, err
			}
		}
		slices.Sort(bound.CPUs)
		bound.Nodes = m.nodesOf(bound.CPUs)
	}
	return bindings, nil
}

// Beside returns where the engine's threads run when ranks are bound: on the NUMA node of the NIC, or on the nodes of
// all NICs that the user chose. It takes the first half of the cores there that no rank owns, and leaves the rest to
// processes that ranks start; without such cores the engine runs anywhere on the node. The result is nil, for anywhere,
// if the NIC's node is unknown or there is only one node.
func (b Bind) Beside(h Host, ranks []Binding) []int {
	m := newMachine(h, b.NICs)
	if len(ranks) == 0 || len(m.domains) == 0 || m.nic < 0 && len(m.domains) > 1 {
		return nil
	}
	var all, free []int
	for at, d := range m.domains {
		if at != max(m.nic, 0) && !m.chosen[at] {
			continue
		}
		all = append(all, d.cpus()...)
		if b.exclusive() {
			cores := unowned(d, ranks)
			free = append(free, slices.Concat(cores[:(len(cores)+1)/2]...)...)
		}
	}
	slices.Sort(all)
	slices.Sort(free)
	switch {
	case len(free) > 0:
		return free
	case len(all) == len(m.all()):
		return nil
	}
	return all
}

// Along returns the engine's CPUs on the NUMA node of each rail's NIC. The threads of a rail's streams run there, and
// the kernel's send buffers are there. An engine without CPUs of its own has all of them. An entry is nil if its node
// is unknown; the result is nil if all NICs are on one node.
func (b Bind) Along(h Host, rails []string, engine []int) [][]int {
	if len(engine) == 0 {
		engine = newMachine(h, b.NICs).all()
	}
	along := make([][]int, len(rails))
	nodes := map[int]bool{}
	for i, rail := range rails {
		for _, nic := range h.NICs {
			at := slices.IndexFunc(h.Nodes, func(n Node) bool { return n.ID == nic.Node })
			if network := nic.Network(); at < 0 || !nic.Up || !network.IsValid() || network.String() != rail {
				continue
			}
			nodes[nic.Node] = true
			for _, cpu := range h.Nodes[at].CPUs {
				if slices.Contains(engine, cpu) && !slices.Contains(along[i], cpu) {
					along[i] = append(along[i], cpu)
				}
			}
		}
	}
	if len(nodes) < 2 {
		return nil
	}
	return along
}

// Spare returns, for each rank, where the processes it starts run, such as data loaders: on cores that neither a rank
// nor the engine owns, on the rank's NUMA nodes if possible, or else on any. An entry is nil if those processes stay
// with the rank.
func (b Bind) Spare(h Host, ranks []Binding, engine []int) [][]int {
	spare := make([][]int, len(ranks))
	if !b.exclusive() || len(engine) == 0 { // an engine that runs anywhere leaves none
		return spare
	}
	m := newMachine(h, b.NICs)
	var far []int
	near := map[int][]int{} // by node
	for _, d := range m.domains {
		for _, core := range unowned(d, ranks) {
			if !slices.ContainsFunc(core, func(cpu int) bool { return slices.Contains(engine, cpu) }) {
				near[d.id], far = append(near[d.id], core...), append(far, core...)
			}
		}
	}
	slices.Sort(far)
	for i, r := range ranks {
		for _, d := range m.domains {
			if len(r.Nodes) == 0 || slices.Contains(r.Nodes, d.id) {
				spare[i] = append(spare[i], near[d.id]...)
			}
		}
		if slices.Sort(spare[i]); len(spare[i]) == 0 && len(far) > 0 {
			spare[i] = slices.Clone(far)
		}
	}
	return spare
}

// exclusive reports whether ranks have CPUs of their own.
func (b Bind) exclusive() bool { return b.To == BindCore || b.To == BindThread }

// unowned returns the cores of a domain that no rank owns, without the CPUs that may not be used.
func unowned(d domain, ranks []Binding) (cores [][]int) {
	for _, core := range d.cores {
		left := slices.DeleteFunc(slices.Clone(core), func(cpu int) bool {
			return slices.ContainsFunc(ranks, func(r Binding) bool { return slices.Contains(r.CPUs, cpu) })
		})
		if len(left) > 0 {
			cores = append(cores, left)
		}
	}
	return cores
}

// domain is a NUMA node with usable CPUs, or the whole machine if it has no nodes.
type domain struct {
	id, socket int
	cores      [][]int // each with its hardware threads
	// How many cores, or hardware threads, ranks want and have been given.
	wanted, taken int
}

func (d domain) cpus() []int { return slices.Concat(d.cores...) }

// machine is a host as Place sees it.
type machine struct {
	host    Host
	domains []domain
	nic     int          // the domain of the NIC that carries data, or else of the fastest; -1 unknown
	chosen  map[int]bool // the domains of the NICs that the user chose
}

// newMachine considers only the given NICs, if any are given.
func newMachine(h Host, nics []string) *machine {
	m := &machine{host: h, nic: -1, chosen: map[int]bool{}}
	usable := func(cpu int) bool { return len(h.Usable) == 0 || slices.Contains(h.Usable, cpu) }
	seen := map[int]bool{}
	for _, n := range h.Nodes {
		d := domain{id: n.ID, socket: n.Socket}
		if n.Socket < 0 { // unknown: assume that no two nodes share a socket
			d.socket = -1 - n.ID
		}
		for _, core := range n.ByCore() {
			if core = slices.DeleteFunc(slices.Clone(core), func(cpu int) bool { return !usable(cpu) || seen[cpu] }); len(core) > 0 {
				d.cores = append(d.cores, core)
				for _, cpu := range core {
					seen[cpu] = true
				}
			}
		}
		if len(d.cores) > 0 {
			m.domains = append(m.domains, d)
		}
	}
	if len(m.domains) == 0 && len(h.Usable) > 0 {
		m.domains = append(m.domains, domain{id: -1, cores: singly(h.Usable)})
	}
	if len(nics) == 0 {
		m.nic = m.domain(h.home())
		return m
	}
	placed := func(n NIC) bool { return slices.Contains(nics, n.Name) && m.domain(n.Node) >= 0 }
	if nic, found := fastest(h.NICs, placed); found {
		m.nic = m.domain(nic.Node)
	}
	for _, nic := range h.NICs {
		if nic.Up && placed(nic) {
			m.chosen[m.domain(nic.Node)] = true
		}
	}
	return m
}

// all returns the CPUs of all domains.
func (m *machine) all() (cpus []int) {
	for _, d := range m.domains {
		cpus = append(cpus, d.cpus()...)
	}
	return cpus
}

// ByCore returns the CPUs of a node by core. If the machine does not report cores, each CPU is one.
func (n Node) ByCore() [][]int {
	if len(n.Cores) > 0 {
		return n.Cores
	}
	return singly(n.CPUs)
}

// singly returns every CPU by itself.
func singly(cpus []int) (units [][]int) {
	for _, cpu := range cpus {
		units = append(units, []int{cpu})
	}
	return units
}

func (m *machine) domain(node int) int {
	if node < 0 {
		return -1
	}
	return slices.IndexFunc(m.domains, func(d domain) bool { return d.id == node })
}

// homes chooses the domain of every rank.
func (m *machine) homes(devices []string) (homes []int, why []string) {
	var loose []int
	homes, why = make([]int, len(devices)), make([]string, len(devices))
	for rank, device := range devices {
		at, gpu := m.domainOf(device)
		if at < 0 {
			loose = append(loose, rank)
			continue
		}
		homes[rank], why[rank] = at, fmt.Sprintf("beside GPU %d", gpu)
	}
	order := listed(len(m.domains))
	total := 0
	for _, d := range m.domains {
		total += len(d.cores)
	}
	if m.nic > 0 {
		order[0], order[m.nic] = m.nic, 0
		slices.Sort(order[1:])
	}
	before, next := 0, 0 // cores of the domains up to this one, ranks that have a domain
	for _, at := range order {
		before += len(m.domains[at].cores)
		for ; next < len(loose) && next*total < before*len(loose); next++ {
			homes[loose[next]], why[loose[next]] = at, "by its share of the cores"
			if at == m.nic {
				why[loose[next]] = "beside the NIC"
			}
		}
	}
	return homes, why
}

// domainOf finds a GPU, or the GPU of a MIG slice.
func (m *machine) domainOf(device string) (at, index int) {
	for _, g := range m.host.GPUs {
		slice := slices.ContainsFunc(g.MIG, func(s MIG) bool { return s.UUID == device })
		if device != "" && (g.UUID == device || slice || fmt.Sprint(g.Index) == device) {
			return m.domain(g.Node), g.Index
		}
	}
	return -1, -1
}

// deal assigns cores, or hardware threads, of a domain.
func (m *machine) deal(b Bind, home, each, ranks int) ([]int, error) {
	d := &m.domains[home]
	units := d.cores
	if b.To == BindThread {
		units = singly(d.cpus())
	}
	if d.taken+each > len(units) && !b.Overload || each > len(units) {
		noun, where := "core", "the host"
		if b.To == BindThread {
			noun = "hardware thread"
		}
		if len(m.domains) > 1 {
			where = fmt.Sprintf("NUMA node %d", d.id)
		}
		return nil, fmt.Errorf("bind %s to %s each: %s has %d", Count(ranks, "rank"), Count(each, noun), where, len(units))
	}
	var cpus []int
	for range each {
		at := d.taken % len(units)
		if m.nic == home {
			at += max(0, len(units)-d.wanted)
		}
		cpus = append(cpus, units[at]...)
		d.taken++
	}
	return cpus, nil
}

// nodesOf returns the nodes of CPUs, nil if the machine has only one.
func (m *machine) nodesOf(cpus []int) []int {
	if len(m.domains) < 2 {
		return nil
	}
	var nodes []int
	for _, d := range m.domains {
		if slices.ContainsFunc(d.cpus(), func(cpu int) bool { return slices.Contains(cpus, cpu) }) {
			nodes = append(nodes, d.id)
		}
	}
	return nodes
}
