package mpi

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// build compiles a program of testdata/mpi.
func build(t *testing.T, compiler, name string) (program string) {
	t.Helper()
	packages := map[string]string{"mpicc.mpich": "libmpich-dev and mpich", "mpicc.openmpi": "libopenmpi-dev and openmpi-bin"}[compiler]
	program = filepath.Join(e2etest.Root(), "build", name+"_"+compiler)
	e2etest.Compile(t, compiler, packages, "-o", program, filepath.Join(e2etest.Root(), "testdata/mpi", name+".c"))
	return program
}

// TestMPICH starts an unmodified program of the MPICH family: gorun is what mpiexec would be.
func TestMPICH(t *testing.T) {
	program := build(t, "mpicc.mpich", "ring")
	c := e2etest.NewCluster(t, 2)
	// On lab hosts, which are one machine, UCX would take shared memory for a way between them.
	way := func(hosts string) string {
		if !strings.Contains(hosts, ",") {
			return "ONE_HOST=yes"
		}
		return "UCX_TLS=tcp,self"
	}
	run := func(hosts, how string) e2etest.Result {
		return c.Gorun("-np", "4", "-H", hosts, "env", way(hosts), "timeout", "60", program, how)
	}
	for _, hosts := range []string{"host1:4", "host1:2,host2:2", "host1:1,host2:3"} {
		t.Run(hosts, func(t *testing.T) {
			r := run(hosts, "ok").Good(t)
			if strings.Contains(r.Stderr, "Open MPI") {
				t.Errorf("MPICH was taken for Open MPI:\n%s", r.Stderr)
			}
			where := 0
			for rank := range 4 {
				token := []int{6, 1, 3, 6}[rank]
				if line := fmt.Sprintf("token %d, 0 wrong", token); !strings.Contains(r.Stdout, fmt.Sprintf("rank %d of 4 on ", rank)) || !strings.Contains(r.Stdout, line) {
					t.Errorf("rank %d: want %q in\n%s", rank, line, r.Stdout)
				}
			}
			for _, h := range []string{"on host1:", "on host2:"} {
				if strings.Contains(r.Stdout, h) {
					where++
				}
			}
			if want := strings.Count(hosts, ",") + 1; where != want {
				t.Errorf("ranks ran on %d hosts, want %d:\n%s", where, want, r.Stdout)
			}
		})
	}
	t.Run("by a port", func(t *testing.T) {
		// The wrapper closes what is inherited, as sudo does.
		r := c.Gorun("-np", "2", "-H", "host1:1,host2:1", "--pmi-port", "--rank-wrapper", `sh -c 'exec 3>&-; exec "$@"' sh`, "env", "UCX_TLS=tcp,self", "timeout", "60", program, "ok")
		if r.Code != 0 || !strings.Contains(r.Stdout, "rank 0 of 2 on host1: ") || !strings.Contains(r.Stdout, "rank 1 of 2 on host2: ") {
			t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
		}
	})
	t.Run("names", func(t *testing.T) {
		names := build(t, "mpicc.mpich", "names")
		want, err := exec.Command("timeout", "60", "mpiexec.hydra", "-n", "4", names).Output()
		if err != nil {
			t.Fatalf("mpiexec.hydra: %v", err)
		}
		sorted := func(text string) string { return strings.Join(slices.Sorted(strings.Lines(text)), "") }
		for _, hosts := range []string{"host1:4", "host1:2,host2:2"} {
			r := c.Gorun("-np", "4", "--no-tag-output", "-H", hosts, "env", way(hosts), "timeout", "60", names)
			if r.Code != 0 || sorted(r.Stdout) != sorted(string(want)) {
				t.Errorf("on %s: exit code %d\n%s\nwant what Hydra's ranks are told:\n%s\n%s", hosts, r.Code, sorted(r.Stdout), sorted(string(want)), r.Stderr)
			}
		}
	})
	t.Run("two programs", func(t *testing.T) {
		part := []string{"env", "UCX_TLS=tcp,self", "timeout", "60", program, "ok"}
		r := c.Gorun(slices.Concat([]string{"-H", "host1:2,host2:1", "-np", "1"}, part, []string{":", "-np", "2"}, part)...)
		for rank, number := range []int{0, 1, 1} {
			if line := fmt.Sprintf("rank %d of 3 on host%d: token %d, 0 wrong, program %d\n", rank, rank/2+1, []int{3, 1, 3}[rank], number); !strings.Contains(r.Stdout, line) {
				t.Errorf("exit code %d, no %q in\n%s\n%s", r.Code, line, r.Stdout, r.Stderr)
			}
		}
	})
	for how, want := range map[string]struct {
		code int
		says string
	}{
		"abort": {7, "gorun: error: rank 3 on host2 exited with status 7"},
		"crash": {128 + 6, "gorun: error: rank 3 on host2 was killed by signal 6"},
		// The others would wait for it for ever.
		"exit":  {1, "gorun: error: rank 3 on host2 exited without MPI_Finalize"},
		"early": {1, "gorun: error: host2: run: rank 3 has ended, and rank"},
	} {
		t.Run(how, func(t *testing.T) {
			if r := run("host1:2,host2:2", how); r.Code != want.code || !strings.Contains(r.Stderr, want.says) {
				t.Errorf("exit code %d, want %d and %q\n%s", r.Code, want.code, want.says, r.Stderr)
			}
		})
	}
}

