package worker

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
	"gorun/topology"
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
	for before := probe.Fingerprint("/"); ; {
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
	found, err := probe.Probe(ctx, "/")
	if err == nil {
		found.Name = d.job.Name
		err = d.facts.Override(&found)
	}
	d.post(ctx, func() {
		defer then()
		if err != nil {
			d.tell(fmt.Sprintf("could not look at the machine again: %v", err))
			return
		}
		d.changedInto(ctx, found, when)
	})
}

// sameNetwork reports whether a host has the interfaces that it said it has.
func sameNetwork(hosts []topology.Host, ids []int, m *wire.Facts) bool {
	at, member := slices.BinarySearch(ids, m.From)
	return !member || at >= len(hosts) || reflect.DeepEqual(hosts[at].NICs, m.Host.NICs)
}

// changedInto takes what this machine is now, and tells the host that coordinates. Ranks stay where they are.
func (d *daemon) changedInto(ctx context.Context, found topology.Host, when string) {
	var news []string
	if text := changes(d.self.NICs, found.NICs); text != "" {
		news = append(news, text)
		d.edges.forget()
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
	if len(news) == 0 {
		return
	}
	d.tell(when + strings.Join(news, ", "))
	d.self.NICs, d.self.RDMA, d.self.GPUs = found.NICs, found.RDMA, found.GPUs
	d.unsaid = repeatNews
	d.step(ctx, epoch.Event{Self: &d.self})
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
		case !reflect.DeepEqual(old.Addrs, now.Addrs):
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
