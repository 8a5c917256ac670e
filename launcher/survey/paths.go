package survey

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"gorun/launcher/talk"
	"gorun/topology"
	"gorun/topology/doctor"
	"gorun/topology/measure"
)

// tryPaths has hosts send each other what a job sends, a host on one path at a time: over each path it opens
// connections and sends packets to ports that the kernel chooses, as a job's are, and then loads the paths that are open.
func tryPaths(ctx context.Context, d talk.Dialer, all []doctor.Answer, nics []string, paths []doctor.Path) []doctor.Tried {
	tried, at := make([]doctor.Tried, len(paths)), map[topology.Pair]int{}
	if len(paths) == 0 {
		return nil
	}
	var pairs []topology.Pair
	for i, w := range paths {
		at[w.Pair], pairs = i, append(pairs, w.Pair)
	}
	var hosts []topology.Host
	for _, a := range all {
		hosts = append(hosts, a.Facts.Host)
	}
	agents, end, _ := startAgents(ctx, d, hosts, nics, func() {}) // each has its error
	defer end()
	for _, round := range topology.Rounds(pairs) {
		var trying sync.WaitGroup
		for _, pair := range round {
			trying.Go(func() {
				from, to, t := &agents[pair.From], &agents[pair.To], &tried[at[pair]]
				if t.Err = cmp.Or(from.err, to.err); t.Err == nil {
					*t = try(from, to, paths[at[pair]], all[pair.To])
				}
				if cause := context.Cause(ctx); cause != nil {
					t.Err = cause
				}
			})
		}
		trying.Wait()
	}
	open := slices.DeleteFunc(pairs, func(p topology.Pair) bool { return !tried[at[p]].Open(paths[at[p]]) })
	edges, err := askRounds(ctx, agents, hosts, open, 2*probing, "", func(string) {}) // one that carries too little to tell has no bandwidth
	for _, p := range open {
		tried[at[p]].Err = err
	}
	for _, e := range edges {
		tried[at[topology.Pair{From: e.From, To: e.To}]].Bandwidth = e.Bandwidth
	}
	return tried
}

// at returns where the agent accepts connections at an address of its host.
func (a *agent) at(addr netip.Addr) string { return net.JoinHostPort(addr.String(), a.tcp) }

// try tries all but the bandwidth of a path.
func try(from, to *agent, w doctor.Path, end doctor.Answer) (t doctor.Tried) {
	connect := func(addr netip.Addr) (why string, err error) {
		answer, err := from.ask(measure.Order{Host: w.Pair.To, Addrs: []string{to.at(addr)}})
		return strings.TrimSpace(answer.Error[strings.LastIndex(answer.Error, ": ")+1:]), err
	}
	if t.TCP, t.Err = connect(w.ToAddr); t.TCP != "" {
		for _, addr := range topology.Addresses(end.Facts.Host, nil, end.At) { // these are others, if the user chose
			if why, err := connect(addr); why == "" && err == nil {
				t.Elsewhere = end.Facts.Host.NICAt(addr)
				break
			}
		}
	}
	sent, err := from.ask(measure.Order{Host: w.Pair.To, Addrs: []string{net.JoinHostPort(w.ToAddr.String(), to.udp)}, Bytes: w.Bytes})
	t.Err = errors.Join(t.Err, err)
	came, err := to.ask(measure.Order{Host: w.Pair.To, Bytes: w.Bytes})
	t.Err = errors.Join(t.Err, err)
	t.UDP, t.Arrive, t.Lost = sent.Error, came.Arrive, came.Lost
	return t
}
