package hosts_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"gorun/launcher/hosts"
)

// machine is an environment and its files.
func machine(env map[string]string, files map[string]string) hosts.Surroundings {
	return hosts.Surroundings{
		Getenv: func(name string) string { return env[name] },
		ReadFile: func(name string) ([]byte, error) {
			if text, ok := files[name]; ok {
				return []byte(text), nil
			}
			return nil, fmt.Errorf("open %s: %w", name, os.ErrNotExist)
		},
	}
}

func TestAllocated(t *testing.T) {
	for _, tt := range []struct {
		name  string
		env   map[string]string
		files map[string]string
		from  string
		want  []hosts.ListedHost
	}{
		{"none", map[string]string{"SLURM_JOB_ID": "7", "PBS_JOBID": "1", "JOB_ID": "3"}, nil, "", nil},
		{"slurm", map[string]string{"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[01-03,07],gpu-a[1-2]x,login", "SLURM_TASKS_PER_NODE": "2(x3),1,4(x3)"}, nil, "Slurm job 17",
			[]hosts.ListedHost{{"n01", 2}, {"n02", 2}, {"n03", 2}, {"n07", 1}, {"gpu-a1x", 4}, {"gpu-a2x", 4}, {"login", 4}}},
		{"old slurm, by CPUs", map[string]string{"SLURM_JOBID": "17", "SLURM_NODELIST": "r[1-2]n[1-2]", "SLURM_JOB_CPUS_PER_NODE": "16(x3),8", "SLURM_CPUS_PER_TASK": "4"}, nil, "Slurm job 17",
			[]hosts.ListedHost{{"r1n1", 4}, {"r1n2", 4}, {"r2n1", 4}, {"r2n2", 2}}},
		{"slurm in parts", map[string]string{"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "a", "SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "a",
			"SLURM_TASKS_PER_NODE_HET_GROUP_0": "1", "SLURM_JOB_NODELIST_HET_GROUP_1": "b[1-2]", "SLURM_TASKS_PER_NODE_HET_GROUP_1": "4(x2)"}, nil, "Slurm job 17",
			[]hosts.ListedHost{{"a", 1}, {"b1", 4}, {"b2", 4}}},
		{"a step on one node of slurm's two", map[string]string{"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1",
			"SLURM_STEP_NODELIST": "n1", "SLURM_JOB_CPUS_PER_NODE": "2(x2)"}, nil, "all nodes of Slurm job 17, of which this step has 1", []hosts.ListedHost{{"n1", 2}, {"n2", 2}}},
		{"slurm without counts", map[string]string{"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a,b"}, nil, "Slurm job 1", []hosts.ListedHost{{"a", 0}, {"b", 0}}},
		{"lsf file", map[string]string{"LSB_JOBID": "5", "LSB_DJOB_HOSTFILE": "/f", "LSB_HOSTS": "x"}, map[string]string{"/f": "a\na\nb\n"}, "LSF job 5", []hosts.ListedHost{{"a", 2}, {"b", 1}}},
		{"lsf pairs", map[string]string{"LSB_JOBID": "5", "LSB_MCPU_HOSTS": "a 4 b 2"}, nil, "LSF job 5", []hosts.ListedHost{{"a", 4}, {"b", 2}}},
		{"lsf list", map[string]string{"LSB_JOBID": "5", "LSB_HOSTS": "a a b"}, nil, "LSF job 5", []hosts.ListedHost{{"a", 2}, {"b", 1}}},
		{"pbs", map[string]string{"PBS_JOBID": "9.server", "PBS_NODEFILE": "/n"}, map[string]string{"/n": "a\nb\na\n\n"}, "PBS job 9.server", []hosts.ListedHost{{"a", 2}, {"b", 1}}},
		{"sge", map[string]string{"JOB_ID": "3", "PE_HOSTFILE": "/p"}, map[string]string{"/p": "a.site 4 all.q@a UNDEFINED\nb 2 all.q@b <NULL>\n"}, "SGE job 3", []hosts.ListedHost{{"a.site", 4}, {"b", 2}}},
		{"MPIJob for Open MPI", map[string]string{"K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"},
			map[string]string{"/etc/mpi/hostfile": "pi-worker-0.pi.default.svc slots=2\npi-worker-1.pi.default.svc slots=2\n"}, "/etc/mpi/hostfile ($OMPI_MCA_orte_default_hostfile)",
			[]hosts.ListedHost{{"pi-worker-0.pi.default.svc", 2}, {"pi-worker-1.pi.default.svc", 2}}},
		{"MPIJob for MPICH", map[string]string{"K_MPI_JOB_ROLE": "launcher", "HYDRA_HOST_FILE": "/etc/mpi/hostfile"},
			map[string]string{"/etc/mpi/hostfile": "pi-worker-0.pi.default.svc:2\n"}, "/etc/mpi/hostfile ($HYDRA_HOST_FILE)", []hosts.ListedHost{{"pi-worker-0.pi.default.svc", 2}}},
		{"MPIJob, slots by variable", map[string]string{"K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_set_default_slots": "3"},
			map[string]string{"/etc/mpi/hostfile": "a\nb slots=1\n"}, "/etc/mpi/hostfile (the MPIJob)", []hosts.ListedHost{{"a", 3}, {"b", 1}}},
		{"a hostfile comes before the scheduler", map[string]string{"GORUN_HOSTFILE": "/h", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "x"}, map[string]string{"/h": "a:2"}, "/h ($GORUN_HOSTFILE)", []hosts.ListedHost{{"a", 2}}},
	} {
		got, err := hosts.Allocated(machine(tt.env, tt.files))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got == nil {
			got = &hosts.Allocation{}
		}
		if got.From != tt.from || !reflect.DeepEqual(got.Hosts, tt.want) {
			t.Errorf("%s: got %+v, want %s %v", tt.name, got, tt.from, tt.want)
		}
	}
}

