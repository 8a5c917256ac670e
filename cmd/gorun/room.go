package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"gorun/launcher"
	"gorun/launcher/dial"
	"gorun/launcher/elastic"
	"gorun/launcher/hosts"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/launcher/talk"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// room is where a job runs, and how its daemons are started there.
type room struct {
	placement plan.Placement
	from      string
	lease     *standing.Lease // nil without a cluster, and in a dry run
	shares    []wire.Share    // the cluster's slots, on which no ranks are placed yet

	varying *launcher.ElasticSpec           // the hosts of an elastic job, nil for others
	watch   func(ctx context.Context) error // follows them until the job ends, nil if they are known
}

// placeJob finds room for np ranks, or for one in every slot if np is 0. In a cluster it waits until there is room.
func placeJob(ctx context.Context, o *jobFlags, np int, programs []program) (room, error) {
	if o.cluster == "" {
		p, from, err := placePrograms(o, np, programs)
		return room{placement: p, from: from}, err
	}
	if err := checkRanks(o); err != nil {
		return room{}, err
	}
	policy, err := policyOf(o)
	if err != nil {
		return room{}, err
	}
	request := wire.Reserve{Ranks: np, PerHost: policy.PerHost, Program: programName(programs)}
	var p plan.Placement
	switch {
	case o.namesHosts():
		if p, _, err = placePrograms(o, np, programs); err != nil {
			return room{}, err
		}
		for _, h := range p.Hosts {
			request.Shares = append(request.Shares, wire.Share{Host: h.Name, Slots: len(h.Ranks)})
		}
	case haveHosts(programs):
		return room{}, &usageError{errors.New("in a cluster the first program names hosts too, if others do"), "gorun --cluster … -np 1 -H a … : -np 4 -H b …"}
	}
	got, err := slotsInCluster(ctx, o, request)
	if err != nil {
		return room{}, err
	}
	if haveHosts(programs) {
		got.placement = p
		return got, nil
	}
	var list []hosts.ListedHost
	for _, s := range got.shares {
		list = append(list, hosts.ListedHost{Name: s.Host, Slots: s.Slots})
	}
	if got.placement, err = plan.Place(list, np, policy); err != nil {
		got.release()
		return room{}, err
	}
	return got, nil
}

// slotsInCluster reserves slots in the cluster and waits for them. A dry run only asks which slots it would get.
func slotsInCluster(ctx context.Context, o *jobFlags, request wire.Reserve) (room, error) {
	if !o.dryRun {
		lease, addr, err := reserve(ctx, o, request)
		if err != nil {
			return room{}, err
		}
		return room{from: "the cluster at " + addr, lease: lease, shares: lease.Shares()}, nil
	}
	client, addr, err := clusterOf(ctx, &o.clusterFlags)
	if err != nil {
		return room{}, err
	}
	shares, err := client.Preview(ctx, addr, request)
	if err != nil {
		return room{}, explainCluster(addr, err)
	}
	return room{shares: shares}, nil
}

// reserve gets slots from the cluster that the flags name, sooner or later.
func reserve(ctx context.Context, o *jobFlags, request wire.Reserve) (*standing.Lease, string, error) {
	client, addr, err := clusterOf(ctx, &o.clusterFlags)
	if err != nil {
		return nil, "", err
	}
	request.User = userName()
	if detachedOf(ctx).Identify(&request) { // the slots are reserved already
		lease := client.Hold(addr, request)
		lease.Encrypt = o.Encrypt
		return lease, addr, nil
	}
	waits := func(text string) {
		fmt.Fprintln(os.Stderr, "gorun: note: the job "+output.Printable(text))
		detachedOf(ctx).Report(text)
	}
	var lease *standing.Lease
	err = newRetry(o).reserve(ctx, waits, func() error {
		lease, err = client.Reserve(ctx, addr, request, waits)
		return err
	})
	if err != nil {
		return nil, "", explainCluster(addr, err)
	}
	if lease.DemandsEncryption() && !o.Encrypt {
		if o.given(&o.Encrypt) {
			lease.Close()
			return nil, "", &usageError{fmt.Errorf("--encrypt=false: the cluster at %s takes only jobs that encrypt", addr), "leave out --encrypt=false and GORUN_ENCRYPT"}
		}
		o.Encrypt = true
	}
	lease.Encrypt = o.Encrypt
	return lease, addr, nil
}

// onCluster is like room, for a job whose hosts the cluster assigns and takes back.
func (p *elasticPlan) onCluster(ctx context.Context, o *jobFlags, programs []program) (room, error) {
	request := wire.Reserve{Ranks: p.NP, PerHost: p.by.PerHost, Elastic: true, Most: p.most(), Program: programName(programs)}
	if o.namesHosts() {
		list, _, err := hostList(o, p.wanted())
		if err != nil {
			return room{}, err
		}
		for _, h := range p.slotsOf(list, o.slotsPerHost, p.wanted()) {
			request.Shares = append(request.Shares, wire.Share{Host: h.Name, Slots: h.Slots})
		}
	}
	got, err := slotsInCluster(ctx, o, request)
	if err != nil {
		return room{}, err
	}
	to := make(chan []elastic.DiscoveredHost, 1)
	to <- hostsOf(got.shares)
	got.varying = &launcher.ElasticSpec{Hosts: to, Policy: p.Policy}
	got.watch = func(ctx context.Context) error {
		for ctx.Err() == nil {
			select {
			case shares := <-got.lease.Changes():
				give(ctx, to, hostsOf(shares))
			case <-ctx.Done():
			}
		}
		return nil
	}
	return got, nil
}

// give gives a job its hosts, unless it ends.
func give(ctx context.Context, to chan<- []elastic.DiscoveredHost, hosts []elastic.DiscoveredHost) {
	select {
	case to <- hosts:
	case <-ctx.Done():
	}
}

// most is how many slots the job can use, 0 for any number.
func (p *elasticPlan) most() int {
	if p.MaxNP == 0 {
		return 0
	}
	return p.MaxNP + p.Spares
}

func hostsOf(shares []wire.Share) []elastic.DiscoveredHost {
	var out []elastic.DiscoveredHost
	for _, s := range shares {
		out = append(out, elastic.DiscoveredHost{Name: s.Host, Slots: s.Slots, Born: s.Born})
	}
	return out
}

func (p room) dialer(o *jobFlags) (talk.Dialer, error) {
	if p.lease != nil {
		return dial.Cluster{Lease: p.lease}, nil
	}
	return newDialer(o)
}

// notes says where the hosts are from, if they are more than expected or the user wants to know everything.
func (p room) notes(verbose bool) []string {
	if p.from == "" || !verbose && !strings.HasPrefix(p.from, hosts.Whole) {
		return nil
	}
	return []string{fmt.Sprintf("gorun: %s from %s", topology.Count(len(p.placement.Hosts), "host"), p.from)}
}

func (p room) release() {
	if p.lease != nil {
		p.lease.Close()
	}
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return cmp.Or(os.Getenv("USER"), "?")
}
