package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/elastic"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// clusterPort is where long-running daemons take jobs; their gossip is at the next one.
const clusterPort = "7575"

const keyHint = "make one with: (umask 077; head -c 32 /dev/urandom | base64 >FILE), and copy it to every host"

// clusterFlags name a cluster.
type clusterFlags struct {
	cluster string // HOST[:PORT] of one of its daemons, "" for none
	keyFile string
}

// clusterTable binds them.
func (o *clusterFlags) clusterTable() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cluster", Destination: &o.cluster, EnvVars: []string{"GORUN_CLUSTER"}, Usage: "start the job by the long-running daemons, one of which is at `HOST[:PORT]`, instead of ssh"},
		&cli.PathFlag{Name: "cluster-key-file", Destination: &o.keyFile, EnvVars: []string{"GORUN_CLUSTER_KEY_FILE"}, Usage: "`FILE` with the key of that cluster"},
	}
}

// room is where a job runs, and how its daemons are started there.
type room struct {
	placement plan.Placement
	from      string
	lease     *standing.Lease // nil without a cluster
}

// placeJob finds room for np ranks, or for one in every slot if np is 0. In a cluster it waits for it.
func placeJob(ctx context.Context, o *jobFlags, np int, programs []program) (room, error) {
	if o.cluster == "" {
		p, from, err := placePrograms(o, np, programs)
		return room{p, from, nil}, err
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
	if policy.Oversubscribe {
		err = explainOversubscribe(err)
	}
	if err != nil {
		return room{}, err
	}
	if haveHosts(programs) {
		got.placement = p
		return got.room, nil
	}
	var list []hosts.Host
	for _, s := range got.shares {
		list = append(list, hosts.Host{Name: s.Host, Slots: s.Slots})
	}
	if got.placement, err = plan.PlaceBy(list, np, policy); err != nil {
		got.release()
		return room{}, err
	}
	return got.room, nil
}

// given is a room in a cluster whose ranks are not placed yet, with its slots.
type given struct {
	room
	shares []wire.Share
}

// slotsInCluster gets slots from the cluster, sooner or later. A dry run only asks which those would be.
func slotsInCluster(ctx context.Context, o *jobFlags, request wire.Reserve) (given, error) {
	if o.dryRun {
		client, addr, err := clusterOf(ctx, &o.clusterFlags)
		if err != nil {
			return given{}, err
		}
		shares, err := client.Preview(ctx, addr, request)
		if err != nil {
			return given{}, explainCluster(addr, err)
		}
		return given{shares: shares}, nil
	}
	lease, addr, err := reserve(ctx, &o.clusterFlags, request)
	if err != nil {
		return given{}, err
	}
	return given{room{from: "the cluster at " + addr, lease: lease}, lease.Shares()}, nil
}

// namesHosts reports whether the flags name the hosts.
func (o *jobFlags) namesHosts() bool {
	return o.given(&o.hosts) || o.hostfile != "" || o.hydraHostfile != ""
}

// reserve gets slots from the cluster that the flags name, sooner or later.
func reserve(ctx context.Context, o *clusterFlags, request wire.Reserve) (*standing.Lease, string, error) {
	client, addr, err := clusterOf(ctx, o)
	if err != nil {
		return nil, "", err
	}
	request.User = userName()
	if detachedOf(ctx).Identify(&request) { // it does not wait
		return client.Hold(addr, request), addr, nil
	}
	lease, err := client.Reserve(ctx, addr, request, func(text string) {
		fmt.Fprintln(os.Stderr, "gorun: note: the job "+text)
		detachedOf(ctx).Report(text)
	})
	if err != nil {
		return nil, "", explainCluster(addr, err)
	}
	return lease, addr, nil
}

// onCluster is spec for a job whose hosts the cluster gives and takes.
func (p *elasticPlan) onCluster(ctx context.Context, o *jobFlags, programs []program) (room, *launcher.ElasticSpec, func(context.Context) error, error) {
	fail := func(err error) (room, *launcher.ElasticSpec, func(context.Context) error, error) {
		return room{}, nil, nil, err
	}
	request := wire.Reserve{Ranks: p.NP, PerHost: p.by.PerHost, Elastic: true, Most: p.MaxNP, Program: programName(programs)}
	if o.namesHosts() {
		list, _, err := hostList(o, p.NP)
		if err != nil {
			return fail(err)
		}
		for _, h := range p.slotsOf(list, o.slotsPerHost, p.NP) {
			request.Shares = append(request.Shares, wire.Share{Host: h.Name, Slots: h.Slots})
		}
	}
	got, err := slotsInCluster(ctx, o, request)
	if err != nil {
		return fail(err)
	}
	to := make(chan []elastic.Host, 1)
	to <- hostsOf(got.shares)
	watch := func(ctx context.Context) error {
		for {
			select {
			case shares := <-got.lease.Changes():
				select {
				case to <- hostsOf(shares):
				case <-ctx.Done():
					return nil
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
	return got.room, &launcher.ElasticSpec{Hosts: to, Policy: p.Policy}, watch, nil
}

func hostsOf(shares []wire.Share) []elastic.Host {
	var out []elastic.Host
	for _, s := range shares {
		out = append(out, elastic.Host{Name: s.Host, Slots: s.Slots, Born: s.Born})
	}
	return out
}

func (p room) dialer(o *jobFlags) (launcher.Dialer, error) {
	if p.lease != nil {
		return launcher.Cluster{Lease: p.lease}, nil
	}
	return newDialer(o)
}

// notes says where the hosts are from, for users who want to hear all.
func (p room) notes(verbose bool) []string {
	if p.from == "" || !verbose {
		return nil
	}
	return []string{fmt.Sprintf("gorun: %s from %s", topology.Count(len(p.placement.Hosts), "host"), p.from)}
}

func (p room) release() {
	if p.lease != nil {
		p.lease.Close()
	}
}

// clusterOf reads which cluster is meant.
func clusterOf(ctx context.Context, o *clusterFlags) (standing.Client, string, error) {
	if home, ok := detachedOf(ctx).Cluster(); ok {
		key, err := readKey(home.KeyFile)
		return standing.Client{Key: key, Version: version}, home.Addr, err
	}
	if o.keyFile == "" {
		return standing.Client{}, "", &usageError{errors.New("--cluster needs --cluster-key-file"), keyHint}
	}
	key, err := readKey(o.keyFile)
	if err != nil {
		return standing.Client{}, "", err
	}
	return standing.Client{Key: key, Version: version}, withPort(o.cluster, clusterPort), nil
}

// withPort adds a port where none is given.
func withPort(addr, port string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	if inner, ok := strings.CutPrefix(addr, "["); ok && strings.HasSuffix(inner, "]") {
		addr = strings.TrimSuffix(inner, "]")
	}
	return net.JoinHostPort(addr, port)
}

// readKey reads a key file that nobody else can read.
func readKey(path string) (standing.Key, error) {
	fail := func(err error, hint string) (standing.Key, error) {
		return standing.Key{}, &usageError{fmt.Errorf("--cluster-key-file: %w", err), hint}
	}
	info, err := os.Stat(path)
	if err != nil {
		return fail(err, keyHint)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fail(fmt.Errorf("%s: others can read it (mode %04o)", path, mode), "chmod 600 "+path)
	}
	text, err := readShort(path)
	if err != nil {
		return fail(err, "")
	}
	key, err := standing.ParseKey(text)
	if err != nil {
		return fail(fmt.Errorf("%s: %w", path, err), keyHint)
	}
	return key, nil
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return cmp.Or(os.Getenv("USER"), "?")
}

// explainOversubscribe tells whoever would have more ranks than slots that a cluster does not.
func explainOversubscribe(err error) error {
	if no, ok := errors.AsType[*launcher.HostError](err); ok && no.Code == launcher.ExitUsage {
		no.Hint = "a cluster gives each slot to one rank, with --oversubscribe too; gorun worker --slots N gives a host more"
	}
	return err
}

// explainCluster says what a user can do about a cluster that does not give slots.
func explainCluster(addr string, err error) error {
	var refused *standing.RefusedError
	switch {
	case errors.As(err, &refused):
		no := &launcher.HostError{Host: addr, Step: "reserve slots", Err: refused, Hint: refused.Hint, Code: launcher.ExitFailure}
		if refused.Small {
			no.Code = launcher.ExitUsage
		}
		return no
	case errors.Is(err, standing.ErrKey):
		return &launcher.HostError{Host: addr, Step: "authenticate", Err: standing.ErrKey, Hint: "the key file must be the same everywhere", Code: launcher.ExitTransport}
	case errors.Is(err, launcher.ErrStopped):
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err // without the name of the call, which is that of the step
	}
	return &launcher.HostError{Host: addr, Step: "connect", Err: err, Code: launcher.ExitTransport, Hint: "is there a daemon? gorun worker --cluster-key-file FILE"}
}
