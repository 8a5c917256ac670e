package main

import (
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
	}
}

// place reads -np, -H and --hostfile.
func place(c *cli.Context) (plan.Placement, error) {
	np := c.Int("np")
	if np < 0 || c.IsSet("np") && np == 0 {
		return plan.Placement{}, &usageError{fmt.Errorf("-np %d: must be at least 1", np), ""}
	}
	var (
		list []hosts.Host
		err  error
	)
	switch {
	case c.IsSet("hosts") && c.IsSet("hostfile"):
		return plan.Placement{}, &usageError{errors.New("-H and --hostfile exclude each other"), "name the hosts in one place"}
	case c.IsSet("hosts"):
		if list, err = hosts.ParseList(c.String("hosts")); err != nil {
			return plan.Placement{}, &usageError{err, "-H host1:2,host2:2"}
		}
	case c.IsSet("hostfile"):
		text, err := os.ReadFile(c.Path("hostfile"))
		if err != nil {
			return plan.Placement{}, &usageError{fmt.Errorf("read hostfile: %w", err), ""}
		}
		if list, err = hosts.ParseFile(string(text)); err != nil {
			return plan.Placement{}, &usageError{fmt.Errorf("%s: %w", c.Path("hostfile"), err), "each line is: host slots=N"}
		}
	default:
		if np > hosts.MaxSlots {
			return plan.Placement{}, &usageError{fmt.Errorf("-np %d: more than %d ranks on one host", np, hosts.MaxSlots), "name the hosts with -H"}
		}
		list = []hosts.Host{{Name: "localhost", Slots: max(np, 1)}}
	}
	return plan.Place(list, np)
}