// TestOpenMPI starts an unmodified Open MPI program by its own mpirun, which reaches the hosts by gorun.
func TestOpenMPI(t *testing.T) {
	program := build(t, "mpicc.openmpi", "ring")
	c := e2etest.NewCluster(t, 2)
	// On lab hosts, which are one machine, only TCP leads from one to another.
	mpirun := func(args ...string) e2etest.Result {
		var stdout, stderr strings.Builder
		cmd := c.Launcher().Command(t.Context(), "timeout", append([]string{"120", "mpirun.openmpi", "--allow-run-as-root",
			"--mca", "plm_rsh_agent", c.Binary + " rsh-agent", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1"}, args...)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		return e2etest.Result{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	}
	r := mpirun("-np", "4", "-H", "host1:2,host2:2", program, "ok").Good(t)
	for rank, token := range []int{6, 1, 3, 6} {
		if want := fmt.Sprintf("rank %d of 4 on host%d: token %d, 0 wrong", rank, rank/2+1, token); !strings.Contains(r.Stdout, want) {
			t.Errorf("no %q in\n%s", want, r.Stdout)
		}
	}
	if r := mpirun("-np", "4", "-H", "host1:2,host2:2", program, "abort"); r.Code != 7 {
		t.Errorf("abort: exit code %d\n%s", r.Code, r.Stderr)
	}
	if r := mpirun("-np", "2", "-H", "host1,nowhere", program, "ok"); r.Code == 0 || !strings.Contains(r.Stderr, "gorun: error: nowhere: resolve: ") {
		t.Errorf("a host that is not there: exit code %d\n%s", r.Code, r.Stderr)
	}
}

// TestSingletons: ranks that an MPI library keeps apart, each in a world of its own, are no success without a word,
// whatever is around the program: a shell, an interpreter, or nothing. Who finds the others by MPICH, by gorun or by an
// mpirun of its own is left alone.
func TestSingletons(t *testing.T) {
	open, mpich := build(t, "mpicc.openmpi", "size"), build(t, "mpicc.mpich", "size")
	c := e2etest.NewCluster(t, 2)
	const (
		byPython = "import ctypes, time; mpi = ctypes.CDLL('libmpi.so.40', ctypes.RTLD_GLOBAL); mpi.MPI_Init(None, None); print('size 1'); time.sleep(1); mpi.MPI_Finalize()"
		beside   = "import gorun.numpy as hvd; hvd.init(); print('size', hvd.size()); "
		// A file of the name that torch's library has is as good as torch, which is slow to load.
		torchLater = "; import mmap, os; name = '/tmp/libtorch_cpu.so'; f = open(name, 'w+'); f.write('x'); f.flush(); m = mmap.mmap(f.fileno(), 1); os.unlink(name); time.sleep(5)"
		fails      = `gorun: error: rank [01] on host[12] was alone: its Open MPI knew of none of the other ranks
gorun: hint: start programs of Open MPI by: mpirun --mca plm_rsh_agent 'gorun rsh-agent'; if each rank is to work by itself, add --strict=false
`
		warns = `gorun: warning: rank [01] on host[12] is alone: its Open MPI knows of none of the other ranks; start it by: mpirun --mca plm_rsh_agent 'gorun rsh-agent'
`
		guesses = `gorun: warning: rank [01] on host[12] ended with %s loaded, and never asked gorun for the others: if it called MPI_Init, it was alone; %s
`
	)
	for name, test := range map[string]struct {
		args   []string
		code   int
		stderr string // all that is gorun's: the daemon that Open MPI starts for a rank may write something as well
		sizes  string
	}{
		"behind a shell":      {[]string{"sh", "-c", open + " 1"}, 1, warns + fails, "1"},
		"in Python":           {[]string{e2etest.Python, "-c", byPython}, 1, warns + fails, "1"},
		"a short one":         {[]string{"env", open, "0.2"}, 1, warns + fails, "1"},
		"strict":              {[]string{"--strict", "sh", "-c", open + " 60"}, 1, fails, ""},
		"not strict":          {[]string{"--strict=false", "sh", "-c", open + " 1"}, 0, warns, "1"},
		"loaded only":         {[]string{e2etest.Python, "-c", "import ctypes, time; ctypes.CDLL('libmpi.so.40'); time.sleep(1)"}, 0, fmt.Sprintf(guesses, "Open MPI", "start it by: .*"), ""},
		"in a world of gorun": {[]string{e2etest.Python, "-c", beside + byPython}, 0, warns, "12"},
		"and then with torch": {[]string{e2etest.Python, "-c", byPython + torchLater}, 0, warns, "1"},
		"by its own mpirun":   {[]string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "2", open, "1"}, 0, "", "2"},
		"MPICH":               {[]string{"env", "UCX_TLS=tcp,self", "sh", "-c", mpich + " 1"}, 0, "", "2"},
		"MPICH, stripped":     {[]string{"env", "-i", mpich, "1"}, 0, fmt.Sprintf(guesses, "MPICH", "does anything around it take away PMI_FD or PMI_RANK[?]"), "1"},
		"MPICH, strict": {[]string{"--strict", "env", "-i", mpich, "1"}, 1, `gorun: error: rank [01] on host[12] was alone: its MPICH knew of none of the other ranks
gorun: hint: something around the program takes away PMI_FD or PMI_RANK, which it needs to find the others: keep them, or add --pmi-port
`, "1"},
		"MPICH's own mpiexec":  {[]string{"sh", "-c", "UCX_TLS=tcp,self mpiexec.hydra -np 2 " + mpich + " 1"}, 0, "", "2"},
		"a single rank's only": {[]string{"-np", "1", "sh", "-c", open + " 1"}, 0, "", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.GorunBeside(append([]string{"-np", "2", "-H", "host1,host2", "--no-tag-output"}, test.args...)...)
			c.ExpectLeft(5*time.Second, "/tmp/ompi.") // what Open MPI leaves there, when it is killed, is its own affair
			says := strings.Join(regexp.MustCompile("(?m)^gorun: (warning|error|hint): .*\n").FindAllString(r.Stderr, -1), "")
			if r.Code != test.code || !regexp.MustCompile("^"+test.stderr+"$").MatchString(says) {
				t.Errorf("exit code %d, want %d and\n%s\nnot\n%s", r.Code, test.code, test.stderr, r.Stderr)
			}
			if sizes := strings.Join(slices.Compact(slices.Sorted(strings.FieldsSeq(strings.ReplaceAll(r.Stdout, "size", "")))), ""); sizes != test.sizes {
				t.Errorf("worlds of %s, want %s ranks:\n%s", sizes, test.sizes, r.Stdout)
			}
		})
	}
}

// TestOpenMPILeavesNothing: Open MPI's daemons end, and what they started, when its mpirun or the agents by which it
// reached the hosts are killed.
func TestOpenMPILeavesNothing(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mpirun.openmpi"); err != nil {
		t.Skip("install openmpi-bin")
	}
	for _, victim := range []string{"mpirun.openmpi", "gorun rsh-agent"} {
		t.Run(victim, func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			var stderr strings.Builder
			cmd := c.Launcher().Command(t.Context(), "mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", c.Binary+" rsh-agent",
				"-np", "2", "-H", "host1:1,host2:1", "sleep", "300")
			cmd.Stderr = &stderr
			must.Do(t, cmd.Start())
			running := func() (n int) {
				for _, h := range c.Hosts() {
					for _, p := range h.Processes() {
						if strings.Contains(p.Args, "sleep 300") {
							n++
						}
					}
				}
				return n
			}
			c.Await("program", func() bool { return running() == 2 })
			killed := 0
			for _, p := range c.Launcher().Processes() {
				if program := strings.TrimPrefix(p.Args, filepath.Dir(c.Binary)+"/"); strings.HasPrefix(program, victim) {
					syscall.Kill(p.PID, syscall.SIGKILL)
					killed++
				}
			}
			if killed == 0 {
				t.Error("nothing was killed")
			}
			cmd.Wait()
			for _, h := range c.Hosts() { // what a killed mpirun leaves in its own /tmp is its own affair
				var left []string
				for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
					if left = h.Leftovers(); len(left) == 0 {
						break
					}
				}
				if len(left) > 0 {
					t.Errorf("left on %s:\n%s\n%s", h.Name(), strings.Join(left, "\n"), &stderr)
				}
			}
		})
	}
}
