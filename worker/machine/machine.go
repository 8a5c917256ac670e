// Package machine probes the machine of a daemon (CPUs, NICs, GPUs, labels) and reports what changes during a job.
//
// What probes find is corrected by the topology file that the user wrote, and by what was reported of a move of the
// machine, which is newer than the file. A machine may get another network, or another GPU, while a job runs on it:
// Watch notices, and the daemon notifies the host that coordinates.
package machine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
	"gorun/topology/probe"
	"gorun/worker/loop"
)

const (
	// lookEvery is how often Watch looks whether the machine changed. It costs a few small files.
	lookEvery = 10 * time.Second
	// repeatNews is how often the coordinator is notified, because messages may get lost.
	repeatNews = 3
)

// Daemon is what a machine needs from its daemon.
type Daemon interface {
	// DataNIC names the NIC that carries the data of a host, "" if the user chose some.
	DataNIC(topology.Host) string
	// DataRDMA names the RDMA device that carries data where the peer has one, too; "" if there is none.
	DataRDMA() string
	// NetworkChanged drops all measurements of this host's edges.
	NetworkChanged()
	// Changed notifies the coordinator of what Host returns now.
	Changed(ctx context.Context)
}

// Config is what a machine is made from.
type Config struct {
	Job    *wire.Job
	Loop   *loop.Loop
	Out    *wire.Writer // to the launcher
	Daemon Daemon
	Seen   string // its probe.Fingerprint at some time before the job, "" if there is none
}

// HostMachine is what this host is like. The daemon's loop alone calls its methods, but for Watch and ProbeAgain.
type HostMachine struct {
	cfg        Config
	job        *wire.Job
	self       topology.Host
	facts      *facts.File // what the user knows
	placed     placed
	unreported int // how often the coordinator is still to hear of a change
}

// Open looks at the machine, and reads the topology file of the job.
func Open(ctx context.Context, cfg Config) (*HostMachine, []probe.Interface, error) {
	self, interfaces, err := probe.This(ctx, cfg.Job.VMTools)
	if err != nil {
		return nil, nil, fmt.Errorf("probe host: %w", err)
	}
	m, err := New(cfg, self)
	return m, interfaces, err
}

// New reads the topology file of the job for a machine that probes have found to be self.
func New(cfg Config, self topology.Host) (*HostMachine, error) {
	self.Name = cfg.Job.Name
	known, err := facts.Parse(cfg.Job.Topology)
	if err == nil {
		err = known.Override(&self)
	}
	if err != nil {
		return nil, fmt.Errorf("read topology file: %w", err)
	}
	return &HostMachine{cfg: cfg, job: cfg.Job, self: self, facts: known}, nil
}

// Host returns what the machine is like.
func (m *HostMachine) Host() topology.Host { return m.self }

// Facts returns the topology file.
func (m *HostMachine) Facts() *facts.File { return m.facts }

// FindDataNIC notes which NIC and which RDMA device carry data, once that is known.
func (m *HostMachine) FindDataNIC() {
	m.self.Data, m.self.DataRDMA = m.cfg.Daemon.DataNIC(m.self), m.cfg.Daemon.DataRDMA()
}

// MovedSinceFile reports whether the machine was moved or started again since the topology file was written.
func (m *HostMachine) MovedSinceFile() bool { return m.facts.Moved(m.self) }

// tell shows text to users of -v.
func (m *HostMachine) tell(text string) {
	if m.job.Verbose {
		m.cfg.Out.Write(&wire.Log{Text: text})
	}
}

// Watch looks once in a while whether interfaces or devices come, go or change, until ctx ends.
func (m *HostMachine) Watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	before := m.cfg.Seen
	if before == "" {
		before = probe.Fingerprint("/")
	}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := probe.Fingerprint("/"); now != before {
			before = now
			m.ProbeAgain(ctx, "", func() {})
		}
		m.cfg.Loop.Post(ctx, func() {
			if m.unreported > 0 {
				m.unreported--
				m.cfg.Daemon.Changed(ctx)
			}
		})
	}
}

// ProbeAgain looks at the whole machine, on the caller's goroutine, and calls then on the loop's.
func (m *HostMachine) ProbeAgain(ctx context.Context, when string, then func()) {
	begun := time.Now()
	found, _, err := probe.This(ctx, m.job.VMTools)
	m.cfg.Loop.Post(ctx, func() {
		defer then()
		if err != nil {
			m.tell(fmt.Sprintf("could not look at the machine again: %v", err))
			return
		}
		m.changedInto(ctx, found, begun, when)
	})
}

// MovedTo takes the end of a move of this machine that was observed from elsewhere, with the labels of where it is
// now, if they are known.
func (m *HostMachine) MovedTo(end *wire.Migrating) {
	if len(end.Labels) > 0 {
		m.placed = placed{labels: end.Labels, by: cmp.Or(end.By, "the end of its move"), at: time.Now()}
	} else {
		m.placed.past = true
	}
}

