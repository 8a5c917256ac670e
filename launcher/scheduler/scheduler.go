// Package scheduler knows the commands by which batch schedulers start a program on the hosts of an allocation: Slurm's
// srun, which starts it on all of them by one command, and those that take one host each, as PBS', LSF's and Grid
// Engine's do. It only decides: package dial runs them.
package scheduler

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gorun/launcher/shellwords"
)

// Launcher is how a program gets started on hosts.
type Launcher struct {
	Name string // as users call it
	// words is the command line; a word that is a placeholder stands for others.
	words []string
	// Shared means that one command starts the program on many hosts.
	Shared bool
	// Exact means that the program gets its words as they are. Other commands may put them together for a shell.
	Exact bool
	// Silent means that what the command reads does not reach the program on the host.
	Silent bool
}

// The placeholders of a command line.
const (
	oneHost = "{host}"
	allOf   = "{hosts}" // with commas
	count   = "{count}"
	program = "{program}"
)

// Ways besides a scheduler's command.
const (
	SSH  = "ssh"
	Auto = "auto"
)

// known are the commands of schedulers, as their manuals describe them.
//
// srun: the step overlaps others, and may use all that the allocation has on each node. Without --mem=0 it would wait
// for memory that other steps hold, without --cpu-bind=none all ranks would share one core, and without --no-kill and
// --kill-on-bad-exit=0 a node or a process that fails would end the others, which is for gorun to decide. --mpi=none:
// gorun serves PMI itself.
var known = []Launcher{
	{Name: "srun", Shared: true, Exact: true, words: []string{"srun", "--overlap", "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1",
		"--nodelist=" + allOf, "--mem=0", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0", "--no-kill",
		"--wait=0", "--disable-status", "--job-name=gorun", program}},
	{Name: "pbsdsh", Silent: true, words: []string{"pbsdsh", "-h", oneHost, "--", program}},
	{Name: "blaunch", words: []string{"blaunch", "-z", oneHost, program}},
	{Name: "qrsh", words: []string{"qrsh", "-inherit", oneHost, program}},
}

// words of other launchers for the same: Hydra's -launcher and -bootstrap.
var also = map[string]string{"slurm": "srun", "pbs": "pbsdsh", "lsf": "blaunch", "sge": "qrsh", "rsh": SSH, "fork": SSH}

// Names are the launchers that have a name.
func Names() []string {
	names := []string{Auto, SSH}
	for _, l := range known {
		names = append(names, l.Name)
	}
	return names
}

// Parse reads the name of a launcher, or a command line with {host}, or with {hosts} and {count}, and {program}. Auto
// and SSH have no command.
func Parse(text string) (Launcher, error) {
	if name := also[text]; name != "" {
		text = name
	}
	if text == "" || text == Auto || text == SSH {
		return Launcher{Name: text}, nil
	}
	for _, l := range known {
		if l.Name == text {
			return l, nil
		}
	}
	words, err := shellwords.Split(text)
	if err != nil {
		return Launcher{}, fmt.Errorf("%q: %w", text, err)
	}
	has := func(what string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, what) })
	}
	switch {
	case len(words) < 2:
		return Launcher{}, fmt.Errorf("%q is none of %s, and no command line", text, strings.Join(Names(), ", "))
	case words[len(words)-1] != program || has(oneHost) == has(allOf):
		return Launcher{}, errors.New("a command line has {host}, or {hosts} for all at once, and ends with {program}")
	}
	return Launcher{Name: words[0], words: words, Shared: has(allOf)}, nil
}

// Runs reports whether there is a command.
func (l Launcher) Runs() bool { return len(l.words) > 0 }

// Program is the name of the command itself.
func (l Launcher) Program() string { return l.words[0] }

// Command returns the command line that starts a program on hosts. more are options of the command for these hosts.
func (l Launcher) Command(hosts, more, what []string) []string {
	var out []string
	for i, word := range l.words {
		if word == program {
			out = append(out, what...)
			continue
		}
		word = strings.ReplaceAll(word, oneHost, hosts[0])
		word = strings.ReplaceAll(word, allOf, strings.Join(hosts, ","))
		word = strings.ReplaceAll(word, count, strconv.Itoa(len(hosts)))
		out = append(out, word)
		if i == 0 {
			out = append(out, more...)
		}
	}
	return out
}

// kept are the variables with which srun finds its job and its controller. Others of Slurm are defaults for options,
// which the step has no use for: with SLURM_MEM_PER_CPU, which sbatch sets, srun refuses --mem.
var kept = []string{"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_HET_SIZE"}

// scheduled matches the variables of schedulers.
var scheduled = regexp.MustCompile(`^(SLURM|PBS|LSB|LSF|SGE|PE)_`)

// Environment returns the environment of the command: the one for ranks, and what the command needs of the launcher's
// own.
func (l Launcher) Environment(ranks, own []string) []string {
	out := slices.Clone(ranks)
	for _, kv := range own {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case l.Name == "srun" && strings.HasPrefix(name, "SLURM_") && !slices.Contains(kept, name) && !strings.HasPrefix(name, "SLURM_JOB_ID_HET_GROUP_"):
		case scheduled.MatchString(name) && !slices.Contains(out, kv):
			out = append(out, kv)
		}
	}
	return out
}

// LostHosts returns the hosts on which a command says that it could not start its program, such as "srun: error: Task
// launch for StepId=2.0 failed on node n2: Communication connection failure".
func LostHosts(said string) (hosts []string) {
	for line := range strings.Lines(said) {
		if _, rest, ok := strings.Cut(line, "Task launch for "); ok {
			if _, node, ok := strings.Cut(rest, " failed on node "); ok {
				name, _, _ := strings.Cut(node, ":")
				hosts = append(hosts, strings.TrimSpace(name))
			}
		}
	}
	return hosts
}

// Hint says what to do about the last lines of a command that failed. A command may give a hint of its own, in a line
// that begins with "hint: ".
func (l Launcher) Hint(said string) string {
	has := func(text string) bool { return strings.Contains(said, text) }
	for line := range strings.Lines(said) {
		if own, ok := strings.CutPrefix(line, "hint: "); ok {
			return strings.TrimSpace(own)
		}
	}
	switch {
	case has("Unable to contact slurm controller"), has("Unable to establish controller"):
		return "is slurmctld up? scontrol ping; or --launcher ssh"
	case has("Invalid job id"), has("already completing or completed"), has("Expired or invalid job"):
		return "the allocation has ended: scontrol show job; make another one by salloc or sbatch"
	case has("Requested nodes are busy"), has("Job step creation temporarily disabled"), has("configuration is not available"):
		return "other steps of the allocation hold what this one needs: start them with srun --overlap"
	case has("Invalid node name"), has("not in this allocation"), has("Requested node"):
		return "name hosts of the allocation only: scontrol show hostnames $SLURM_JOB_NODELIST"
	}
	return "try it by hand: " + l.Program() + " with the program hostname; or reach the hosts by --launcher ssh"
}
