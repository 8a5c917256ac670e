package main

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/topology/facts"
)

// topic is a page of gorun help. Its flags are those whose category has its name.
type topic struct {
	name, title string
	about       string // paragraphs above the flags
	peer        bool   // another launcher has its flags, which are hidden elsewhere
}

// topics are in the order of gorun help flags.
var topics = []topic{
	{name: "hosts", title: "Hosts and ranks", about: "A job runs on the hosts of -H or --hostfile, on those that a batch scheduler (Slurm, LSF, PBS, Grid Engine) or " +
		"a Kubernetes MPIJob gave it, or on this machine. Each host has slots; without -np there is one rank for each.\n" +
		"  gorun -np 4 -H host1:2,host2:2 python train.py\n  gorun -ppn 8 --hostfile hosts python train.py"},
	{name: "binding", title: "Binding ranks to CPUs", about: "gorun topo -np N --bind-to WHAT shows which CPUs each rank would get."},
	{name: "ssh", title: "Reaching hosts", about: "Hosts need sshd and nothing else: gorun brings itself along. It has an ssh client of its own, which reads " +
		"~/.ssh/config, keys, agents and known_hosts. gorun doctor -H host1,host2 finds what is wrong with a host."},
	{name: "cluster", title: "Clusters", about: "Hosts with a resident daemon (gorun worker --cluster-key-file FILE) form a cluster, which has a queue and needs no ssh.\n" +
		"  gorun --cluster host1 --cluster-key-file key -np 8 python train.py\n  gorun ps --cluster host1 --cluster-key-file key"},
	{name: "kubernetes", title: "Kubernetes", about: "gorun makes a JobSet, shows the job's output, hands on its exit status and deletes all of it. It finds the cluster as kubectl does.\n" +
		"  gorun --kubernetes --image IMAGE -np 4 --slots-per-host 2 python train.py"},
	{name: "program", title: "The program and its environment", about: "Ranks get the environment of this shell. " +
		"gorun adds its own, which --dry-run shows.\n  gorun -np 1 python first.py : -np 3 python others.py"},
	{name: "output", title: "Output, input and events", about: "Each line of a rank has its number before it. Rank 0 reads standard input."},
	{name: "time", title: "Limits of time", about: "A TIME is a number of seconds, or has a unit: 90, 1m30s, 2h."},
	{name: "network", title: "Data between hosts", about: "gorun topo -H host1,host2 --measure and gorun bench show what the network gives."},
	{name: "topology", title: "Topology", about: "The order of the hosts in the ring follows what machines report, what was measured, and what a file says: gorun help topology-file."},
	{name: "elastic", title: "Elastic jobs and restarts", about: "With --min-np or --host-discovery-script a job goes on when ranks and hosts are lost, and grows when hosts appear. The program keeps " +
		"its state in hvd.elastic.run or gorun.elastic.\n  gorun -np 4 --min-np 2 -H host1:2,host2:2 python train.py"},
	{name: "moves", title: "Hosts that are silent or move", about: "A virtual machine is silent while vMotion moves it. gorun waits for it, longer where the move was announced."},
	{name: "job", title: "Ways to run", about: "gorun ps, top, logs, attach and stop are for jobs that run."},
	{name: settingsTopic, title: "Settings", about: "Few jobs need these. --set KEY=VALUE gives one its value, once for each; --KEY VALUE does the same.\n" +
		"  gorun --set grace=10 --set algorithm=ring -np 4 python train.py"},
	{name: "horovodrun", title: "Flags of horovodrun", peer: true, about: "A link to gorun with the name horovodrun takes that command's place. gorun takes its flags too."},
	{name: "mpirun", title: "Flags of mpirun and mpiexec", peer: true, about: "Command lines of Open MPI and Hydra (MPICH, Intel MPI) work as they are. MPI programs run too."},
	{name: "torchrun", title: "Flags of torchrun", peer: true, about: "Ranks get RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. One gorun starts all hosts."},
	{name: "topology-file", title: "The topology file"},
	{name: "environment", title: "Environment variables"},
	{name: "exit-status", title: "Exit status", about: exitCodeText()},
}

