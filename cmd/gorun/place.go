package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"gorun/launcher/hosts"
	"gorun/launcher/plan"
	"gorun/topology/picture"
)

// placeFlags say how many ranks run, and where.
func placeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "np", Aliases: []string{"n", "num-proc", "c"}, Usage: "start `N` ranks", DefaultText: "one for every slot"},
		&cli.StringFlag{Name: "hosts", Aliases: []string{"H", "host"}, Usage: "`LIST` of hosts and their slots: host1:2,user@host2:4,node[01-16]:8", DefaultText: "this machine"},
		&cli.PathFlag{Name: "hostfile", Aliases: []string{"machinefile"}, Usage: "read the hosts from `FILE`, a line each: host slots=N, or host:N"},
		&cli.PathFlag{Name: "hydra-hostfile", Aliases: []string{"f"}, Usage: "Hydra's --hostfile", Hidden: true},
		&cli.IntFlag{Name: "ppn", Aliases: []string{"npernode", "N", "ntasks-per-node", "perhost"}, Usage: "`N` ranks on each host, whatever its slots", DefaultText: "one for each slot"},
		&cli.StringFlag{Name: "map-by", Usage: "deal ranks to hosts by `HOW`: slot (fill one host after the other), node (in turn), ppr:N:node; with :oversubscribe, :PE=N (cores for each)", DefaultText: "slot"},
		&cli.StringFlag{Name: "rank-by", Usage: "number ranks by `HOW`: slot (host by host) or node (across the hosts)", DefaultText: "as they are dealt"},
		&cli.BoolFlag{Name: "oversubscribe", Usage: "allow more ranks than slots"},
		&cli.BoolFlag{Name: "nooversubscribe", Usage: "Open MPI's word for no --oversubscribe", Hidden: true},
		&cli.BoolFlag{Name: "display-map", Usage: "tell which ranks run on which host before they start", Hidden: true},
		&cli.BoolFlag{Name: "pernode", Usage: "Open MPI's -ppn 1", Hidden: true},
		&cli.BoolFlag{Name: "bynode", Usage: "Open MPI's --map-by node", Hidden: true},
		&cli.BoolFlag{Name: "byslot", Usage: "Open MPI's --map-by slot", Hidden: true},
	}
}

// place reads -np, and which hosts there are.
func place(c *cli.Context) (plan.Placement, error) {
	p, _, err := placeRanks(c, c.Int("np"))
	return p, err
}

// placeRanks deals np ranks to the hosts, or one to every slot if np is 0. It also says where it has the
// hosts from.
func placeRanks(c *cli.Context, np int) (p plan.Placement, from string, err error) {
	if err := checkRanks(c); err != nil {
		return p, "", err
	}
	list, from, policy, err := whereAndHow(c, np)
	if err != nil {
		return p, "", err
	}
	p, err = plan.PlaceBy(list, np, policy)
	return p, from, err
}

// checkRanks refuses an -np that is none.
func checkRanks(c *cli.Context) error {
	if n := c.Int("np"); c.IsSet("np") && n < 1 {
		return &usageError{fmt.Errorf("-np %d: must be at least 1", n), "without -np there is a rank for each slot of the hosts"}
	}
	return nil
}

// whereAndHow are the hosts for np ranks, where they are from, and how ranks are dealt to them.
func whereAndHow(c *cli.Context, np int) (list []hosts.Host, from string, policy plan.Policy, err error) {
	if list, from, err = hostList(c, np); err == nil {
		err = checkNodes(c, len(list))
	}
	if err == nil {
		policy, err = policyOf(c)
	}
	return list, from, policy, err
}

// placePrograms is placeRanks for the programs of a job, of which some may have hosts of their own.
func placePrograms(c *cli.Context, np int, programs []program) (p plan.Placement, from string, err error) {
	if !haveHosts(programs) {
		return placeRanks(c, np)
	}
	for _, x := range programs {
		if x.hosts != nil {
			np -= x.Ranks
		}
	}
	list, from, policy, err := whereAndHow(c, np)
	if err != nil {
		return p, "", err
	}
	var parts []plan.Part
	for _, x := range programs {
		part := plan.Part{Ranks: x.Ranks, Hosts: x.hosts}
		if part.Hosts == nil {
			part.Hosts = list
		}
		parts = append(parts, part)
	}
	if p, err = plan.PlaceParts(parts, policy); err != nil {
		if _, few := errors.AsType[*plan.SlotsError](err); !few {
			err = &usageError{err, "give the hosts more slots, or the job --oversubscribe"}
		}
	}
	return p, from, err
}

// haveHosts tells whether some programs have hosts of their own.
func haveHosts(programs []program) bool {
	return slices.ContainsFunc(programs, func(p program) bool { return p.hosts != nil })
}

