package survey

import (
	"cmp"
	"context"
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

// try tries all but the bandwidth of a path. Where no connection opens, others of the end's addresses may do.
func try(from, to *agent, w doctor.Path, end doctor.Answer) (t doctor.Tried) {
	ask := func(a *agent, bytes int, addrs ...string) measure.Answer {
		answer, err := a.ask(measure.Order{Host: w.Pair.To, Addrs: addrs, Bytes: bytes})
		t.Err = cmp.Or(t.Err, err)
		return answer
	}
	for _, addr := range slices.Compact(append([]netip.Addr{w.ToAddr}, topology.Addresses(end.Facts.Host, nil, end.At)...)) {
		why := ask(from, 0, to.at(addr)).Error
		if addr == w.ToAddr {
			t.TCP = strings.TrimSpace(why[strings.LastIndex(why, ": ")+1:])
		} else if why == "" {
			t.Elsewhere = end.Facts.Host.NICAt(addr)
		}
		if why == "" {
			break
		}
	}
	t.UDP = ask(from, w.Bytes, net.JoinHostPort(w.ToAddr.String(), to.udp)).Error
	came := ask(to, w.Bytes)
	t.Arrive, t.Lost = came.Arrive, came.Lost
	return t
}
