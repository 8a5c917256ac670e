package versus_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/worker/bench/versus"
)

// install puts a program into a directory that is all there is on PATH.
func install(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// document is what a program prints that takes some time for 4 and 64 bytes.
func document(p50 float64, wrong int) string {
	return fmt.Sprintf(`echo starting; echo '{"rows":[{"size":4,"p50_us":%g,"wrong":0},{"size":64,"p50_us":%g,"wrong":%d}]}'`, p50, 2*p50, wrong)
}

func setting(t *testing.T, path string) versus.Setting {
	own := filepath.Join(path, "own")
	install(t, path, "own", document(10, 0))
	return versus.Setting{Operation: "allgather", Ranks: 2, Sizes: []int{4, 64}, Seconds: 0.1, Dir: t.TempDir(), Gorun: own, Own: []string{own}}
}

// fakes are an Open MPI whose compiler is called like any, an MPICH without one, and a python without torch.
func fakes(t *testing.T) string {
	path := t.TempDir()
	t.Setenv("PATH", path)
	install(t, path, "mpirun", `case "$*" in --version) echo "mpirun (Open MPI) 9.9";; *) for a in "$@"; do case $a in */collective-openmpi) echo "$@" >`+filepath.Join(path, "called")+`; `+document(25, 0)+`;; esac; done;; esac`)
	install(t, path, "mpicc", `case "$*" in -show) echo "gcc -I/usr/lib/openmpi";; *) : >"$3";; esac`)
	install(t, path, "mpirun.mpich", `echo "HYDRA build details:"; echo "  Version: 4.0"`)
	install(t, path, "python3", "exit 1")
	return path
}

func TestPeersAreFoundAndMeasured(t *testing.T) {
	path := fakes(t)
	s := setting(t, path)
	peers, missing, err := versus.Find(t.Context(), s, "1.0")
	if err != nil || len(peers) != 2 || peers[1].Name != "Open MPI" || peers[1].Version != "mpirun (Open MPI) 9.9" {
		t.Fatalf("found %+v, %v", peers, err)
	}
	if len(missing) != 3 || missing[0].Name != "MPICH" || !strings.Contains(missing[0].Why, "mpicc.mpich, mpicc is its compiler") ||
		missing[1].Name != "torch gloo" || !strings.Contains(missing[1].Why, "Python with torch") ||
		missing[2].Name != "stock Horovod" || !strings.Contains(missing[2].Why, "Python with horovod.torch of its own") {
		t.Errorf("missing %+v", missing)
	}
	r, err := versus.Measure(t.Context(), s, peers, missing, 3, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	called, _ := os.ReadFile(filepath.Join(path, "called"))
	if !strings.HasSuffix(strings.TrimSpace(string(called)), "collective-openmpi allgather 0.1 4 64") || !strings.Contains(string(called), "-np 2 ") {
		t.Errorf("Open MPI was called with %s", called)
	}
	var table bytes.Buffer
	if err := r.Print(&table, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# not measured: MPICH: ", "# Open MPI: mpirun (Open MPI) 9.9", "4 10.00 25.00 2.50\n", "64 20.00 50.00 2.50\n"} {
		if !strings.Contains(squeeze(table.String()), want) {
			t.Errorf("%q is not in\n%s", want, table.String())
		}
	}
	var doc bytes.Buffer
	r.Print(&doc, true)
	var back versus.Report
	if err := json.Unmarshal(doc.Bytes(), &back); err != nil || len(back.Columns) != 2 || back.Columns[1].Rows[1].P50 != 50 || len(back.Missing) != 3 {
		t.Errorf("document %s, %v", doc.String(), err)
	}
}

// Stock Horovod is started by its own launcher, whose tags its report comes with; gorun under its name is not measured.
func TestStockHorovod(t *testing.T) {
	path := fakes(t)
	s := setting(t, path)
	s.Hosts, s.NIC = []string{"a:1", "b:1"}, "eth7"
	report := strings.Replace(document(30, 0), "echo '", "echo '[0]<stdout>:", 1)
	install(t, path, "python", `case "$2" in *"not in sys.modules"*) echo 0.28.1;; *torch*) exit 1;; *) echo "$@" >`+filepath.Join(path, "called")+"; "+report+`;; esac`)
	peers, _, err := versus.Find(t.Context(), s, "1.0")
	if err != nil || len(peers) != 3 || peers[2].Name != "stock Horovod" || peers[2].Version != "0.28.1" {
		t.Fatalf("found %+v, %v", peers, err)
	}
	r, err := versus.Measure(t.Context(), s, []versus.Peer{peers[0], peers[2]}, nil, 1, func(string) {})
	if err != nil || len(r.Columns) != 2 || r.Columns[1].Rows[0].P50 != 30 {
		t.Fatalf("measured %+v, %v", r, err)
	}
	called, _ := os.ReadFile(filepath.Join(path, "called"))
	want := "-m horovod.runner.launch --gloo -np 2 -H a:1,b:1 --network-interfaces eth7 " + filepath.Join(path, "python") + " -B " + s.Dir +
		"/horovod_torch.py --operation allgather --sizes 4,64 --min-time 0.1\n"
	if string(called) != want {
		t.Errorf("called with %s, not %s", called, want)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "horovod_torch.py")); err != nil {
		t.Error(err)
	}
}

func squeeze(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}

// A peer that fails, or computes nonsense, is left out with the reason; gorun's own failure is an error.
func TestPeersThatFail(t *testing.T) {
	for name, script := range map[string]string{"it broke": "echo 'it broke' >&2; exit 3", "7 elements of 64 bytes are wrong": document(1, 7), "no report": "true",
		"not there: it has no such thing": `echo '{"why":"it has no such thing"}'; echo noise >&2; exit 1`} {
		path := fakes(t)
		s := setting(t, path)
		install(t, path, "bad", script)
		bad := versus.Peer{Name: "bad", Command: []string{filepath.Join(path, "bad")}}
		own := versus.Peer{Name: "gorun", Command: s.Own}
		r, err := versus.Measure(t.Context(), s, []versus.Peer{own, bad}, nil, 2, func(string) {})
		if err != nil || len(r.Columns) != 1 || len(r.Missing) != 1 || !strings.Contains(r.Missing[0].Why, name) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if _, err := versus.Measure(t.Context(), s, []versus.Peer{bad, own}, nil, 2, func(string) {}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the own failure is %v", name, err)
		}
	}
}