// WarnOfLabels warns users of labels that may be wrong after a move.
func (m *HostMachine) WarnOfLabels() {
	labels := slices.DeleteFunc(m.facts.Undated(m.self), func(label string) bool { return m.placed.labels[label] != "" })
	if len(labels) > 0 {
		m.tell(fmt.Sprintf("%s of the topology file still counts after the move: "+
			"if it is not so any more, correct the file for the next job", strings.Join(labels, ", ")))
	}
	m.warnOfPlaced()
}

// warnOfPlaced warns users of labels that came with the end of a move and may be wrong since another one.
func (m *HostMachine) warnOfPlaced() {
	if !m.placed.past {
		return
	}
	still := func(label string) bool {
		return m.self.Labels[label] == m.placed.labels[label] && m.self.LabelSources[label] == m.placed.by
	}
	labels := slices.Sorted(maps.Keys(m.placed.labels))
	labels = slices.DeleteFunc(labels, func(label string) bool { return !still(label) })
	if len(labels) > 0 {
		m.tell(fmt.Sprintf("%s still counts as %s reported it, although the machine may have been moved once more: "+
			"if it is not so any more, correct the topology file for the next job",
			strings.Join(labels, ", "), m.placed.by))
	}
}

// changedInto takes the result of a probe that began at a time, and notifies the coordinator if anything changed. Ranks
// stay where they are. The topology file still counts, except for devices that are gone.
func (m *HostMachine) changedInto(ctx context.Context, found topology.Host, begun time.Time, when string) {
	found.Name, found.Data = m.job.Name, m.cfg.Daemon.DataNIC(found)
	again, own := m.placed.look(found.Session, begun), found
	missing := m.facts.Apply(&found)
	m.placed.apply(&found, own)
	m.keepLabels(&found)
	if again {
		defer m.warnOfPlaced()
	}
	news := m.news(found)
	if len(news) == 0 {
		return
	}
	m.tell(when + strings.Join(news, ", "))
	for _, err := range missing {
		m.tell(fmt.Sprintf("the topology file does not fit any more: %v", err))
	}
	// Not the CPUs that may be used: this process may have bound itself to a few.
	m.self.NICs, m.self.RDMA, m.self.GPUs, m.self.Nodes = found.NICs, found.RDMA, found.GPUs, found.Nodes
	m.self.Labels, m.self.LabelSources, m.self.Data = found.Labels, found.LabelSources, found.Data
	m.self.DataRDMA = m.cfg.Daemon.DataRDMA()
	m.self.Session = cmp.Or(found.Session, m.self.Session)
	m.unreported = repeatNews
	m.cfg.Daemon.Changed(ctx)
}

// keepLabels keeps labels that the probe did not find again: VMware's programs may not answer right after a move. It
// keeps none if the machine has moved since the topology file was written: then the former labels may be wrong.
func (m *HostMachine) keepLabels(found *topology.Host) {
	labels, sources := map[string]string{}, map[string]string{}
	if !m.facts.Moved(*found) {
		maps.Copy(labels, m.self.Labels)
		maps.Copy(sources, m.self.LabelSources)
	}
	maps.Copy(labels, found.Labels)
	maps.Copy(sources, found.LabelSources)
	found.Labels, found.LabelSources = labels, sources
}

// news describes what is new about this machine.
func (m *HostMachine) news(found topology.Host) (news []string) {
	if m.self.Session != "" && found.Session != "" && found.Session != m.self.Session {
		news = append(news, "its session is another one")
	}
	if text := changes(m.self.NICs, found.NICs); text != "" {
		news = append(news, text)
		m.cfg.Daemon.NetworkChanged()
	}
	if found.Data != m.self.Data && found.Data != "" {
		news = append(news, "data goes over "+found.Data)
		m.cfg.Daemon.NetworkChanged()
	}
	if text := relabeled(m.self.Labels, found.Labels); text != "" {
		news = append(news, text)
	}
	if text := resized(m.self.Nodes, found.Nodes); text != "" {
		news = append(news, text+" (ranks stay bound as they are)")
	}
	return append(news, otherGPUs(m.self.GPUs, found.GPUs)...)
}

// otherGPUs describes which GPUs are new, and which are gone.
func otherGPUs(before, after []topology.GPU) (news []string) {
	in := func(list []topology.GPU, g topology.GPU) bool {
		return slices.ContainsFunc(list, func(other topology.GPU) bool { return other.PCI == g.PCI && other.UUID == g.UUID })
	}
	for _, g := range after {
		if !in(before, g) {
			news = append(news, fmt.Sprintf("GPU %s is new", g.Name))
		}
	}
	for _, g := range before {
		if !in(after, g) {
			news = append(news, fmt.Sprintf("GPU %s is gone", g.Name))
		}
	}
	return news
}

