package survey

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/topology"
	"gorun/topology/measure"
)

// probing is how long an edge is loaded to measure its bandwidth.
const probing = 200 * time.Millisecond

// agent is a measuring process that the launcher has started on a host.
type agent struct {
	daemon *talk.Daemon
	orders *json.Encoder
	reply  *json.Decoder
	addrs  []string
	tcp    string      // its port
	udp    string      // and that for packets
	forget func() bool // stops the watch over its time limit
	err    error       // why it did not start
}

// Measure measures round-trip times between all hosts and then bandwidths on the edges that matter, over the NICs of
// the list, if it names some. An edge that cannot be measured, because of a firewall for example, is marked as blocked,
// with a warning.
func Measure(ctx context.Context, d talk.Dialer, hosts []topology.Host, nics []string, patience time.Duration, warn func(string)) (edges []topology.Edge, err error) {
	stopped := ctx
	defer func() {
		if cause := context.Cause(stopped); err != nil && cause != nil {
			edges, err = nil, cause // Ctrl-C is not the hosts' fault
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, patience+time.Duration(len(hosts)*len(hosts)*max(1, len(Rails(hosts, nics))))*probing, errors.New("the measurement takes too long"))
	defer cancel()
	agents, end, err := startAgents(ctx, d, hosts, nics, cancel)
	defer end()
	if err != nil {
		return nil, err
	}
	var pairs []topology.Pair
	for from := range hosts {
		for to := range from {
			pairs = append(pairs, topology.Pair{From: from, To: to})
		}
	}
	near, err := askRounds(ctx, agents, hosts, pairs, 0, "", warn)
	if err != nil {
		return nil, err
	}
	worth := reached(topology.Worth(topology.OnlyNICs(hosts, nics), near), near)
	rails := Rails(hosts, nics)
	if len(rails) < 2 {
		wide, err := askRounds(ctx, agents, hosts, worth, probing, "", warn)
		return merged(near, wide), err
	}
	edges = near
	for _, rail := range rails {
		wide, err := askRounds(ctx, agents, hosts, worth, probing, rail, warn)
		if err != nil {
			return nil, err
		}
		edges = append(edges, wide...)
	}
	return edges, nil
}

// LackNICs is an error that names all hosts with none of the NICs to measure over, nil if there are none.
func LackNICs(hosts []topology.Host, nics []string) error {
	var failed []*failure.HostError
	for _, host := range topology.WithoutNICs(hosts, nics) {
		failed = append(failed, &failure.HostError{Host: host, Step: "measure", Err: fmt.Errorf("none of %s is up", strings.Join(nics, ",")),
			Hint: "--network-interfaces takes names, drivers and networks; gorun topo -H " + host + " shows what it has", Code: failure.ExitUsage})
	}
	return failure.OfHosts(len(hosts), failed)
}

// reached returns the pairs whose hosts have answered each other, so that Measure does not wait twice for the others.
func reached(pairs []topology.Pair, near []topology.Edge) []topology.Pair {
	answered := map[topology.Pair]bool{}
	for _, e := range near {
		if e.Blocked {
			continue
		}
		answered[topology.Pair{From: e.From, To: e.To}], answered[topology.Pair{From: e.To, To: e.From}] = true, true
	}
	return slices.DeleteFunc(pairs, func(p topology.Pair) bool { return !answered[p] })
}

// Rails returns the networks in which all hosts have NICs that the user named.
func Rails(hosts []topology.Host, nics []string) []string {
	if len(nics) == 0 {
		return nil
	}
	return topology.Rails(topology.OnlyNICs(hosts, nics))
}

// on returns the addresses that are in a network, all if it is "".
func on(rail string, addrs []string) (there []string) {
	network, err := netip.ParsePrefix(rail)
	for _, s := range addrs {
		if a, wrong := netip.ParseAddrPort(s); err != nil || wrong == nil && network.Contains(a.Addr()) {
			there = append(there, s)
		}
	}
	return there
}

// merged returns both lists as one, each edge once: a later measurement has the bandwidth too.
func merged(first, later []topology.Edge) []topology.Edge {
	at := map[topology.Pair]int{}
	for i, e := range first {
		at[topology.Pair{From: e.From, To: e.To}] = i
	}
	for _, e := range later {
		i, known := at[topology.Pair{From: e.From, To: e.To}]
		if !known {
			first = append(first, e)
			continue
		}
		if e.RTT == 0 {
			e.RTT = first[i].RTT
		}
		first[i] = e
	}
	return first
}

// startAgents starts an agent on every host, and calls failed where that fails. end ends them all.
func startAgents(ctx context.Context, d talk.Dialer, hosts []topology.Host, nics []string, failed func()) (agents []agent, end func(), err error) {
	agents = make([]agent, len(hosts))
	end = func() {
		for _, a := range agents {
			if a.daemon != nil {
				a.daemon.In.Close() // it ends
				a.daemon.Wait()
				a.forget()
				a.daemon.Close()
			}
		}
	}
	secret := make([]byte, 32)
	rand.Read(secret)           // never fails
	var starting errgroup.Group // without a context of its own, which would end the agents when all have started
	for i, h := range hosts {
		starting.Go(func() (err error) {
			if agents[i], err = startAgent(ctx, d, h, nics, measure.Order{Secret: secret, Host: i}); err != nil {
				agents[i].err = err
				failed()
			}
			return err
		})
	}
	return agents, end, starting.Wait()
}

// startAgent starts an agent, which runs no longer than ctx.
func startAgent(ctx context.Context, d talk.Dialer, h topology.Host, nics []string, me measure.Order) (agent, error) {
	daemon, err := d.Dial(ctx, h.Name)
	if err != nil {
		return agent{}, err
	}
	a := agent{daemon: daemon, forget: context.AfterFunc(ctx, func() { daemon.Close() }), orders: json.NewEncoder(daemon.In), reply: json.NewDecoder(io.LimitReader(daemon.Out, mostFacts))}
	var where measure.Answer
	if err := errors.Join(a.orders.Encode(me), a.reply.Decode(&where)); err != nil {
		return a, &failure.HostError{Host: h.Name, Step: "measure", Err: err, Code: failure.ExitTransport}
	}
	a.tcp, a.udp = strconv.Itoa(where.Port), strconv.Itoa(where.UDP)
	hint, _ := netip.ParseAddr(daemon.LocalIP) // the address at which a job would begin, too
	for _, addr := range topology.Addresses(h, nics, hint) {
		a.addrs = append(a.addrs, a.at(addr))
	}
	return a, nil
}

// ask has the agent carry out an order. Its answer may name an error of its own.
func (a *agent) ask(order measure.Order) (answer measure.Answer, err error) {
	err = errors.Join(a.orders.Encode(order), a.reply.Decode(&answer))
	if errors.Is(err, io.EOF) { // it ended, and may have printed why
		if said, ended := a.daemon.Wait(); said != "" {
			err = errors.New(failure.LastLine(said))
		} else {
			err = errors.Join(err, ended)
		}
	}
	return answer, err
}

// askRounds measures pairs in rounds, a host in one pair at a time, over one network if it is not "". If a path cannot
// be measured, it warns and marks the edge, unless that concerns all edges.
func askRounds(ctx context.Context, agents []agent, hosts []topology.Host, pairs []topology.Pair, sending time.Duration, rail string, warn func(string)) ([]topology.Edge, error) {
	var edges []topology.Edge
	var failed []error
	for _, round := range topology.Rounds(pairs) {
		found, lacks := make([]topology.Edge, len(round)), make([]error, len(round))
		var asking errgroup.Group
		for i, pair := range round {
			asking.Go(func() error {
				from, to := agents[pair.From], agents[pair.To]
				answer, err := from.ask(measure.Order{Host: pair.To, Addrs: on(rail, to.addrs), Sending: sending})
				if err == nil && answer.Error != "" {
					lacks[i] = &failure.HostError{Host: hosts[pair.From].Name, Step: "measure the path to " + hosts[pair.To].Name, Err: errors.New(answer.Error), Code: failure.ExitTransport}
					return nil
				}
				if err != nil {
					return &failure.HostError{Host: hosts[pair.From].Name, Step: "measure the path to " + hosts[pair.To].Name, Err: err, Code: failure.ExitTransport}
				}
				found[i] = topology.Edge{From: pair.From, To: pair.To, RTT: answer.RTT, Bandwidth: answer.Bandwidth, Rail: rail}
				return nil
			})
		}
		if err := asking.Wait(); err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		for i, lack := range lacks {
			if lack != nil {
				failed = append(failed, lack)
				found[i] = topology.Edge{From: round[i].From, To: round[i].To, Blocked: true, Rail: rail}
			}
			edges = append(edges, found[i])
		}
	}
	if len(failed) > 0 && len(failed) == len(edges) {
		return nil, failed[0]
	}
	if len(failed) > 0 {
		warn(unmeasured(failed))
	}
	return edges, nil
}

// unmeasured names in a line the paths that could not be measured, and why. Of many it names the first few: a firewall
// around one host blocks as many paths as there are hosts.
func unmeasured(failed []error) string {
	const named = 3
	if len(failed) == 1 {
		return fmt.Sprintf("%v; the ring takes this path only if there is no other", failed[0])
	}
	var list []string
	for _, err := range failed[:min(len(failed), named)] {
		list = append(list, err.Error())
	}
	if more := len(failed) - named; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d paths could not be measured (%s); the ring takes them only if there are no others", len(failed), strings.Join(list, "; "))
}
