//go:build linux

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMPIJob is the launcher of a Kubeflow MPIJob: the operator's hostfile and variables, its way of mpirun's
// flags, no -np and no -H, and a worker that is up only after the launcher has started.
func TestMPIJob(t *testing.T) {
	c := newCluster(t, 2)
	late := c.Host(2)
	if err := late.PowerOff(); err != nil {
		t.Fatal(err)
	}
	const script = `printf 'host1 slots=2\nhost2 slots=2\n' >"$HOME/hostfile"
export K_MPI_JOB_ROLE=launcher OMPI_MCA_orte_default_hostfile="$HOME/hostfile" OMPI_MCA_orte_keep_fqdn_hostnames=true \
	OMPI_MCA_plm_rsh_args='-o ConnectionAttempts=10' OMPI_MCA_orte_set_default_slots=2
"$0" --allow-run-as-root -mca pml ob1 --no-tag-output sh -c 'echo $HOROVOD_HOSTNAME $RANK of $WORLD_SIZE ${OMPI_MCA_orte_default_hostfile-scrubbed}'
status=$?
rm "$HOME/hostfile"
exit $status`
	var stdout, stderr bytes.Buffer
	cmd := c.Launcher().Command(t.Context(), "sh", "-c", script, c.binary)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := late.Boot(t.Context()); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	slices.Sort(lines)
	want := []string{"host1 0 of 4 scrubbed", "host1 1 of 4 scrubbed", "host2 2 of 4 scrubbed", "host2 3 of 4 scrubbed"}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q\n%s", lines, want, stderr.String())
	}
	c.expectNothingLeft(5 * time.Second)
}
