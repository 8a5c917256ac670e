package slurm

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

var rounds = flag.Int("rounds", 1, "how often TestBesideSrun measures each launch")

// measured runs a command: the function prints the way, the exit status, and the microseconds until all ranks were up, or until
// the end where the program does not say when that was.
const measured = `
measure() {
  way=$1; shift
  begin=$(date +%s%N)
  said=$("$@" 2>launch.err); status=$?
  end=$(date +%s%N)
  [ $status = 0 ] || cat launch.err >&2
  up=$(echo "$said" | sed -n 's/.* ranks up at //p')
  printf '%s\t%s\t%s\n' "$way" $status $(((${up:-$end} - begin) / 1000))
}
`

// TestBesideSrun launches 64 ranks by gorun over srun and over ssh, and by srun itself, in turns, and shows how long each
// takes. In the first round, which does not count, ssh brings the binary to the hosts.
func TestBesideSrun(t *testing.T) {
	long(t)
	const nodes, each = 4, 16
	c := newSlurm(t, nodes, each)
	e2etest.Compile(t, "mpicc.mpich", "libmpich-dev and mpich", "-O1", "-o", filepath.Join(c.dir, "up"), filepath.Join(c.Root, "testdata/mpi/up.c"))
	ways := []struct{ name, command string }{
		{"gorun --launcher srun", `"$0" --launcher srun`},
		{"gorun --launcher ssh", `"$0" --launcher ssh`},
		{"srun --mpi=pmi2", fmt.Sprintf("srun --mpi=pmi2 -n%d --cpu-bind=none", nodes*each)},
	}
	for _, what := range []struct{ name, command string }{
		{"true", "/bin/true"},
		{"MPICH", "env UCX_TLS=tcp,self ./up"}, // lab hosts are one machine, and UCX would take shared memory for a way between them
	} {
		t.Run(what.name, func(t *testing.T) {
			script := "cd " + c.dir + "\n" + measured
			for range *rounds + 1 {
				for _, way := range ways {
					script += fmt.Sprintf("measure '%s' %s %s\n", way.name, way.command, what.command)
				}
			}
			r := c.slurm("salloc", "-Q", fmt.Sprintf("-N%d", nodes), fmt.Sprintf("--ntasks-per-node=%d", each), "sh", "-c", script, c.Binary)
			c.nothingLeft()
			for _, way := range ways {
				all := durations(r.Stdout, way.name)
				if len(all) != *rounds+1 {
					t.Fatalf("%s has not succeeded each time:\n%s\n%s", way.name, r.Stdout, r.Stderr)
				}
				all = slices.Sorted(slices.Values(all[1:]))
				t.Logf("%s, %d ranks on %d nodes, %s: %d (%d–%d) ms", what.name, nodes*each, nodes, way.name, all[len(all)/2], all[0], all[len(all)-1])
			}
		})
	}
}

// durations returns the milliseconds of each launch of a way that has succeeded, as measure has printed them.
func durations(text, way string) (all []int) {
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 && f[0] == way && f[1] == "0" {
			if us, err := strconv.Atoi(f[2]); err == nil {
				all = append(all, us/1000)
			}
		}
	}
	return all
}
