package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"gorun/launcher/hosts"
	"gorun/launcher/plan"
)

// placeFlags say how many ranks run, and where.
func placeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "np", Aliases: []string{"n", "num-proc"}, Usage: "start `N` ranks", DefaultText: "one for every slot"},
		&cli.StringFlag{Name: "hosts", Aliases: []string{"H", "host"}, Usage: "`LIST` of hosts and their slots: host1:2,user@host2:4,node[01-16]:8", DefaultText: "this machine"},
		&cli.PathFlag{Name: "hostfile", Aliases: []string{"machinefile"}, Usage: "read the hosts from `FILE`, a line each: host slots=N, or host:N"},
		&cli.PathFlag{Name: "hydra-hostfile", Aliases: []string{"f"}, Usage: "Hydra's --hostfile", Hidden: true},
		&cli.IntFlag{Name: "ppn", Aliases: []string{"npernode", "N", "ntasks-per-node", "perhost"}, Usage: "`N` ranks on each host, whatever its slots"},
		&cli.StringFlag{Name: "map-by", Usage: "deal ranks to hosts by `HOW`: slot (fill one host after the other), node (in turn), ppr:N:node; with :oversubscribe", DefaultText: "slot"},
		&cli.StringFlag{Name: "rank-by", Usage: "number ranks by `HOW`: slot (host by host) or node (across the hosts)", DefaultText: "as they are dealt"},
		&cli.BoolFlag{Name: "oversubscribe", Usage: "allow more ranks than slots"},
	}
}

// place reads -np, and which hosts there are.
func place(c *cli.Context) (plan.Placement, error) { return placeRanks(c, c.Int("np")) }

// placeRanks deals np ranks to the hosts, or one to every slot if np is 0.
func placeRanks(c *cli.Context, np int) (plan.Placement, error) {
	if np < 0 || c.IsSet("np") && np == 0 {
		return plan.Placement{}, &usageError{fmt.Errorf("-np %d: must be at least 1", np), ""}
	}
	var (
		list []hosts.Host
		err  error
		file = cmp.Or(c.Path("hostfile"), c.Path("hydra-hostfile"))
	)
	switch {
	case c.IsSet("hosts") && file != "":
		return plan.Placement{}, &usageError{errors.New("-H and --hostfile exclude each other"), "name the hosts in one place"}
	case c.IsSet("hosts"):
		if list, err = hosts.ParseList(c.String("hosts")); err != nil {
			return plan.Placement{}, &usageError{err, "-H host1:2,host2:2"}
		}
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return plan.Placement{}, &usageError{fmt.Errorf("read hostfile: %w", err), ""}
		}
		if list, err = hosts.ParseFile(string(text)); err != nil {
			return plan.Placement{}, &usageError{fmt.Errorf("%s: %w", file, err), "each line is: host slots=N"}
		}
	default:
		if np > hosts.MaxSlots {
			return plan.Placement{}, &usageError{fmt.Errorf("-np %d: more than %d ranks on one host", np, hosts.MaxSlots), "name the hosts with -H"}
		}
		list = []hosts.Host{{Name: "localhost", Slots: max(np, 1)}}
	}
	policy, err := policyOf(c)
	if err != nil {
		return plan.Placement{}, err
	}
	return plan.PlaceBy(list, np, policy)
}

// policyOf reads how ranks are dealt to hosts.
func policyOf(c *cli.Context) (plan.Policy, error) {
	policy, err := plan.ParsePolicy(c.String("map-by"), c.String("rank-by"))
	if err != nil {
		return policy, &usageError{err, "--map-by slot, --map-by node or --map-by ppr:2:node"}
	}
	if n := c.Int("ppn"); c.IsSet("ppn") {
		if n < 1 || n > hosts.MaxSlots {
			return policy, &usageError{fmt.Errorf("-ppn %d: must be 1 to %d", n, hosts.MaxSlots), ""}
		}
		if policy.PerHost > 0 && policy.PerHost != n {
			return policy, &usageError{fmt.Errorf("-ppn %d and --map-by %s exclude each other", n, c.String("map-by")), ""}
		}
		policy.PerHost = n
	}
	policy.Oversubscribe = policy.Oversubscribe || c.Bool("oversubscribe")
	return policy, nil
}
