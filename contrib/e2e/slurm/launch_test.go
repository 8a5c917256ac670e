package slurm

import (
	"slices"
	"strings"
	"testing"
)

// whoami prints the rank, its host and what must not or must be in its environment.
const whoami = `echo "$RANK of $WORLD_SIZE on $(hostname) ${SLURM_JOB_ID-scrubbed} ${SLURM_PROCID-scrubbed}"`

// TestSalloc: in an allocation gorun starts its daemons by one step of srun, without -H, -np or ssh.
func TestSalloc(t *testing.T) {
	c := newSlurm(t, 2, 4)
	for _, h := range c.Hosts() { // sshd has no key that fits any more
		if out, err := h.Exec(t.Context(), "rm", "-r", "/root/.ssh"); err != nil {
			t.Fatal(err, out)
		}
	}
	r := c.salloc([]string{"-N2", "--ntasks-per-node=2"}, "-v", "--no-tag-output", "sh", "-c", whoami)
	want := []string{"0 of 4 on host1 scrubbed scrubbed", "1 of 4 on host1 scrubbed scrubbed",
		"2 of 4 on host2 scrubbed scrubbed", "3 of 4 on host2 scrubbed scrubbed"}
	if r.Code != 0 || !slices.Equal(lines(r.Stdout), want) {
		t.Errorf("exit code %d, got %q, want %q\n%s", r.Code, lines(r.Stdout), want, r.Stderr)
	}
	if !strings.Contains(r.Stderr, "Slurm job") {
		t.Errorf("-v does not say where the hosts are from:\n%s", r.Stderr)
	}
}

// TestResources: ranks are in the step, so Slurm knows them, and they see the GPUs of the allocation.
func TestResources(t *testing.T) {
	c := newSlurm(t, 2, 4)
	for options, want := range map[string]string{"--gres=gpu:1": "gpu 0", "--gres=none": "gpu none"} {
		r := c.salloc([]string{"-N2", "--ntasks-per-node=1", options}, "--no-tag-output", "sh", "-c", "echo gpu ${CUDA_VISIBLE_DEVICES-none}; [ $RANK = 1 ] || SLURM_CONF="+c.conf+" scontrol listpids")
		if r.Code != 0 || strings.Count(r.Stdout, want+"\n") != 2 {
			t.Errorf("%s: exit code %d, got %q, want %q twice\n%s", options, r.Code, r.Stdout, want, r.Stderr)
		}
		steps := 0 // processes of step 0: the step process, supervisor, daemon, rank
		for line := range strings.Lines(r.Stdout) {
			if words := strings.Fields(line); len(words) > 2 && words[2] == "0" {
				steps++
			}
		}
		if steps < 4 {
			t.Errorf("Slurm knows %d processes of the step:\n%s", steps, r.Stdout)
		}
	}
}
