package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/discover"
	"gorun/launcher/elastic"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
)

const (
	discoverEvery = time.Second // as Horovod
	discoverLimit = 30 * time.Second
)

// elasticTable binds the flags of elastic jobs.
func (o *jobFlags) elasticTable() []cli.Flag {
	timeout := timeFlag("elastic-timeout", &o.elasticTimeout, elastic.DefaultTimeout, "give up if fewer than --min-np ranks have room for this `TIME`")
	timeout.EnvVars = []string{"HOROVOD_ELASTIC_TIMEOUT"}
	return []cli.Flag{
		&cli.IntFlag{Name: "min-np", Destination: &o.minNP, Aliases: []string{"min-num-proc"},
			Usage: "go on with as few as `N` ranks", DefaultText: "-np"},
		&cli.IntFlag{Name: "max-np", Destination: &o.maxNP, Aliases: []string{"max-num-proc"},
			Usage: "never run more than `N` ranks", DefaultText: "one for every slot, or -np with --spares"},
		&cli.IntFlag{Name: "spares", Destination: &o.spares,
			Usage: "start `N` more ranks, which wait in init for the place of one that is lost", DefaultText: "none"},
		&cli.BoolFlag{Name: "evict-stragglers", Destination: &o.evictStragglers,
			Usage: "drain a host whose ranks slow the job down, if enough spares wait on others"},
		&cli.StringFlag{Name: "host-discovery-script", Destination: &o.script,
			Usage: "run `COMMAND` every second; each line that it prints is a host to use: host or host:slots"},
		&cli.IntFlag{Name: "slots-per-host", Destination: &o.slotsPerHost, Aliases: []string{"slots"},
			Usage: "`N` slots on hosts that are listed without a number", DefaultText: "as many as ranks need"},
		&cli.StringFlag{Name: "on-failure", Destination: &o.onFailure,
			Usage: "when a rank or a host is lost, `WHAT`: replace (go on, with free slots in its place), shrink (go on with the survivors), wait (until as many as before can run)", DefaultText: "replace"},
		&cli.StringFlag{Name: "on-loss", Destination: &o.onLoss,
			Usage: "what a smaller world does with a step of an ExactSampler, `WHAT`: keep-batch (each rank trains more, so that a step has as many samples as before), shrink-batch", DefaultText: "shrink-batch"},
		&cli.IntFlag{Name: "reset-limit", Destination: &o.resetLimit,
			Usage: "let the job begin anew at most `N` times; then it ends", DefaultText: "none"},
		&cli.IntFlag{Name: "loss-limit", Destination: &o.lossLimit,
			Usage: "end the job when all ranks were lost `N` times without a commit in between", DefaultText: strconv.Itoa(elastic.DefaultLossLimit)},
		&cli.StringFlag{Name: "blacklist", Destination: &o.blacklist,
			Usage: "when a rank fails, stop using `WHAT`: its slot, or its whole host, as horovodrun does", DefaultText: "slot, or host for horovodrun"},
		&cli.GenericFlag{Name: "blacklist-cooldown-range", Value: &o.cooldown,
			Usage: "use what failed again after `MIN MAX` seconds: MIN at first, twice as long each time, MAX at most", DefaultText: "never"},
		timeout,
	}
}

// elasticPlan holds the policy of an elastic job, as the flags set it.
type elasticPlan struct {
	elastic.Policy
	Script *discover.Script // nil: -H or a hostfile names the hosts
	by     plan.Policy
}

// elastic reports whether the job is elastic. Like horovodrun, gorun takes it for that if there is a discovery script or a
// --min-np; spares make it elastic too.
func (o *jobFlags) elastic() bool {
	return o.given(&o.minNP) || o.given(&o.script) || o.given(&o.spares)
}

// readElastic returns nil for a job of fixed size.
func readElastic(o *jobFlags) (*elasticPlan, error) {
	if !o.elastic() {
		for _, field := range []any{&o.evictStragglers, &o.maxNP, &o.slotsPerHost, &o.onFailure, &o.onLoss, &o.resetLimit, &o.lossLimit, &o.blacklist, &o.cooldown} {
			if o.given(field) {
				return nil, &usageError{fmt.Errorf("--%s is for elastic jobs", o.names[field]), "add --min-np or --host-discovery-script"}
			}
		}
		return nil, nil
	}
	for _, field := range []*int{&o.np, &o.minNP, &o.maxNP, &o.slotsPerHost, &o.lossLimit, &o.spares} {
		if o.given(field) && *field < 1 {
			return nil, &usageError{fmt.Errorf("--%s %d: must be at least 1", o.names[field], *field), ""}
		}
	}
	if !o.given(&o.np) && !o.given(&o.minNP) {
		return nil, &usageError{errors.New("an elastic job needs -np or --min-np"), "-np N or --min-np N"}
	}
	if o.evictStragglers && o.spares == 0 {
		return nil, &usageError{errors.New("--evict-stragglers: no spare takes their place"), "--spares N"}
	}
	if o.given(&o.spares) && o.noShim {
		return nil, &usageError{errors.New("--spares: ranks of stock Horovod cannot wait for a world"), "leave out --no-horovod-shim"}
	}
	onFailure, err := elastic.ParseOnFailure(cmp.Or(o.onFailure, elastic.Replace.String()))
	if err != nil {
		return nil, &usageError{fmt.Errorf("--on-failure: %w", err), ""}
	}
	if o.onLoss != "" && !slices.Contains(choices["on-loss"], o.onLoss) {
		return nil, &usageError{fmt.Errorf("--on-loss: %q is not keep-batch or shrink-batch", o.onLoss), ""}
	}
	blacklist, err := elastic.ParseBlacklist(cmp.Or(o.blacklist, usualBlacklist().String()))
	if err != nil {
		return nil, &usageError{fmt.Errorf("--blacklist: %w", err), ""}
	}
	p := &elasticPlan{Policy: elastic.Policy{
		NP:         o.np,
		MinNP:      o.minNP,
		MaxNP:      o.maxNP,
		Spares:     o.spares,
		OnFailure:  onFailure,
		ResetLimit: -1,
		LossLimit:  o.lossLimit,
		Blacklist:  blacklist,
		Timeout:    o.elasticTimeout,
		Listed:     !o.given(&o.script) && o.cluster == "",
	}}
	if o.given(&o.resetLimit) {
		if p.ResetLimit = o.resetLimit; p.ResetLimit < 0 {
			return nil, &usageError{fmt.Errorf("--reset-limit %d: must not be negative", p.ResetLimit), ""}
		}
	}
	p.CooldownMin, p.CooldownMax = o.cooldown.min, o.cooldown.max
	if p.Timeout <= 0 {
		return nil, &usageError{fmt.Errorf("--elastic-timeout %v: must be positive", p.Timeout), ""}
	}
	if p.Policy, err = p.Check(); err != nil {
		return nil, &usageError{err, ""}
	}
	if p.Script, err = readScript(o); err != nil {
		return nil, err
	}
	if p.Script == nil {
		if p.Script, err = askScheduler(o); err != nil {
			return nil, err
		}
		p.Listed = p.Listed && p.Script == nil
	}
	if p.by, err = policyOf(o); err != nil {
		return nil, err
	}
	return p, nil
}

