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
	loop.Component
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
			m.cfg.Tell("could not look at the machine again: %v", err)
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
		m.cfg.Tell("%s of the topology file still counts after the move: "+
			"if it is not so any more, correct the file for the next job", strings.Join(labels, ", "))
	}
}

// changedInto takes the result of a probe that began at a time, and notifies the coordinator if anything changed. Ranks
// stay where they are. The topology file still counts, except for devices that are gone.
func (m *HostMachine) changedInto(ctx context.Context, found topology.Host, begun time.Time, when string) {
	found.Name, found.Data = m.job.Name, m.cfg.Daemon.DataNIC(found)
	m.placed.look(found.Session, begun)
	own := found
	missing := m.facts.Apply(&found)
	m.placed.apply(&found, own)
	m.keepLabels(&found)
	news := m.news(found)
	if len(news) == 0 {
		return
	}
	m.cfg.Tell("%s%s", when, strings.Join(news, ", "))
	for _, err := range missing {
		m.cfg.Tell("the topology file does not fit any more: %v", err)
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
	before, others := partsOf(m.self)
	after, now := partsOf(found)
	if nics := changes(before, after); len(nics) > 0 {
		news = append(news, nics...)
		m.cfg.Daemon.NetworkChanged()
	}
	if found.Data != m.self.Data && found.Data != "" {
		news = append(news, "data goes over "+found.Data)
		m.cfg.Daemon.NetworkChanged()
	}
	if text := relabeled(m.self.Labels, found.Labels); text != "" {
		news = append(news, text)
	}
	return append(news, changes(others, now)...)
}

// partsOf returns the interfaces of a machine, and its NUMA nodes and GPUs, by names for users, with what matters of them.
func partsOf(h topology.Host) (nics, others map[string]any) {
	nics, others = map[string]any{}, map[string]any{}
	for _, n := range h.NICs {
		n.Given = false // the source of a speed is no change of it
		nics[n.Name] = n
	}
	for _, n := range h.Nodes {
		others[fmt.Sprintf("NUMA node %d", n.ID)] = fmt.Sprint(n.CPUs, n.MemBytes>>20)
	}
	for _, g := range h.GPUs {
		others[fmt.Sprintf("GPU %s (%s)", g.Name, g.PCI)] = g.UUID
	}
	return nics, others
}

// changes describes which parts of a machine are gone, new, or not what they were.
func changes(before, after map[string]any) (news []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now, there := after[name]; !there {
			news = append(news, name+" is gone")
		} else if !reflect.DeepEqual(before[name], now) {
			news = append(news, name+" has changed")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, there := before[name]; !there {
			news = append(news, name+" is new")
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

// look takes the session that a probe found, which began at a time.
func (p *placed) look(session string, begun time.Time) {
	switch {
	case len(p.labels) == 0 || p.past || session == "" || begun.Before(p.at):
	case p.session == "":
		p.session = session
	case p.session != session:
		p.past = true
	}
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
