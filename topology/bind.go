package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// BindTo is how much of a machine a rank may run on.
type BindTo string

// What ranks can be bound to. The empty BindTo is BindNone.
const (
	BindNone   BindTo = "none"
	BindThread BindTo = "hwthread"
	BindCore   BindTo = "core"
	BindNUMA   BindTo = "numa"
	BindSocket BindTo = "socket"
)

// Bind is what the user wants.
type Bind struct {
	To       BindTo `msgpack:"to"`
	Each     int    `msgpack:"each"`     // cores, or hardware threads, of a rank; 0 for one
	Overload bool   `msgpack:"overload"` // more ranks than cores are no mistake
	// NICs are the interfaces that data goes over, if the user chose some; none for the one of which that is known.
	NICs []string `msgpack:"nics"`
}

// mostCores bounds what a rank may ask for.
const mostCores = 1 << 12

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
		case err == nil && n >= 1 && n <= mostCores && (b.To == BindCore || b.To == BindThread):
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
	Nodes []int  // NUMA nodes of these CPUs, from which its memory should be; none if there is only one
	Why   string // of the choice of the node
}

// Place returns where the ranks of a host run. devices[i] is the GPU of local rank i, by index or UUID, or "".
//
// A rank goes to the NUMA node of its GPU. Ranks without one are spread over the nodes in proportion to
// their cores, the node of the NIC that data goes over first. Cores are dealt in their order; of the NIC's node the last
// ones, so that the first are left to the engine and the NIC's interrupts.
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
			bound.CPUs = slices.Concat(d.cores...)
		case BindSocket:
			for _, other := range m.domains {
				if other.socket == d.socket {
					bound.CPUs = append(bound.CPUs, slices.Concat(other.cores...)...)
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

// Beside returns where the engine's threads run when the ranks are bound: on the NUMA node of the NIC, or on those of all
// NICs that the user chose. Of the cores there that no rank has to itself it takes the first half, and leaves the others
// to what ranks start; if there is none it runs anywhere on the node. It is nil, for anywhere, if it is not known where
// the NIC is, or there is nothing to choose from.
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
		all = append(all, slices.Concat(d.cores...)...)
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

// Along returns which of the engine's CPUs are on the NUMA node of each rail's NIC: the threads of a rail's streams run
// there, and the kernel's buffers for what they send lie there. An engine without CPUs of its own has all that there are. It is
// nil for a rail of which that is not known, and altogether if there is nothing to choose: the NICs are on one node.
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

// Spare returns, for each rank, where the processes run that it starts, such as those that load its data: on cores
// that neither a rank nor the engine has, on the rank's NUMA nodes if there are such, or else on any. It is nil for a rank
// whose processes stay where it is itself.
func (b Bind) Spare(h Host, ranks []Binding, engine []int) [][]int {
	spare := make([][]int, len(ranks))
	if !b.exclusive() || len(engine) == 0 { // an engine that runs anywhere leaves nothing
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

// exclusive reports whether ranks have CPUs to themselves.
func (b Bind) exclusive() bool { return b.To == BindCore || b.To == BindThread }

// unowned returns the cores of a domain, or what is left of them, that no rank has.
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

// domain is a NUMA node with CPUs that may be used, or the whole machine if it has no nodes.
type domain struct {
	id, socket int
	cores      [][]int // each with its hardware threads
	// How many cores, or hardware threads, ranks want, and how many of them they have.
	wanted, taken int
}

// machine is what Place looks at.
type machine struct {
	host    Host
	domains []domain
	nic     int          // the domain of the NIC that data goes over, or else of the fastest; -1 if it is not known
	chosen  map[int]bool // the domains of the NICs that the user chose
}

// newMachine looks at the NICs of these names, if there are any names.
func newMachine(h Host, nics []string) *machine {
	m := &machine{host: h, nic: -1, chosen: map[int]bool{}}
	usable := func(cpu int) bool { return len(h.Usable) == 0 || slices.Contains(h.Usable, cpu) }
	seen := map[int]bool{}
	for _, n := range h.Nodes {
		d := domain{id: n.ID, socket: n.Socket}
		if n.Socket < 0 { // unknown: no two nodes are taken for one socket
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
		d := domain{id: -1}
		for _, cpu := range h.Usable {
			d.cores = append(d.cores, []int{cpu})
		}
		m.domains = append(m.domains, d)
	}
	if len(nics) == 0 {
		if nic, found := fastest(h.carriers(), anything); found {
			m.nic = m.domain(nic.Node)
		}
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
		cpus = append(cpus, slices.Concat(d.cores...)...)
	}
	return cpus
}

// ByCore returns the CPUs of a node by core; each is one where the machine does not tell.
func (n Node) ByCore() [][]int {
	if len(n.Cores) > 0 {
		return n.Cores
	}
	var cores [][]int
	for _, cpu := range n.CPUs {
		cores = append(cores, []int{cpu})
	}
	return cores
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
	order := make([]int, len(m.domains))
	total := 0
	for i := range order {
		order[i] = i
		total += len(m.domains[i].cores)
	}
	if m.nic > 0 {
		order[0], order[m.nic] = m.nic, 0
		slices.Sort(order[1:])
	}
	before, next := 0, 0 // cores of the domains up to this one, ranks that have a home
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

// domainOf finds a GPU, or the GPU that a MIG slice is a part of.
func (m *machine) domainOf(device string) (at, index int) {
	for _, g := range m.host.GPUs {
		slice := slices.ContainsFunc(g.MIG, func(s MIG) bool { return s.UUID == device })
		if device != "" && (g.UUID == device || slice || fmt.Sprint(g.Index) == device) {
			return m.domain(g.Node), g.Index
		}
	}
	return -1, -1
}

// deal takes cores, or hardware threads, of a domain.
func (m *machine) deal(b Bind, home, each, ranks int) ([]int, error) {
	d := &m.domains[home]
	units := d.cores
	if b.To == BindThread {
		units = nil
		for _, core := range d.cores {
			for _, cpu := range core {
				units = append(units, []int{cpu})
			}
		}
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

// nodesOf returns the nodes of CPUs, none if the machine has one only.
func (m *machine) nodesOf(cpus []int) []int {
	if len(m.domains) < 2 {
		return nil
	}
	var nodes []int
	for _, d := range m.domains {
		if slices.ContainsFunc(d.cores, func(core []int) bool {
			return slices.ContainsFunc(core, func(cpu int) bool { return slices.Contains(cpus, cpu) })
		}) {
			nodes = append(nodes, d.id)
		}
	}
	return nodes
}
