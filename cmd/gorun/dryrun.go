package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/plan"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// dryRun shows what a job would be. Of inherited variables it shows the names only: their values may be
// secrets, and the output of a dry run is what people paste into issues.
func dryRun(c *cli.Context, spec launcher.Spec) error {
	var b strings.Builder
	describeJob(&b, spec)
	if nics := nicsOf(c); len(nics) > 0 {
		fmt.Fprintf(&b, "data between hosts goes over what each of them has of %s; gorun topo shows it\n", strings.Join(nics, ","))
	}
	_, err := io.WriteString(c.App.Writer, b.String())
	return err
}

func describeJob(b *strings.Builder, spec launcher.Spec) {
	p := spec.Placement
	fmt.Fprintf(b, "%s on %s; nothing is started\n", topology.Count(len(p.Ranks), "rank"), topology.Count(len(p.Hosts), "host"))
	for i, h := range p.Hosts {
		fmt.Fprintf(b, "\nhost %d: %s\n", i, h.Name)
		for _, rank := range h.Ranks {
			program := spec.ProgramOf(rank)
			r := wire.Rank{Rank: rank, LocalRank: p.Ranks[rank].LocalRank}
			fmt.Fprintf(b, "  rank %d, local rank %d, in %s\n", rank, r.LocalRank, program.Dir)
			fmt.Fprintf(b, "    $ %s\n", quoteAll(slices.Concat(r.Fill(spec.Wrapper, strconv.Itoa(r.LocalRank)), program.Argv)))
			fmt.Fprintf(b, "    %s\n", quoteAll(slices.Concat(p.Env(rank, "JOB"), namesOfInherited(program.Env, spec.Env))))
		}
	}
	fmt.Fprintf(b, "\nthe daemons add MASTER_ADDR MASTER_PORT PYTHONPATH OMP_NUM_THREADS\n")
	var names []string
	for _, kv := range plan.UserEnv(spec.Env, true) {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(b, "passed on from here: %s\n", strings.Join(slices.Compact(names), " "))
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

// quoteAll writes words as a shell would read them.
func quoteAll(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n\"'\\$`|&;<>()*?[]#~!{}") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out[i] = w
	}
	return strings.Join(out, " ")
}
