//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMPICH starts an unmodified program of the MPICH family: gorun is what mpiexec would be.
func TestMPICH(t *testing.T) {
	compiler, err := exec.LookPath("mpicc.mpich")
	if err != nil {
		t.Skip("install libmpich-dev and mpich")
	}
	c := newCluster(t, 2)
	program := filepath.Join(c.root, "build", "mpi_ring")
	if out, err := exec.Command(compiler, "-o", program, filepath.Join(c.root, "testdata/mpi/ring.c")).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	// On lab hosts, which are one machine, UCX would take shared memory for a way between them.
	run := func(hosts, how string) result {
		return c.gorun("-np", "4", "-H", hosts, "env", "UCX_TLS=tcp,self", "timeout", "60", program, how)
	}
	for _, hosts := range []string{"host1:4", "host1:2,host2:2", "host1:1,host2:3"} {
		t.Run(hosts, func(t *testing.T) {
			r := run(hosts, "ok")
			if r.code != 0 {
				t.Fatalf("exit code %d\n%s", r.code, r.stderr)
			}
			where := 0
			for rank := range 4 {
				token := []int{6, 1, 3, 6}[rank]
				if line := fmt.Sprintf("token %d, 0 wrong", token); !strings.Contains(r.stdout, fmt.Sprintf("rank %d of 4 on ", rank)) || !strings.Contains(r.stdout, line) {
					t.Errorf("rank %d: want %q in\n%s", rank, line, r.stdout)
				}
			}
			for _, h := range []string{"on host1:", "on host2:"} {
				if strings.Contains(r.stdout, h) {
					where++
				}
			}
			if want := strings.Count(hosts, ",") + 1; where != want {
				t.Errorf("ranks ran on %d hosts, want %d:\n%s", where, want, r.stdout)
			}
		})
	}
	for how, code := range map[string]int{"abort": 7, "crash": 128 + 6} {
		t.Run(how, func(t *testing.T) {
			r := run("host1:2,host2:2", how)
			if r.code != code || !strings.Contains(r.stderr, "rank 3") {
				t.Errorf("exit code %d, want %d and rank 3 named\n%s", r.code, code, r.stderr)
			}
		})
	}
}
