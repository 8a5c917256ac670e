package hosts

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Allocation is the list of hosts that a batch scheduler, or an MPIJob, assigned to this job.
type Allocation struct {
	From  string // "Slurm job 17", for the user
	Hosts []ListedHost
	// Steps means that the scheduler itself runs here, as its variables alone do not show: its command can be expected to
	// reach the hosts.
	Steps bool
	// Groups has the number of the part that each host belongs to, if Slurm's job is heterogeneous; nil if it is not.
	Groups map[string]int
}

// Surroundings gives Allocated access to environment variables and files.
type Surroundings struct {
	Getenv   func(name string) string
	ReadFile func(name string) ([]byte, error)
}

// hostfileVariables name a hostfile, by the tools that set them; Kubeflow's MPIJobs set the one of their MPI
// implementation.
var hostfileVariables = []string{"GORUN_HOSTFILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",
	"I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"}

// mpiJobHostfile is the path of an MPIJob's hostfile in any case.
const mpiJobHostfile = "/etc/mpi/hostfile"

// Allocated returns the hosts that this process was assigned, nil if there are none.
func Allocated(w Surroundings) (*Allocation, error) {
	for _, find := range []func(Surroundings) (*Allocation, error){named, slurm, lsf, pbs, sge} {
		if a, err := find(w); a != nil || err != nil {
			return a, err
		}
	}
	return nil, nil
}

// InMPIJob reports whether this is the launcher of a Kubeflow MPIJob, whose workers may not be up yet.
func InMPIJob(w Surroundings) bool { return w.Getenv("K_MPI_JOB_ROLE") == "launcher" }

// named reads a hostfile that the environment names.
func named(w Surroundings) (*Allocation, error) {
	for _, name := range hostfileVariables {
		if file := w.Getenv(name); file != "" {
			return fromFile(w, file, "$"+name)
		}
	}
	if InMPIJob(w) {
		return fromFile(w, mpiJobHostfile, "the MPIJob")
	}
	return nil, nil
}

// DefaultSlots returns the slots of a host whose line has no number, as the environment sets them for Open MPI and
// Intel MPI; 0 if it does not. The lines of an MPIJob's discover_hosts.sh never have a number.
func DefaultSlots(w Surroundings) int {
	slots, _ := parseSlots(cmp.Or(w.Getenv("OMPI_MCA_orte_set_default_slots"), w.Getenv("I_MPI_PERHOST"))) // invalid text yields 0
	return slots
}

func fromFile(w Surroundings, file, why string) (*Allocation, error) {
	text, err := w.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read hostfile of %s: %w", why, err)
	}
	list, err := ParseFile(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range list {
		list[i].Slots = cmp.Or(list[i].Slots, DefaultSlots(w))
	}
	return &Allocation{From: fmt.Sprintf("%s (%s)", file, why), Hosts: list}, nil
}

// slurm reads compact node lists and counts: node[01-03],gpu7 and 2(x3),1. A heterogeneous job has them for each of its
// parts.
func slurm(w Surroundings) (*Allocation, error) {
	id := cmp.Or(w.Getenv("SLURM_JOB_ID"), w.Getenv("SLURM_JOBID"))
	if id == "" {
		return nil, nil
	}
	a := &Allocation{From: "Slurm job " + id, Steps: w.Getenv("SLURM_CLUSTER_NAME") != ""}
	parts := atoi(w.Getenv("SLURM_HET_SIZE"))
	if parts < 2 {
		list, err := slurmPart(w, "")
		if list == nil || err != nil {
			return nil, err
		}
		if n := stepNodes(w, ""); n > 0 && n < len(list) {
			a.From = fmt.Sprintf("%s%s, of which this step has %d", Whole, a.From, n)
		}
		a.Hosts = list
		return a, nil
	}
	a.Groups = map[string]int{}
	for part := range min(parts, maxHosts) {
		list, err := slurmPart(w, fmt.Sprint("_HET_GROUP_", part))
		if err != nil {
			return nil, err
		}
		for _, h := range list {
			a.Groups[h.Name] = part
		}
		a.Hosts = append(a.Hosts, list...)
	}
	return a, a.sum()
}

// SlurmNodes reads the nodes that a job has now from a line of scontrol show job.
func SlurmNodes(text string) ([]ListedHost, error) {
	for word := range strings.FieldsSeq(text) {
		nodes, ok := strings.CutPrefix(word, "NodeList=")
		switch {
		case !ok:
		case nodes == "" || nodes == "(null)":
			return nil, nil
		default:
			list, err := ParseList(nodes)
			if err != nil {
				return nil, fmt.Errorf("read Slurm's node list %q: %w", nodes, err)
			}
			return list, nil
		}
	}
	return nil, errors.New("read Slurm's description of the job: it names no NodeList")
}

