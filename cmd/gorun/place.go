package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"gorun/launcher/hosts"
	"gorun/launcher/plan"
	"gorun/launcher/why"
)

// placeTable binds the flags for how many ranks run, and where.
func (o *jobFlags) placeTable() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "np", Destination: &o.np, Aliases: []string{"n", "num-proc", "c"},
			Usage: "start `N` ranks", DefaultText: "one for every slot"},
		&cli.StringFlag{Name: "hosts", Destination: &o.hosts, Aliases: []string{"H", "host"},
			Usage: "`LIST` of hosts and their slots: host1:2,user@host2:4,node[01-16]:8", DefaultText: "this machine"},
		&cli.PathFlag{Name: "hostfile", Destination: &o.hostfile, Aliases: []string{"machinefile"},
			Usage: "read the hosts from `FILE`, a line each: host slots=N, or host:N"},
		&cli.PathFlag{Name: "hydra-hostfile", Destination: &o.hydraHostfile, Aliases: []string{"f"},
			Usage: "read the hosts from `FILE`: Hydra's --hostfile", Hidden: true},
		&cli.IntFlag{Name: "ppn", Destination: &o.ppn, Aliases: []string{"npernode", "N", "ntasks-per-node", "perhost"},
			Usage: "`N` ranks on each host, whatever its slots", DefaultText: "one for each slot"},
		&cli.StringFlag{Name: "map-by", Destination: &o.mapBy,
			Usage: "deal ranks to hosts by `HOW`: slot (fill one host after the other), node (in turn), ppr:N:node; with :oversubscribe, :PE=N (cores for each)", DefaultText: "slot"},
		&cli.StringFlag{Name: "rank-by", Destination: &o.rankBy,
			Usage: "number ranks by `HOW`: slot (host by host) or node (across the hosts)", DefaultText: "as they are dealt"},
		&cli.BoolFlag{Name: "oversubscribe", Destination: &o.oversubscribe, Usage: "allow more ranks than slots"},
		&cli.BoolFlag{Name: "nooversubscribe", Destination: &o.noOversubscribe,
			Usage: "Open MPI's word for no --oversubscribe", Hidden: true},
		&cli.BoolFlag{Name: "display-map", Destination: &o.displayMap,
			Usage: "tell which ranks run on which host before they start", Hidden: true},
		&cli.BoolFlag{Name: "pernode", Destination: &o.pernode, Usage: "Open MPI's -ppn 1", Hidden: true},
		&cli.BoolFlag{Name: "bynode", Destination: &o.byNode, Usage: "Open MPI's --map-by node", Hidden: true},
		&cli.BoolFlag{Name: "byslot", Destination: &o.bySlot, Usage: "Open MPI's --map-by slot", Hidden: true},
	}
}

// place reads -np, and which hosts there are.
func place(o *jobFlags) (plan.Placement, error) {
	p, _, err := placeRanks(o, o.np)
	return p, err
}

// placeRanks deals np ranks to the hosts, or one to every slot if np is 0. It also returns where the hosts are from.
func placeRanks(o *jobFlags, np int) (p plan.Placement, from string, err error) {
	if err := checkRanks(o); err != nil {
		return p, "", err
	}
	list, from, policy, err := whereAndHow(o, np)
	if err != nil {
		return p, "", err
	}
	p, err = plan.Place(list, np, policy)
	return p, from, err
}

// checkRanks refuses an -np that is none.
func checkRanks(o *jobFlags) error {
	if n := o.np; o.given(&o.np) && n < 1 {
		return &usageError{fmt.Errorf("-np %d: must be at least 1", n), "without -np there is a rank for each slot of the hosts"}
	}
	return nil
}

// whereAndHow returns the hosts for np ranks, where they are from, and how ranks are dealt to them.
func whereAndHow(o *jobFlags, np int) (list []hosts.ListedHost, from string, policy plan.Policy, err error) {
	if list, from, err = hostList(o, np); err == nil {
		err = cmp.Or(checkNodes(o, len(list)), checkRoom(list, np))
	}
	if err == nil {
		policy, err = policyOf(o)
	}
	return list, from, policy, err
}

