package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/discover"
	"gorun/launcher/elastic"
	"gorun/launcher/hosts"
	"gorun/launcher/output"
	"gorun/launcher/plan"
)

const (
	discoverEvery = time.Second // as Horovod
	discoverLimit = 30 * time.Second
)

// elasticFlags are those of jobs whose hosts come and go. The names are horovodrun's.
func elasticFlags() []cli.Flag {
	timeout := timeFlag("elastic-timeout", elastic.DefaultTimeout, "give up if fewer than --min-np ranks have room for this `TIME`")
	timeout.EnvVars = []string{"HOROVOD_ELASTIC_TIMEOUT"}
	return []cli.Flag{
		&cli.IntFlag{Name: "min-np", Aliases: []string{"min-num-proc"}, Usage: "go on with `N` ranks if no more are left", DefaultText: "-np"},
		&cli.IntFlag{Name: "max-np", Aliases: []string{"max-num-proc"}, Usage: "never run more than `N` ranks", DefaultText: "one for every slot"},
		&cli.StringFlag{Name: "host-discovery-script", Usage: "run `COMMAND` every second; its lines are the hosts that there are: host or host:slots"},
		&cli.IntFlag{Name: "slots-per-host", Aliases: []string{"slots"}, Usage: "`N` slots on hosts whose line does not say"},
		&cli.StringFlag{Name: "on-failure", Usage: "when a rank or a host is lost, `WHAT`: replace (go on, with free slots in its place), shrink (go on with the survivors), wait (until as many as before can run)", DefaultText: "replace"},
		&cli.IntFlag{Name: "reset-limit", Usage: "end the job instead of beginning anew more than `N` times", DefaultText: "none"},
		&cli.IntFlag{Name: "loss-limit", Usage: "end the job when all ranks were lost `N` times without a commit in between", DefaultText: strconv.Itoa(elastic.DefaultLossLimit)},
		&cli.StringFlag{Name: "blacklist", Usage: "when a rank fails, use `WHAT` no more: its slot, or its whole host, as horovodrun does", DefaultText: "slot, or host for horovodrun"},
		&cli.GenericFlag{Name: "blacklist-cooldown-range", Value: &timeRange{}, Usage: "use what failed again after `MIN MAX` seconds: MIN at first, twice as long each time, MAX at most", DefaultText: "never"},
		timeout,
	}
}

// elasticPlan is what the flags say about hosts that come and go.
type elasticPlan struct {
	elastic.Policy
	Script *discover.Script // nil: the hosts are those of -H or a hostfile
	by     plan.Policy
}