// usualBlacklist returns Horovod's policy for horovodrun, and the one that loses less for gorun.
func usualBlacklist() elastic.Blacklist {
	if calledHorovodrun(os.Args) {
		return elastic.BlacklistHost
	}
	return elastic.BlacklistSlot
}

// readScript reads where the hosts come from, nil for a list.
func readScript(o *jobFlags) (*discover.Script, error) {
	command := o.script
	switch {
	case !o.given(&o.script):
		return nil, nil
	case o.given(&o.hosts) || o.given(&o.hostfile) || o.given(&o.hydraHostfile):
		return nil, &usageError{errors.New("--host-discovery-script excludes -H and --hostfile"), "name the hosts in one place"}
	case o.cluster != "":
		return nil, &usageError{errors.New("--host-discovery-script excludes --cluster, which knows its hosts"), "--min-np N alone makes a job in a cluster elastic"}
	case strings.TrimSpace(command) == "":
		return nil, &usageError{errors.New("--host-discovery-script: no command"), ""}
	case o.slotsPerHost > hosts.MaxSlots:
		return nil, &usageError{fmt.Errorf("--slots-per-host %d: must be 1 to %d", o.slotsPerHost, hosts.MaxSlots), ""}
	}
	return &discover.Script{Command: command, Slots: cmp.Or(o.slotsPerHost, hosts.DefaultSlots(surroundings())), Every: discoverEvery, Limit: discoverLimit, Env: os.Environ()}, nil
}

// askScheduler returns what asks the scheduler for the hosts that the job has now, nil if none can be asked.
func askScheduler(o *jobFlags) (*discover.Script, error) {
	way, err := wayToHosts(o)
	if err != nil || !way.discovers(o) {
		return nil, err
	}
	command := "scontrol show job --oneliner " + strings.Trim(os.Getenv("SLURM_JOB_ID"), " ;'\"&|")
	return &discover.Script{Command: command, Parse: way.nodes, Every: discoverEvery, Limit: discoverLimit, Env: os.Environ()}, nil
}

// room returns where an elastic job runs.
func (p *elasticPlan) room(o *jobFlags, note func(format string, args ...any)) (room, error) {
	to := make(chan []elastic.DiscoveredHost, 1)
	where := room{varying: &launcher.ElasticSpec{Hosts: to, Policy: p.Policy}}
	if p.Script == nil {
		list, _, err := hostList(o, p.wanted())
		to <- p.slotsOf(list, o.slotsPerHost, p.wanted())
		return where, err
	}
	where.watch = func(ctx context.Context) error {
		return p.Script.Watch(ctx, func(list []hosts.ListedHost) { give(ctx, to, p.slotsOf(list, p.Script.Slots, 0)) }, note)
	}
	return where, nil
}

// first is the world with which the job would begin if all hosts answered.
func (p *elasticPlan) first(ctx context.Context, spec *launcher.ElasticSpec) (plan.Placement, error) {
	if p.Script == nil {
		return launcher.FirstWorld(p.Policy, <-spec.Hosts)
	}
	list, err := p.Script.Run(ctx)
	if err != nil {
		return plan.Placement{}, err
	}
	return launcher.FirstWorld(p.Policy, p.slotsOf(list, p.Script.Slots, 0))
}

// wanted is how many slots the first world and the spares need.
func (p *elasticPlan) wanted() int { return p.NP + p.Spares }

// slotsOf gives each host as many slots as -ppn asks for. Without -ppn, a host without a number gets
// --slots-per-host, or its even share of the ranks.
func (p *elasticPlan) slotsOf(list []hosts.ListedHost, each, np int) []elastic.DiscoveredHost {
	out := make([]elastic.DiscoveredHost, len(list))
	for i, h := range list {
		out[i] = elastic.DiscoveredHost{Name: h.Name, Slots: max(1, cmp.Or(p.by.PerHost, h.Slots, each, (np+len(list)-1)/len(list)))}
	}
	return out
}
