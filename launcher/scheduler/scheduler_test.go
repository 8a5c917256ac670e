package scheduler_test

import (
	"slices"
	"strings"
	"testing"

	"gorun/launcher/scheduler"
)

// TestCommand: the command line of each launcher.
func TestCommand(t *testing.T) {
	for _, c := range []struct{ launcher, hosts, want string }{
		{"srun", "n1,n2", "srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n1,n2 --mem=0 --cpu-bind=none --mpi=none" +
			" --kill-on-bad-exit=0 --no-kill --wait=0 --disable-status --job-name=gorun prog arg"},
		{"slurm", "n1", "srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 --mem=0 --cpu-bind=none --mpi=none" +
			" --kill-on-bad-exit=0 --no-kill --wait=0 --disable-status --job-name=gorun prog arg"},
		{"pbsdsh", "n1", "pbsdsh -h n1 -- prog arg"},
		{"pbs", "n1", "pbsdsh -h n1 -- prog arg"},
		{"blaunch", "n1", "blaunch -z n1 prog arg"},
		{"qrsh", "n1", "qrsh -inherit n1 prog arg"},
		{"rsh -n {host} {program}", "n1", "rsh -n n1 prog arg"},
		{"'my python' -m x {host} {program}", "n1", "my python -m x n1 prog arg"},
		{"pdsh -w {hosts} -f {count} {program}", "n1,n2", "pdsh -w n1,n2 -f 2 prog arg"},
	} {
		l, err := scheduler.Parse(c.launcher)
		if err != nil || !l.Runs() {
			t.Errorf("%s: %v", c.launcher, err)
			continue
		}
		got := strings.Join(l.Command(strings.Split(c.hosts, ","), nil, []string{"prog", "arg"}), " ")
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.launcher, got, c.want)
		}
	}
	l, _ := scheduler.Parse("srun")
	if got := l.Command([]string{"n1"}, []string{"--het-group=1"}, []string{"p"}); got[1] != "--het-group=1" {
		t.Errorf("options of a part: %q", got)
	}
}

func TestParse(t *testing.T) {
	for _, name := range []string{"", "auto", "ssh", "rsh", "fork"} {
		if l, err := scheduler.Parse(name); err != nil || l.Runs() {
			t.Errorf("%q: %v, %v", name, l, err)
		}
	}
	for text, want := range map[string]string{
		"jsrun":                         "is none of auto, ssh, srun",
		"prun {program}":                "a command line has {host}",
		"prun {host} {hosts} {program}": "a command line has {host}",
		"prun {host}":                   "ends with {program}",
		"'prun {host} {program}":        "' without an end",
	} {
		if _, err := scheduler.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzParse: whatever users write, a launcher that runs something has a command line with the host and the program.
func FuzzParse(f *testing.F) {
	f.Add("srun")
	f.Add("a {host} {program}")
	f.Add("{hosts} {program}")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := scheduler.Parse(text)
		if err != nil || !l.Runs() {
			return
		}
		if got := l.Command([]string{"HOST"}, nil, []string{"PROGRAM"}); got[len(got)-1] != "PROGRAM" || !strings.Contains(strings.Join(got, " "), "HOST") {
			t.Errorf("%q: %q", text, got)
		}
	})
}

// TestEnvironment: what Slurm has set as a default for options would change the step, or have it refused.
func TestEnvironment(t *testing.T) {
	l, _ := scheduler.Parse("srun")
	own := []string{"PATH=/bin", "SLURM_JOB_ID=7", "SLURM_CONF=/c", "SLURM_MEM_PER_CPU=10", "SLURM_NTASKS=4", "SLURM_JOB_ID_HET_GROUP_1=8", "PBS_JOBID=1"}
	got := l.Environment([]string{"PATH=/bin", "A=1"}, own)
	if want := []string{"PATH=/bin", "A=1", "SLURM_JOB_ID=7", "SLURM_CONF=/c", "SLURM_JOB_ID_HET_GROUP_1=8", "PBS_JOBID=1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSaid: what a command says about hosts that it cannot reach.
func TestSaid(t *testing.T) {
	const said = `srun: error: Task launch for StepId=2.0 failed on node n2: Communication connection failure
srun: error: Application launch failed: Communication connection failure
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
`
	if got := scheduler.LostHosts(said); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("got %q", got)
	}
	l, _ := scheduler.Parse("srun")
	for said, want := range map[string]string{
		"srun: error: Unable to create step for job 7: Job/step already completing or completed": "the allocation has ended",
		"srun: error: Unable to contact slurm controller (connect failure)":                      "is slurmctld up?",
		"srun: error: Unable to create step for job 7: Requested nodes are busy":                 "other steps of the allocation",
		"srun: error: Unable to create step for job 7: Invalid node name specified":              "name hosts of the allocation only",
		"srun: error: something else":  "try it by hand",
		"hint: ask the admin\nno host": "ask the admin",
	} {
		if got := l.Hint(said); !strings.Contains(got, want) {
			t.Errorf("%q: %q", said, got)
		}
	}
}
