package rankenv_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/worker/rankenv"
)

var update = flag.Bool("update", false, "write the golden files")

// someFacts are of a rank that gets every variable of the table but PMI_FD.
func someFacts() rankenv.Facts {
	return rankenv.Facts{Job: "j0b", Elastic: true, DropIn: true, NICs: []string{"ens1", "ens2"},
		Process: 9, Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, CrossRank: 2, CrossSize: 3, Spare: true, Host: "h2", Group: 6, Groups: 7,
		Dir: "/w", Python: "/env", Binary: "/b/gorun", Socket: "@s", Token: "70ken", Counters: "/proc/7/fd/9", Stacks: "/proc/7/fd/11", SpareCPUs: []int{4, 5, 12}, GPU: "GPU-a", Threads: 10,
		MasterAddr: "10.0.0.1", MasterPort: 4000, Coordinator: "10.0.0.1:5000", Workers: []string{"10.0.0.1:5001", "[fd00::2]:6001"},
		PMI: &rankenv.PMI{Port: "127.0.0.1:7", ID: 11}, NIC: "eth0", Addr: "10.0.0.2", Stock: &rankenv.Stock{Addr: "10.0.0.9", Port: 12, NIC: "eth0"}}
}

// TestEnvironment holds every variable of a rank, in order, against a golden file; run it with -update to write that anew.
func TestEnvironment(t *testing.T) {
	rich, poor, late := someFacts(), someFacts(), someFacts()
	rich.Accelerator = true
	rich.Verbose = true
	rich.GPUPath = "nccl"
	poor.Elastic, poor.DropIn, poor.NICs, poor.SpareCPUs, poor.GPU, poor.Counters, poor.Stacks = false, false, nil, nil, "", "", ""
	poor.Coordinator, poor.Workers, poor.Python, poor.PMI = "", nil, "", &rankenv.PMI{}
	late.PMI, late.Stock = nil, nil
	inherited := []string{"PATH=/bin", "RANK=77", "MASTER_ADDR=wrong", "PYTHONPATH=/mine"}
	var b strings.Builder
	for _, tt := range []struct {
		what string
		f    rankenv.Facts
	}{{"all that can be set, with an accelerator", rich}, {"the least, on a host without one", poor}, {"a later world with gorun's Horovod", late}} {
		fmt.Fprintf(&b, "# %s\n%s\n\n", tt.what, strings.Join(rankenv.Environment(tt.f, inherited, []string{"ROLE_NAME=mine"}), "\n"))
	}
	golden(t, "testdata/environment.txt", b.String())
}

// TestRules: who wins when the user sets a variable of the table.
func TestRules(t *testing.T) {
	f := someFacts()
	for _, v := range rankenv.Table() {
		if v.Name == "PMI_FD" || v.Name == "PYTHONPATH" || v.Name == "PATH" {
			continue // see TestEnvironment and TestPythonPath
		}
		users := v.Name + "=users"
		shell, _ := rankenv.Lookup(rankenv.Environment(f, []string{users}, nil), v.Name)
		program, _ := rankenv.Lookup(rankenv.Environment(f, nil, []string{users}), v.Name)
		if wins := v.Rule == rankenv.Default; (shell == "users") != wins {
			t.Errorf("%s, %v: with %s from the shell it is %s", v.Name, v.Rule, users, shell)
		}
		if wins := v.Rule != rankenv.Fixed; (program == "users") != wins {
			t.Errorf("%s, %v: with %s for the program it is %s", v.Name, v.Rule, users, program)
		}
	}
}

func TestPythonPath(t *testing.T) {
	for _, tt := range []struct {
		dropIn bool
		user   []string
		want   string
	}{
		{false, nil, "/b/gorun"},
		{true, []string{"PYTHONPATH="}, "/b/gorun:/b/gorun/shim"},
		{true, []string{"PYTHONPATH=/a:/b"}, "/b/gorun:/b/gorun/shim:/a:/b"},
	} {
		f := rankenv.Facts{Binary: "/b/gorun", DropIn: tt.dropIn}
		if got, _ := rankenv.Lookup(rankenv.Environment(f, nil, tt.user), "PYTHONPATH"); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.user, got, tt.want)
		}
	}
}

func TestMachine(t *testing.T) {
	got := rankenv.Machine([]string{"HOME=/root", "SSH_CONNECTION=a b", "GORUN_TOKEN=x", "_=/bin/x", "SHLVL=2", "LANG=C"})
	if want := []string{"HOME=/root", "LANG=C"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReader: Python looks for the CPUs that are to spare by the name that the table gives them.
func TestReader(t *testing.T) {
	reader, err := os.ReadFile("../../contrib/python/gorun/spare.py")
	if err != nil || !strings.Contains(string(reader), `VARIABLE = "GORUN_SPARE_CPUS"`) {
		t.Errorf("the binding does not read GORUN_SPARE_CPUS: %v", err)
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(path, []byte(got), 0o666))
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s is not what the table says (go test ./worker/rankenv -update writes it): %v\ngot\n%s", path, err, got)
	}
}