// placePrograms is placeRanks for the programs of a job. Some may have hosts of their own.
func placePrograms(o *jobFlags, np int, programs []program) (p plan.Placement, from string, err error) {
	if !haveHosts(programs) {
		return placeRanks(o, np)
	}
	for _, x := range programs {
		if x.hosts != nil {
			np -= x.Ranks
		}
	}
	list, from, policy, err := whereAndHow(o, np)
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

// hostList finds the hosts: a flag names them, or else a batch scheduler or an MPIJob, or else it is this machine.
func hostList(o *jobFlags, np int) (list []hosts.ListedHost, from string, err error) {
	file := cmp.Or(o.hostfile, o.hydraHostfile)
	given, allocErr := hosts.Allocated(surroundings())
	instead := ""
	if given != nil {
		instead = ", not from " + given.From
	}
	switch {
	case o.given(&o.hosts) && file != "":
		return nil, "", &usageError{errors.New("-H and --hostfile exclude each other"), "name the hosts in one place"}
	case o.given(&o.hosts):
		if list, err = hosts.ParseList(o.hosts); err != nil {
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
		return nil, "", &usageError{allocErr, "name the hosts with -H instead of using the scheduler's"}
	case given != nil:
		return given.Hosts, given.From, nil
	}
	list = []hosts.ListedHost{{Name: "localhost", Slots: max(np, 1)}}
	return list, "", checkRoom(list, np)
}

// checkRoom refuses so many ranks that a host would have more than any can run.
func checkRoom(list []hosts.ListedHost, np int) error {
	if np > hosts.MaxSlots*len(list) {
		return &usageError{fmt.Errorf("-np %d: more than %d ranks on one host", np, hosts.MaxSlots), "-H names more hosts"}
	}
	return nil
}

// mapOf returns a line for each host, with its ranks.
func mapOf(p plan.Placement) (lines []string) {
	for _, h := range p.Hosts {
		lines = append(lines, fmt.Sprintf("gorun: map: %s has %s", h.Name, why.Ranks(h.Ranks)))
	}
	return lines
}

// policyOf reads how ranks are dealt to hosts.
func policyOf(o *jobFlags) (plan.Policy, error) {
	if err := o.atMostOne(&o.mapBy, &o.byNode, &o.bySlot); err != nil {
		return plan.Policy{}, err
	}
	if err := o.atMostOne(&o.ppn, &o.pernode, &o.nprocPerNode); err != nil {
		return plan.Policy{}, err
	}
	if err := o.atMostOne(&o.oversubscribe, &o.noOversubscribe); err != nil {
		return plan.Policy{}, err
	}
	policy, err := plan.ParsePolicy(o.mapBy, o.rankBy)
	if err != nil {
		hint := "--map-by slot, --map-by node or --map-by ppr:2:node"
		if errors.Is(err, plan.ErrRankBy) {
			hint = "--rank-by slot or --rank-by node"
		}
		return policy, &usageError{err, hint}
	}
	policy.MapByNode = policy.MapByNode || o.byNode
	policy.RankByNode = policy.RankByNode || o.byNode && !o.given(&o.rankBy)
	n, err := perHost(o)
	if err != nil {
		return policy, err
	}
	if n != 0 || o.given(&o.ppn) || o.given(&o.nprocPerNode) {
		if n < 1 || n > hosts.MaxSlots {
			return policy, &usageError{fmt.Errorf("-ppn %d: must be 1 to %d", n, hosts.MaxSlots), ""}
		}
		if policy.PerHost > 0 && policy.PerHost != n {
			return policy, &usageError{fmt.Errorf("-ppn %d and --map-by %s exclude each other", n, o.mapBy), ""}
		}
		policy.PerHost = n
	}
	policy.Oversubscribe = policy.Oversubscribe || o.oversubscribe
	return policy, nil
}

// perHost returns how many ranks each host should have, 0 if the flags do not determine it.
func perHost(o *jobFlags) (int, error) {
	switch {
	case o.pernode:
		return 1, nil
	case o.given(&o.nprocPerNode):
		return nprocPerNode(o)
	}
	return o.ppn, nil
}

// hostNames returns the names of the hosts of a placement.
func hostNames(p plan.Placement) (names []string) {
	for _, h := range p.Hosts {
		names = append(names, h.Name)
	}
	return names
}