// TestAllocationOfSteps: variables that users set by hand are no allocation in which srun could start anything; parts of
// a job are known by their hosts.
func TestAllocationOfSteps(t *testing.T) {
	env := map[string]string{"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a"}
	for _, cluster := range []string{"", "lab"} {
		env["SLURM_CLUSTER_NAME"] = cluster
		a, err := hosts.Allocated(machine(env, nil))
		if err != nil || a.Steps != (cluster != "") || a.Groups != nil {
			t.Errorf("cluster %q: %+v, %v", cluster, a, err)
		}
	}
	env["SLURM_HET_SIZE"], env["SLURM_JOB_NODELIST_HET_GROUP_0"], env["SLURM_JOB_NODELIST_HET_GROUP_1"] = "2", "a", "b,c"
	a, err := hosts.Allocated(machine(env, nil))
	if want := map[string]int{"a": 0, "b": 1, "c": 1}; err != nil || !reflect.DeepEqual(a.Groups, want) {
		t.Errorf("parts: %+v, %v; want %v", a, err, want)
	}
}

// TestSlurmNodes: the nodes of a job are in one of many words.
func TestSlurmNodes(t *testing.T) {
	const line = "JobId=7 JobName=x ReqNodeList=n9 ExcNodeList=n8 JobState=RUNNING NodeList=n[1-2] BatchHost=n1 NumNodes=2\n"
	got, err := hosts.SlurmNodes(line)
	if want := []hosts.ListedHost{{Name: "n1"}, {Name: "n2"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err := hosts.SlurmNodes("JobId=7 NodeList=(null)"); got != nil || err != nil {
		t.Errorf("without nodes: %v, %v", got, err)
	}
	for text, want := range map[string]string{"slurm_load_jobs error": "it names no NodeList", "NodeList=n[1-": "read Slurm's node list"} {
		if _, err := hosts.SlurmNodes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAllocationErrors(t *testing.T) {
	many := ""
	for i := range 16385 {
		many += fmt.Sprint("n", i, " ")
	}
	for _, tt := range []struct {
		env   map[string]string
		files map[string]string
		want  string
	}{
		{map[string]string{"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-"}, nil, "read Slurm's node list"},
		{map[string]string{"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x3)"}, nil, "not of the form 2(x3),1 for 2 nodes"},
		{map[string]string{"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2"}, nil, "for 2 nodes"},
		{map[string]string{"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "many"}, nil, "not of the form"},
		{map[string]string{"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "a 1 b"}, nil, "not pairs"},
		{map[string]string{"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "a x"}, nil, `"a" with "x" slots is no host`},
		{map[string]string{"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": "/gone"}, nil, "read LSF's host file: open /gone"},
		{map[string]string{"PBS_JOBID": "1", "PBS_NODEFILE": "/n"}, map[string]string{"/n": "\n"}, "there are none"},
		{map[string]string{"PBS_JOBID": "1", "PBS_NODEFILE": "/n"}, map[string]string{"/n": "-oProxyCommand=x\n"}, "is no host"},
		{map[string]string{"JOB_ID": "1", "PE_HOSTFILE": "/p"}, map[string]string{"/p": "a 0 q"}, "is no host"},
		{map[string]string{"LSB_JOBID": "1", "LSB_HOSTS": many}, nil, "read hosts of LSF job 1: more than 16384"},
		{map[string]string{"K_MPI_JOB_ROLE": "launcher"}, nil, "read hostfile of the MPIJob: open /etc/mpi/hostfile"},
	} {
		if a, err := hosts.Allocated(machine(tt.env, tt.files)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %+v, %v; want %q", tt.env, a, err, tt.want)
		}
	}
	if _, err := hosts.Allocated(machine(map[string]string{"GORUN_HOSTFILE": "/gone"}, nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// FuzzAllocated: whatever a scheduler sets, hosts have names that are no options, and slots.
func FuzzAllocated(f *testing.F) {
	f.Add("n[1-3],x", "2(x3),1", "a 1 q\n", uint8(0))
	f.Add("a 4 b 2", "", "a\nb\n", uint8(1))
	f.Fuzz(func(t *testing.T, list, counts, file string, which uint8) {
		env := []map[string]string{
			{"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": list, "SLURM_TASKS_PER_NODE": counts},
			{"LSB_JOBID": "1", "LSB_MCPU_HOSTS": list},
			{"PBS_JOBID": "1", "PBS_NODEFILE": "/f"},
			{"JOB_ID": "1", "PE_HOSTFILE": "/f"},
			{"GORUN_HOSTFILE": "/f", "I_MPI_PERHOST": counts},
		}[which%5]
		a, err := hosts.Allocated(machine(env, map[string]string{"/f": file}))
		if err != nil || a == nil {
			return
		}
		seen := map[string]bool{}
		for _, h := range a.Hosts {
			if h.Name == "" || h.Name[0] == '-' || h.Slots < 0 || seen[h.Name] || strings.ContainsAny(h.Name, " \t\n,;$`'\"[") {
				t.Fatalf("%q gave host %+v", env, h)
			}
			seen[h.Name] = true
		}
	})
}