// topicNames are what gorun help takes beside commands and flags.
func topicNames() (names []string) {
	for _, t := range topics {
		names = append(names, t.name)
	}
	return names
}

func findTopic(name string) *topic {
	if i := slices.IndexFunc(topics, func(t topic) bool { return t.name == name }); i >= 0 {
		return &topics[i]
	}
	return nil
}

// flagsOf returns the topic's part of flags.
func (t topic) flagsOf(flags []cli.Flag) []cli.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f cli.Flag) bool {
		visible := f.(cli.VisibleFlag).IsVisible()
		return *category(f) != t.name || !visible && !t.peer
	})
}

// write writes the page of a topic.
func (t topic) write(w io.Writer, flags []cli.Flag) {
	fmt.Fprintf(w, "%s\n\n", t.title)
	switch t.name {
	case "topology-file":
		writeFormat(w)
		return
	case "environment":
		writeVariables(w, flags)
		return
	}
	paragraphs(w, t.about)
	if flags := t.flagsOf(flags); len(flags) > 0 {
		fmt.Fprint(w, "\nFlags (one dash or two; they go before the program):\n")
		writeFlags(w, flags)
	}
}

// allFlags writes the flags of a launch by topic.
func allFlags(w io.Writer, flags []cli.Flag) {
	fmt.Fprint(w, "Flags of gorun (one dash or two; they go before the program). gorun help TOPIC\nexplains more.\n")
	var peers []string
	for _, t := range topics {
		if t.peer {
			peers = append(peers, t.name)
		}
		if t.peer || t.name == settingsTopic {
			continue
		}
		if flags := t.flagsOf(flags); len(flags) > 0 {
			fmt.Fprintf(w, "\n%s (gorun help %s):\n", t.title, t.name)
			writeFlags(w, flags)
		}
	}
	fmt.Fprint(w, "\nWhat few jobs need is tuned by --set KEY=VALUE: gorun help settings.\n")
	fmt.Fprintf(w, "Flags of other launchers are taken too: gorun help %s.\n", strings.Join(peers, ", "))
}

// about gives flags a topic. Hidden ones without a topic are words of mpirun for what gorun has flags for.
func about(name string, flags []cli.Flag) []cli.Flag {
	for _, f := range flags {
		of := category(f)
		hidden := !f.(cli.VisibleFlag).IsVisible()
		switch {
		case *of != "":
		case hidden && findTopic(name) != nil && !findTopic(name).peer:
			*of = "mpirun"
		default:
			*of = name
		}
	}
	return flags
}

// category is the field of a flag, of whatever type, that has its topic, and usage the one that has its meaning.
func category(f cli.Flag) *string { return textOf(f, "Category") }
func usage(f cli.Flag) *string    { return textOf(f, "Usage") }

func textOf(f cli.Flag, field string) *string {
	return reflect.ValueOf(f).Elem().FieldByName(field).Addr().Interface().(*string)
}

// reworded gives flags, by name, the meaning that they have for a command.
func reworded(flags []cli.Flag, meanings map[string]string) []cli.Flag {
	for _, f := range flags {
		if meaning := meanings[f.Names()[0]]; meaning != "" {
			*usage(f) = meaning
		}
	}
	return flags
}

// writeFormat is gorun help topology-file.
func writeFormat(w io.Writer) {
	fmt.Fprint(w, "A YAML file with what machines do not tell, for --topology:\n\n")
	for line := range strings.Lines(facts.Example) {
		fmt.Fprint(w, "  "+line)
	}
	in := ""
	for _, k := range facts.Keys {
		if k.In != in {
			in = k.In
			fmt.Fprintf(w, "\nKeys of %s:\n", in)
		}
		wrap(w, fmt.Sprintf("%-12s%s (%s)", k.Name, k.Meaning, k.Value), 2, 14)
	}
}