// readElastic returns nil for a job of fixed size. Like horovodrun, it takes a job for elastic if there is a
// discovery script or a --min-np.
func readElastic(c *cli.Context) (*elasticPlan, error) {
	if !c.IsSet("min-np") && !c.IsSet("host-discovery-script") {
		for _, name := range []string{"max-np", "slots-per-host", "on-failure", "reset-limit", "loss-limit", "blacklist", "blacklist-cooldown-range"} {
			if c.IsSet(name) {
				return nil, &usageError{fmt.Errorf("--%s is for elastic jobs", name), "add --min-np or --host-discovery-script"}
			}
		}
		return nil, nil
	}
	for _, name := range []string{"np", "min-np", "max-np", "slots-per-host", "loss-limit"} {
		if c.IsSet(name) && c.Int(name) < 1 {
			return nil, &usageError{fmt.Errorf("--%s %d: must be at least 1", name, c.Int(name)), ""}
		}
	}
	if !c.IsSet("np") && !c.IsSet("min-np") {
		return nil, &usageError{errors.New("how many ranks does it take to begin?"), "-np N or --min-np N"}
	}
	onFailure, err := elastic.ParseOnFailure(cmp.Or(c.String("on-failure"), elastic.Replace.String()))
	if err != nil {
		return nil, &usageError{fmt.Errorf("--on-failure: %w", err), ""}
	}
	blacklist, err := elastic.ParseBlacklist(cmp.Or(c.String("blacklist"), usualBlacklist().String()))
	if err != nil {
		return nil, &usageError{fmt.Errorf("--blacklist: %w", err), ""}
	}
	p := &elasticPlan{Policy: elastic.Policy{
		NP:         c.Int("np"),
		MinNP:      c.Int("min-np"),
		MaxNP:      c.Int("max-np"),
		OnFailure:  onFailure,
		ResetLimit: -1,
		LossLimit:  c.Int("loss-limit"),
		Blacklist:  blacklist,
		Timeout:    timeOf(c, "elastic-timeout"),
		Listed:     !c.IsSet("host-discovery-script") && !c.IsSet("cluster"),
	}}
	if c.IsSet("reset-limit") {
		if p.ResetLimit = c.Int("reset-limit"); p.ResetLimit < 0 {
			return nil, &usageError{fmt.Errorf("--reset-limit %d: must not be negative", p.ResetLimit), ""}
		}
	}
	if r, ok := c.Generic("blacklist-cooldown-range").(*timeRange); ok {
		p.CooldownMin, p.CooldownMax = r.min, r.max
	}
	if p.Timeout <= 0 {
		return nil, &usageError{fmt.Errorf("--elastic-timeout %v: must be positive", p.Timeout), ""}
	}
	if p.Policy, err = p.Check(); err != nil {
		return nil, &usageError{err, ""}
	}
	if p.Script, err = readScript(c); err != nil {
		return nil, err
	}
	if p.by, err = policyOf(c); err != nil {
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

// idle are wishes about the order of ranks that change nothing: a world that changes fills host by host, a rank in each slot.
func (p *elasticPlan) idle(c *cli.Context) []string {
	if p == nil {
		return nil
	}
	var out []string
	if c.Bool("display-map") {
		out = append(out, "--display-map (in an elastic job)")
	}
	if p.by.MapByNode {
		out = append(out, "--map-by node (in an elastic job)")
	}
	if p.by.RankByNode && c.IsSet("rank-by") {
		out = append(out, fmt.Sprintf("--rank-by %s (in an elastic job)", c.String("rank-by")))
	}
	if p.by.Oversubscribe {
		out = append(out, "--oversubscribe (in an elastic job)")
	}
	return out
}

// readScript reads where the hosts come from, nil for a list.
func readScript(c *cli.Context) (*discover.Script, error) {
	command := c.String("host-discovery-script")
	switch {
	case !c.IsSet("host-discovery-script"):
		return nil, nil
	case c.IsSet("hosts") || c.IsSet("hostfile") || c.IsSet("hydra-hostfile"):
		return nil, &usageError{errors.New("--host-discovery-script excludes -H and --hostfile"), "name the hosts in one place"}
	case c.IsSet("cluster"):
		return nil, &usageError{errors.New("--host-discovery-script excludes --cluster, which knows its hosts"), "--min-np N alone makes a job in a cluster elastic"}
	case strings.TrimSpace(command) == "":
		return nil, &usageError{errors.New("--host-discovery-script: no command"), ""}
	case c.Int("slots-per-host") > hosts.MaxSlots:
		return nil, &usageError{fmt.Errorf("--slots-per-host %d: must be 1 to %d", c.Int("slots-per-host"), hosts.MaxSlots), ""}
	}
	return &discover.Script{Command: command, Slots: cmp.Or(c.Int("slots-per-host"), hosts.DefaultSlots(surroundings())), Every: discoverEvery, Limit: discoverLimit, Env: os.Environ()}, nil
}

// timeRange is the value of a flag that takes two times, as two arguments or as MIN,MAX.
type timeRange struct{ min, max time.Duration }

// Words is how many arguments the flag takes.
func (r *timeRange) Words() int { return 2 }

// Set implements flag.Value.
func (r *timeRange) Set(text string) error {
	fields := strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == ',' })
	if len(fields) != 2 {
		return errors.New("not two times, such as 10 100 (seconds)")
	}
	var low, high seconds
	if err := errors.Join(low.Set(fields[0]), high.Set(fields[1])); err != nil {
		return errors.New("not two times, such as 10 100 (seconds)")
	}
	if low <= 0 || high < low {
		return errors.New("not a range: MIN is more than 0, and MAX not less than MIN")
	}
	r.min, r.max = time.Duration(low), time.Duration(high)
	return nil
}

func (r *timeRange) String() string {
	if r == nil || r.max == 0 {
		return ""
	}
	return fmt.Sprintf("%v %v", r.min, r.max)
}

// Get implements flag.Getter.
func (r *timeRange) Get() any { return *r }

// spec returns what the launcher is told, and what must run beside it until the job ends: nil if the hosts are known
// for good.
func (p *elasticPlan) spec(c *cli.Context, note func(format string, args ...any)) (*launcher.ElasticSpec, func(context.Context) error, error) {
	to := make(chan []elastic.Host, 1)
	spec := &launcher.ElasticSpec{Hosts: to, Policy: p.Policy}
	if p.Script == nil {
		list, _, err := hostList(c, p.NP)
		if err != nil {
			return nil, nil, err
		}
		to <- p.slotsOf(list, c.Int("slots-per-host"), p.NP)
		return spec, nil, nil
	}
	return spec, func(ctx context.Context) error {
		return p.Script.Watch(ctx, func(list []hosts.Host) {
			select {
			case to <- p.slotsOf(list, p.Script.Slots, 0):
			case <-ctx.Done():
			}
		}, note)
	}, nil
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

// slotsOf gives each host as many slots as -ppn says, whatever it has; else those that come without a number so many, or as many
// as it takes for np ranks.
func (p *elasticPlan) slotsOf(list []hosts.Host, each, np int) []elastic.Host {
	out := make([]elastic.Host, len(list))
	for i, h := range list {
		out[i] = elastic.Host{Name: h.Name, Slots: max(1, cmp.Or(p.by.PerHost, h.Slots, each, (np+len(list)-1)/len(list)))}
	}
	return out
}

// places remembers on which host each process runs, for tags and events.
type places struct {
	mu   sync.Mutex
	host map[int]string
}

func (p *places) of(process int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.host[process]
}

// admit returns what makes room for a process in mux.
func (p *places) admit(mux *output.Mux) func(int, string) error {
	return func(process int, host string) error {
		p.mu.Lock()
		p.host[process] = host
		p.mu.Unlock()
		return mux.Add(process)
	}
}