// placed is where this machine is since a move, and who reported that. It is newer than the topology file.
type placed struct {
	labels  map[string]string
	by      string
	at      time.Time // of the report
	session string    // of the machine there, "" until a probe has found it
	past    bool      // it may have been moved once more since: what probes find is newer
}

// look takes the session that a probe found, which began at a time, and reports whether the machine
// may have been moved once more.
func (p *placed) look(session string, begun time.Time) (again bool) {
	switch {
	case len(p.labels) == 0 || p.past || session == "" || begun.Before(p.at):
	case p.session == "":
		p.session = session
	case p.session != session:
		p.past, again = true, true
	}
	return again
}

// apply gives a host the labels of its new place, or the labels of own if the machine may have moved once more.
func (p placed) apply(h *topology.Host, own topology.Host) {
	if len(p.labels) == 0 {
		return
	}
	labels, sources := map[string]string{}, map[string]string{} // new ones: the old may be shared
	maps.Copy(labels, h.Labels)
	maps.Copy(sources, h.LabelSources)
	for label, value := range p.labels {
		labels[label], sources[label] = value, p.by
		if p.past && own.Labels[label] != "" {
			labels[label], sources[label] = own.Labels[label], own.LabelSources[label]
		}
	}
	h.Labels, h.LabelSources = labels, sources
}

// relabeled describes how the labels of a host differ from before, "" if they do not.
func relabeled(before, after map[string]string) string {
	if maps.Equal(before, after) {
		return ""
	}
	var out []string
	for _, label := range slices.Sorted(maps.Keys(after)) {
		if was := before[label]; was == "" {
			out = append(out, fmt.Sprintf("%s is %s", label, after[label]))
		} else if was != after[label] {
			out = append(out, fmt.Sprintf("%s is %s, not %s", label, after[label], was))
		}
	}
	for _, label := range slices.Sorted(maps.Keys(before)) {
		if after[label] == "" {
			out = append(out, fmt.Sprintf("%s is not known, was %s", label, before[label]))
		}
	}
	return strings.Join(out, ", ")
}

// resized describes which NUMA nodes have other CPUs, or more or less memory, than before, "" if none has.
func resized(before, after []topology.Node) string {
	var out []string
	for _, now := range after {
		at := slices.IndexFunc(before, func(n topology.Node) bool { return n.ID == now.ID })
		if at < 0 {
			out = append(out, fmt.Sprintf("NUMA node %d is new", now.ID))
			continue
		}
		if old := before[at]; !slices.Equal(old.CPUs, now.CPUs) {
			out = append(out, fmt.Sprintf("NUMA node %d has %s, not %d", now.ID, topology.Count(len(now.CPUs), "CPU"),
				len(old.CPUs)))
		}
		if old := before[at].MemBytes; old > 0 && now.MemBytes > 0 && old>>20 != now.MemBytes>>20 {
			out = append(out, fmt.Sprintf("NUMA node %d has %d MiB of memory, not %d", now.ID, now.MemBytes>>20, old>>20))
		}
	}
	for _, old := range before {
		if !slices.ContainsFunc(after, func(n topology.Node) bool { return n.ID == old.ID }) {
			out = append(out, fmt.Sprintf("NUMA node %d is gone", old.ID))
		}
	}
	return strings.Join(out, ", ")
}

// changes describes how the network of a host differs from before, "" if it does not.
func changes(before, after []topology.NIC) string {
	find := func(list []topology.NIC, name string) *topology.NIC {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
		return nil
	}
	var out []string
	for _, old := range before {
		now := find(after, old.Name)
		if now != nil {
			old.Given = now.Given // its source is no change of the speed
		}
		switch {
		case now == nil:
			out = append(out, old.Name+" is gone")
		case reflect.DeepEqual(old, *now):
		case old.Up != now.Up:
			out = append(out, fmt.Sprintf("%s is %s", old.Name, map[bool]string{true: "up", false: "down"}[now.Up]))
		case old.Speed != now.Speed:
			out = append(out, fmt.Sprintf("%s has %d Mbit/s, not %d", old.Name, now.Speed, old.Speed))
		case old.MTU != now.MTU:
			out = append(out, fmt.Sprintf("%s has an MTU of %d, not %d", old.Name, now.MTU, old.MTU))
		case old.Node != now.Node:
			out = append(out, fmt.Sprintf("%s is on NUMA node %d, not %d", old.Name, now.Node, old.Node))
		case len(old.Addrs) > 0 && len(now.Addrs) == 0:
			out = append(out, old.Name+" has no address")
		case !slices.Equal(old.Addrs, now.Addrs):
			out = append(out, fmt.Sprintf("%s has the addresses %s", old.Name, strings.Join(now.Addrs, " ")))
		default:
			out = append(out, old.Name+" is another device")
		}
	}
	for _, now := range after {
		if find(before, now.Name) == nil {
			out = append(out, now.Name+" is new")
		}
	}
	return strings.Join(out, ", ")
}
