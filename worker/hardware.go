package worker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
	"gorun/topology/probe"
)

// A machine may get another network, or another GPU, while a job runs on it.

const (
	// lookEvery is how often one looks whether the machine changed. It costs a few small files.
	lookEvery = 10 * time.Second
	// repeatNews is how often the coordinator is told, because messages may get lost.
	repeatNews = 3
)

// watchHardware looks once in a while whether interfaces or devices come, go or change.
func (d *daemon) watchHardware(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	before := d.cfg.Seen
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
			d.probeAgain(ctx, "", func() {})
		}
		d.post(ctx, func() {
			if d.unsaid > 0 {
				d.unsaid--
				d.step(ctx, epoch.Event{Self: &d.self})
			}
		})
	}
}

// probeAgain looks at the whole machine, on the caller's goroutine, and calls then on the loop's.
func (d *daemon) probeAgain(ctx context.Context, when string, then func()) {
	begun := time.Now()
	found, _, err := probe.This(ctx, d.job.VMTools)
	d.post(ctx, func() {
		defer then()
		if err != nil {
			d.tell(fmt.Sprintf("could not look at the machine again: %v", err))
			return
		}
		d.changedInto(ctx, found, begun, when)
	})
}

// learn takes another file of facts, which the launcher has found to be one, and looks at the machine again in its light.
func (d *daemon) learn(ctx context.Context, text []byte) {
	known, err := facts.Parse(text)
	if err != nil {
		d.out.Write(&wire.Log{Text: fmt.Sprintf("the topology file stays as it was: %v", err)})
		return
	}
	d.facts, d.placed = known, placed{} // a move that is told from now on is newer than the file
	d.loop.Go(func() { d.probeAgain(ctx, "", func() {}) })
}

// sameNetwork reports whether a host has the interfaces that it said it has, and data goes over the same.
func sameNetwork(hosts []topology.Host, ids []int, m *wire.Facts) bool {
	at, member := slices.BinarySearch(ids, m.From)
	return !member || at >= len(hosts) || hosts[at].Data == m.Host.Data && reflect.DeepEqual(hosts[at].NICs, m.Host.NICs)
}

// placed is where this machine is since a move, and who told that. It is newer than the topology file, until that is read again.
type placed struct {
	labels  map[string]string
	by      string
	at      time.Time // when that was told
	session string    // of the machine there, "" as long as nobody who looked at it since then told one
	past    bool      // it may have been moved once more since: what it tells itself is newer
}

// look takes the session that the machine was found to have by somebody who began to look then, and reports whether it
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

// apply has a host be there, of which the machine itself tells what own says.
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

// changedInto takes what this machine was found to be by somebody who began to look then, and tells the host that coordinates.
// Ranks stay where they are. What the topology file says of a device that is gone counts no more, and all else that it says
// still does.
func (d *daemon) changedInto(ctx context.Context, found topology.Host, begun time.Time, when string) {
	found.Name, found.Data = d.job.Name, d.dataNIC(found)
	again, own := d.placed.look(found.Session, begun), found
	asBefore := own // but for what another file says
	asBefore.NICs = slices.Clone(own.NICs)
	d.applied.Apply(&asBefore)
	missing := d.facts.Apply(&found)
	corrected := d.applied != d.facts
	d.applied = d.facts
	d.placed.apply(&found, own)
	// A label that nobody tells any more stays: VMware's programs may not answer right after a move. If they do, and the
	// file speaks of another session, its labels are of where the machine was; and those of a former file are wrong.
	labels, sources := map[string]string{}, map[string]string{}
	if !corrected && !d.facts.Moved(found) {
		maps.Copy(labels, d.self.Labels)
		maps.Copy(sources, d.self.LabelSources)
	}
	maps.Copy(labels, found.Labels)
	maps.Copy(sources, found.LabelSources)
	if again {
		defer d.doubtPlaced()
	}

	var news []string
	if d.self.Session != "" && found.Session != "" && found.Session != d.self.Session {
		news = append(news, "its session is another one")
	}
	var byFile []string
	if text := changes(d.self.NICs, asBefore.NICs); text != "" {
		news = append(news, text)
		d.tune.ForgetOwn()
	}
	if found.Data != d.self.Data && found.Data != "" {
		news = append(news, "data goes over "+found.Data)
		d.tune.ForgetOwn()
	}
	if text := changes(asBefore.NICs, found.NICs); text != "" {
		byFile = append(byFile, text)
		d.tune.ForgetOwn()
	}
	if text := relabeled(d.self.Labels, labels); text != "" && corrected && len(d.placed.labels) == 0 {
		byFile = append(byFile, text)
	} else if text != "" {
		news = append(news, text)
	}
	if text := resized(d.self.Nodes, found.Nodes); text != "" {
		news = append(news, text+" (ranks stay bound as they are)")
	}
	for _, g := range found.GPUs {
		if !slices.ContainsFunc(d.self.GPUs, func(old topology.GPU) bool { return old.PCI == g.PCI && old.UUID == g.UUID }) {
			news = append(news, fmt.Sprintf("GPU %s is new", g.Name))
		}
	}
	for _, g := range d.self.GPUs {
		if !slices.ContainsFunc(found.GPUs, func(now topology.GPU) bool { return now.PCI == g.PCI && now.UUID == g.UUID }) {
			news = append(news, fmt.Sprintf("GPU %s is gone", g.Name))
		}
	}
	if len(news) == 0 && !corrected {
		return
	}
	if len(news) > 0 {
		d.tell(when + strings.Join(news, ", "))
	}
	if len(byFile) > 0 {
		d.tell("by the topology file " + strings.Join(byFile, ", "))
	}
	for _, err := range missing {
		d.tell(fmt.Sprintf("the topology file does not fit any more: %v", err))
	}
	// Not the CPUs that may be used: this process may have bound itself to a few.
	d.self.NICs, d.self.RDMA, d.self.GPUs, d.self.Nodes, d.self.Labels = found.NICs, found.RDMA, found.GPUs, found.Nodes, labels
	d.self.LabelSources, d.self.Data = sources, found.Data
	d.self.Session = cmp.Or(found.Session, d.self.Session)
	d.choose()
	d.unsaid = repeatNews
	d.step(ctx, epoch.Event{Self: &d.self})
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
			out = append(out, fmt.Sprintf("NUMA node %d has %s, not %d", now.ID, topology.Count(len(now.CPUs), "CPU"), len(old.CPUs)))
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
			old.Given = now.Given // who says it is no change of what it is
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