// hostList finds the hosts: those that a flag names, else those that a batch scheduler or an MPIJob gave us,
// else this machine.
func hostList(c *cli.Context, np int) (list []hosts.Host, from string, err error) {
	file := cmp.Or(c.Path("hostfile"), c.Path("hydra-hostfile"))
	given, allocErr := hosts.Allocated(surroundings())
	instead := ""
	if given != nil {
		instead = ", not from " + given.From
	}
	switch {
	case c.IsSet("hosts") && file != "":
		return nil, "", &usageError{errors.New("-H and --hostfile exclude each other"), "name the hosts in one place"}
	case c.IsSet("hosts"):
		if list, err = hosts.ParseList(c.String("hosts")); err != nil {
			return nil, "", &usageError{err, "-H host1:2,host2:2"}
		}
		return list, "-H" + instead, nil
	case file == "-":
		return nil, "", &usageError{errors.New("--hostfile -: standard input is rank 0's"), "write the hosts into a file, or name them with -H"}
	case file != "":
		text, err := readShort(file)
		if err != nil {
			return nil, "", &usageError{fmt.Errorf("read hostfile: %w", err), "--hostfile names a file with lines such as: host1 slots=2"}
		}
		if list, err = hosts.ParseFile(string(text)); err != nil {
			return nil, "", &usageError{fmt.Errorf("%s: %w", file, err), "each line is: host slots=N"}
		}
		return list, file + instead, nil
	case allocErr != nil:
		return nil, "", &usageError{allocErr, "name the hosts with -H to pass over the scheduler's"}
	case given != nil:
		return given.Hosts, given.From, nil
	case np > hosts.MaxSlots:
		return nil, "", &usageError{fmt.Errorf("-np %d: more than %d ranks on one host", np, hosts.MaxSlots), "name the hosts with -H"}
	}
	return []hosts.Host{{Name: "localhost", Slots: max(np, 1)}}, "", nil
}

// longest is more than any file of hosts, settings or a key needs; what is longer is another file, or a device.
const longest = 4 << 20

// readShort reads a file that a user has named, and no more of it than it takes to see that it is too long.
func readShort(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longest+1))
	if len(text) > longest {
		return nil, fmt.Errorf("%s is longer than %d MiB", name, longest>>20)
	}
	return text, err
}

// surroundings is where a scheduler's allocation is found.
func surroundings() hosts.World { return hosts.World{Getenv: os.Getenv, ReadFile: readShort} }

// mapOf says in a line for each host which ranks run there.
func mapOf(p plan.Placement) (lines []string) {
	for _, h := range p.Hosts {
		noun := "ranks"
		if len(h.Ranks) == 1 {
			noun = "rank"
		}
		lines = append(lines, fmt.Sprintf("gorun: map: %s has %s %s", h.Name, noun, picture.Ranges(h.Ranks)))
	}
	return lines
}

// policyOf reads how ranks are dealt to hosts.
func policyOf(c *cli.Context) (plan.Policy, error) {
	if err := atMostOne(c, "map-by", "bynode", "byslot"); err != nil {
		return plan.Policy{}, err
	}
	if err := atMostOne(c, "ppn", "pernode", "nproc-per-node"); err != nil {
		return plan.Policy{}, err
	}
	if err := atMostOne(c, "oversubscribe", "nooversubscribe"); err != nil {
		return plan.Policy{}, err
	}
	policy, err := plan.ParsePolicy(c.String("map-by"), c.String("rank-by"))
	if err != nil {
		hint := "--map-by slot, --map-by node or --map-by ppr:2:node"
		if errors.Is(err, plan.ErrRankBy) {
			hint = "--rank-by slot or --rank-by node"
		}
		return policy, &usageError{err, hint}
	}
	policy.MapByNode = policy.MapByNode || c.Bool("bynode")
	policy.RankByNode = policy.RankByNode || c.Bool("bynode") && !c.IsSet("rank-by")
	n, err := perHost(c)
	if err != nil {
		return policy, err
	}
	if n != 0 || c.IsSet("ppn") || c.IsSet("nproc-per-node") {
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

// perHost is how many ranks each host is to have, 0 if nothing is said.
func perHost(c *cli.Context) (int, error) {
	switch {
	case c.Bool("pernode"):
		return 1, nil
	case c.IsSet("nproc-per-node"):
		return nprocPerNode(c)
	}
	return c.Int("ppn"), nil
}

// atMostOne refuses flags that say the same thing in different words.
func atMostOne(c *cli.Context, names ...string) error {
	first := ""
	for _, name := range names {
		switch {
		case !c.IsSet(name):
		case first != "":
			return &usageError{fmt.Errorf("--%s and --%s exclude each other", first, name), ""}
		default:
			first = name
		}
	}
	return nil
}
