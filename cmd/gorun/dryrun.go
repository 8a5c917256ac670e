package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gorun/launcher"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/launcher/pyenv"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/rankenv"
)

// dryRun shows what a job would be. Of inherited variables it shows the names only: their values may be
// secrets, and the output of a dry run is what people paste into issues.
func dryRun(ctx context.Context, o *jobFlags, programs []program, spec launcher.Spec, tree *wire.Tree, packages *pyenv.Source, elastic bool, notes []string) error {
	if spec.ReportBindings {
		notes = append(notes, "gorun: note: --report-bindings: hosts choose the CPUs; gorun topo shows them before there is a job, with the same -np, -H and --bind-to")
	}
	for _, p := range spec.Programs {
		if _, err := scriptOf(p); err != nil {
			notes = append(notes, fmt.Sprintf("gorun: note: %v: every host needs it there", err))
		}
	}
	for _, note := range notes {
		fmt.Fprintln(os.Stderr, output.Printable(note))
	}
	var b strings.Builder
	if o.maxRestarts > 0 && !elastic {
		spec.Programs = restarted(spec.Programs, 0, o.maxRestarts)
	}
	describeJob(&b, spec, elastic, hereOf(ctx, o, spec), slices.Concat(spec.Env, programs[0].fromFile))
	describeEnv(&b, spec, localEnv(o))
	b.WriteString(describeGiven(tree, packages))
	if o.cluster != "" {
		fmt.Fprintf(&b, "this is where the job runs if no other has slots of the cluster; gorun ps shows who has\n")
	}
	if o.elastic() {
		fmt.Fprintf(&b, "this is how the job begins if every host can be used, those named first before others; it goes on with those that there are\n")
	}
	if len(spec.NICs) > 0 {
		fmt.Fprintf(&b, "data between hosts goes over what each of them has of %s; gorun topo shows it\n", strings.Join(spec.NICs, ","))
	}
	_, err := io.WriteString(o.out, output.PrintableLines(b.String()))
	return err
}

// hereOf returns the variables that ranks on a host get from here: all that ranks on this machine inherit if the host
// is this machine, otherwise those that go to other machines. The daemons of a cluster have variables of their own.
func hereOf(ctx context.Context, o *jobFlags, spec launcher.Spec) func(host string) []string {
	elsewhere, here := plan.UserEnv(spec.Env, true), slices.Concat(localEnv(o), plan.UserEnv(spec.Env, false))
	own := ownNames()
	return func(host string) []string {
		if o.cluster == "" && own(ctx, host) {
			return here
		}
		return elsewhere
	}
}

// describeJob shows which rank runs where, and the variables that differ between ranks. envOf returns what ranks on a
// host get from here; of variables in secret, only the names are shown.
func describeJob(b *strings.Builder, spec launcher.Spec, elastic bool, envOf func(host string) []string, secret []string) {
	p := spec.Placement
	fmt.Fprintf(b, "%s on %s; nothing is started\n", topology.Count(len(p.Ranks), "rank"), topology.Count(len(p.Hosts), "host"))
	for i, h := range p.Hosts {
		fmt.Fprintf(b, "\nhost %d: %s\n", i, h.Name)
		var given []string
		if len(spec.GPUs) > 0 { // only then does it matter, and names may have to be looked up
			given = envOf(h.Name)
		}
		for _, rank := range h.Ranks {
			program := spec.ProgramOf(rank)
			r := wire.Rank{Rank: rank, LocalRank: p.Ranks[rank].LocalRank}
			placed := without(rankenv.Placed(factsOf(p, rank, elastic)), program.Env)
			env := slices.Concat(placed, namesOfInherited(program.Env, secret))
			gpu := strconv.Itoa(r.LocalRank)
			if set, ok := valueOf(slices.Concat(given, program.Env), "CUDA_VISIBLE_DEVICES"); ok && len(spec.GPUs) > 0 {
				gpu = set
			} else if !chosenThere(spec.GPUs) && r.LocalRank < len(spec.GPUs) {
				gpu = spec.GPUs[r.LocalRank]
				env = append(env, "CUDA_VISIBLE_DEVICES="+gpu)
			}
			fmt.Fprintf(b, "  rank %d, local rank %d, in %s\n", rank, r.LocalRank, quoteAll([]string{program.Dir}))
			fmt.Fprintf(b, "    $ %s\n", quoteAll(slices.Concat(r.Fill(spec.Wrapper, gpu), program.Argv)))
			fmt.Fprintf(b, "    %s\n", quoteAll(env))
		}
	}
}