// slurmPart reads the variables of one part of a job, whose names end with a suffix; nil if there are none.
func slurmPart(w Surroundings, suffix string) ([]ListedHost, error) {
	nodes := cmp.Or(w.Getenv("SLURM_JOB_NODELIST"+suffix), w.Getenv("SLURM_NODELIST"+suffix))
	if nodes == "" {
		return nil, nil
	}
	list, err := ParseList(nodes)
	if err != nil {
		return nil, fmt.Errorf("read Slurm's node list %q: %w", nodes, err)
	}
	tasks, each := w.Getenv("SLURM_TASKS_PER_NODE"+suffix), 1
	if tasks == "" {
		tasks = w.Getenv("SLURM_JOB_CPUS_PER_NODE" + suffix)
		each = max(1, atoi(w.Getenv("SLURM_CPUS_PER_TASK"+suffix)))
	}
	if n := stepNodes(w, suffix); n > 0 && n < len(list) {
		// The tasks are those of a step on some of the nodes, which the launcher is in; ranks may use all nodes.
		tasks, each = w.Getenv("SLURM_JOB_CPUS_PER_NODE"+suffix), max(1, atoi(w.Getenv("SLURM_CPUS_PER_TASK"+suffix)))
	}
	if tasks != "" {
		counts, err := slurmCounts(tasks, len(list))
		if err != nil {
			return nil, err
		}
		for i, n := range counts {
			list[i].Slots = max(1, n/each)
		}
	}
	return list, nil
}

// Whole begins the From of an allocation of which the user may expect a part only.
const Whole = "all nodes of "

// stepNodes returns on how many nodes the step runs that the launcher is in, 0 if it is in none.
func stepNodes(w Surroundings, suffix string) int {
	list, _ := ParseList(w.Getenv("SLURM_STEP_NODELIST" + suffix))
	return len(list)
}

// slurmCount is a count, and for how many nodes it is.
var slurmCount = regexp.MustCompile(`^(\d+)(?:\(x([1-9]\d*)\))?$`)

// slurmCounts expands 2(x3),1 to 2 2 2 1.
func slurmCounts(s string, nodes int) ([]int, error) {
	wrong := fmt.Errorf("read Slurm's counts %q: not of the form 2(x3),1 for %d nodes", s, nodes)
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		m := slurmCount.FindStringSubmatch(part)
		if m == nil {
			return nil, wrong
		}
		n, err := parseSlots(m[1])
		times, tooMany := strconv.Atoi(cmp.Or(m[2], "1"))
		if err != nil || tooMany != nil || times > nodes-len(out) {
			return nil, wrong
		}
		out = append(out, slices.Repeat([]int{n}, times)...)
	}
	if len(out) != nodes {
		return nil, wrong
	}
	return out, nil
}

// lsf reads the file with a line for each slot, or the equivalent variables.
func lsf(w Surroundings) (*Allocation, error) {
	id := w.Getenv("LSB_JOBID")
	if id == "" {
		return nil, nil
	}
	a := &Allocation{From: "LSF job " + id}
	if file := w.Getenv("LSB_DJOB_HOSTFILE"); file != "" {
		text, err := w.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read LSF's host file: %w", err)
		}
		return a, a.addEach(strings.Fields(string(text)))
	}
	if pairs := strings.Fields(w.Getenv("LSB_MCPU_HOSTS")); len(pairs) > 0 {
		if len(pairs)%2 != 0 {
			return nil, fmt.Errorf("read LSB_MCPU_HOSTS %q: not pairs of host and slots", w.Getenv("LSB_MCPU_HOSTS"))
		}
		for i := 0; i < len(pairs); i += 2 {
			if err := a.add(pairs[i], pairs[i+1]); err != nil {
				return nil, err
			}
		}
		return a, a.sum()
	}
	if list := strings.Fields(w.Getenv("LSB_HOSTS")); len(list) > 0 {
		return a, a.addEach(list)
	}
	return nil, nil
}

// pbs reads the file with a line for each slot.
func pbs(w Surroundings) (*Allocation, error) {
	id, file := w.Getenv("PBS_JOBID"), w.Getenv("PBS_NODEFILE")
	if id == "" || file == "" {
		return nil, nil
	}
	text, err := w.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read PBS's node file: %w", err)
	}
	a := &Allocation{From: "PBS job " + id}
	return a, a.addEach(strings.Fields(string(text)))
}

// sge reads lines of host, slots, queue and processors.
func sge(w Surroundings) (*Allocation, error) {
	id, file := w.Getenv("JOB_ID"), w.Getenv("PE_HOSTFILE")
	if id == "" || file == "" {
		return nil, nil
	}
	text, err := w.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read SGE's host file: %w", err)
	}
	a := &Allocation{From: "SGE job " + id}
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		slots := "1"
		if len(fields) > 1 {
			slots = fields[1]
		}
		if err := a.add(fields[0], slots); err != nil {
			return nil, err
		}
	}
	return a, a.sum()
}

// addEach adds a slot for each of the names.
func (a *Allocation) addEach(names []string) error {
	for _, name := range names {
		if err := a.add(name, "1"); err != nil {
			return err
		}
	}
	return a.sum()
}

func (a *Allocation) add(name, slots string) error {
	n, err := parseSlots(slots)
	if err != nil || !validName(name) || strings.ContainsRune(name, '[') {
		return fmt.Errorf("read hosts of %s: %q with %q slots is no host", a.From, name, slots)
	}
	a.Hosts = append(a.Hosts, ListedHost{name, n})
	return nil
}

// sum merges the slots of each host.
func (a *Allocation) sum() error {
	switch a.Hosts = merge(a.Hosts); {
	case len(a.Hosts) == 0:
		return fmt.Errorf("read hosts of %s: there are none", a.From)
	case len(a.Hosts) > maxHosts:
		return fmt.Errorf("read hosts of %s: more than %d", a.From, maxHosts)
	}
	return nil
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // "" and invalid text are 0
	return n
}