// factsOf returns what the placement determines about a rank.
func factsOf(p plan.Placement, rank int, elastic bool) rankenv.Facts {
	r := p.Ranks[rank]
	host := p.Hosts[r.Host]
	return rankenv.Facts{Job: "JOB", Elastic: elastic, Host: host.Name, Group: r.Host, Groups: len(p.Hosts), Process: rank, Rank: rank, Size: len(p.Ranks),
		LocalRank: r.LocalRank, LocalSize: len(host.Ranks), CrossRank: r.CrossRank, CrossSize: r.CrossSize}
}

// sampleFacts stands for the facts that daemons find out: before they run, only the names of the resulting variables
// are certain.
func sampleFacts(spec launcher.Spec) rankenv.Facts {
	f := rankenv.Facts{Dir: "/", Counters: "/proc", Stacks: "/proc", NICs: spec.NICs, Coordinator: "host:1", PMI: &rankenv.PMI{},
		GPUPath: spec.GPUPath}
	if spec.PMIPort {
		f.PMI.Port = "host:1"
	}
	if spec.TF {
		f.Workers = []string{"host:1"}
	}
	if spec.JAX != "" {
		f.MPILibrary = "/proc/1/fd/3"
	}
	if !spec.Shim {
		f.Stock = &rankenv.Stock{NIC: "eth0"}
	}
	if chosenThere(spec.GPUs) {
		f.GPU = "0"
	}
	if spec.Bind.To == topology.BindCore || spec.Bind.To == topology.BindThread {
		f.SpareCPUs = []int{0}
	}
	return f
}

// chosenThere reports whether each host chooses from the GPUs that it has.
func chosenThere(gpus []string) bool { return slices.Equal(gpus, []string{"auto"}) }

// describeEnv names the variables that all ranks have beside the ones of describeJob. local is the environment of a
// daemon on this machine.
func describeEnv(b *strings.Builder, spec launcher.Spec, local []string) {
	everywhere := names(plan.UserEnv(spec.Env, true))
	facts := sampleFacts(spec)
	always, unlessSet := rankenv.Names(facts, rankenv.Fixed), rankenv.Names(facts, rankenv.Default)
	fmt.Fprintf(b, "\nthe daemons add %s; and unless it is set %s\n", strings.Join(always, " "), strings.Join(unlessSet, " "))
	fmt.Fprintf(b, "passed on from here: %s\n", listed(everywhere))
	here := names(slices.Concat(local, plan.UserEnv(spec.Env, false)))
	maps.DeleteFunc(here, func(name string, _ bool) bool { return everywhere[name] || slices.Contains(always, name) })
	fmt.Fprintf(b, "to ranks on this machine also: %s\n", listed(here))
}

// valueOf returns the value of a variable in an environment, in which the last one counts.
func valueOf(env []string, name string) (value string, ok bool) {
	for _, kv := range env {
		if rest, is := strings.CutPrefix(kv, name+"="); is {
			value, ok = rest, true
		}
	}
	return value, ok
}

// without returns the variables that another environment does not set.
func without(env, other []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, set := valueOf(other, name)
		return set
	})
}

// names returns which variables an environment has.
func names(env []string) map[string]bool {
	out := map[string]bool{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		out[name] = true
	}
	return out
}

func listed(names map[string]bool) string {
	return quoteAll(slices.Sorted(maps.Keys(names)))
}

// namesOfInherited leaves out the values that came with the environment.
func namesOfInherited(env, inherited []string) []string {
	var out []string
	for _, kv := range env {
		if slices.Contains(inherited, kv) {
			kv, _, _ = strings.Cut(kv, "=")
		}
		out = append(out, kv)
	}
	return out
}

// quoteAll writes words as a shell would read them, and as bash would those that a terminal must not get as they are.
func quoteAll(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if strings.ContainsFunc(w, func(r rune) bool { return !strconv.IsPrint(r) }) || !utf8.ValidString(w) {
			coded := strconv.Quote(w)
			w = "$'" + strings.ReplaceAll(coded[1:len(coded)-1], "'", `\'`) + "'"
		} else if w == "" || strings.ContainsAny(w, " \t\n\"'\\$`|&;<>()*?[]#~!{}") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out[i] = w
	}
	return strings.Join(out, " ")
}
