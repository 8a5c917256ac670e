package ranks

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gorun/contrib/must"
	"gorun/worker/loop"
	"gorun/worker/proc"
)

// TestLateSingleton: a rank that loads an MPI library after an hour is seen, and looks end with the rank.
func TestLateSingleton(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "libmpi.so.40"))
	must.Do(t, err)
	defer file.Close()
	if _, err := file.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l, rank := loop.New(), &process{running: true, pid: os.Getpid()}
		s := &singletons{Component: loop.Component{Loop: l}, processes: processes{0: rank}, found: map[int]singleton{}}
		s.look(t.Context(), []int{0})
		loaded, end, over := time.After(time.Hour), time.After(3*time.Hour), make(chan struct{})
		go func() {
			l.Wait()
			close(over)
		}()
		for open := true; open; {
			select {
			case f := <-l.C():
				f()
			case <-loaded:
				memory, err := syscall.Mmap(int(file.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_PRIVATE)
				if err != nil {
					t.Error(err)
					return
				}
				defer syscall.Munmap(memory)
			case <-end:
				rank.running = false
			case <-over:
				open = false
			}
		}
		if got := s.found[0]; got != (singleton{library: "Open MPI"}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestJudgeFiles(t *testing.T) {
	const (
		lib       = "/usr/lib/x86_64-linux-gnu/"
		begunFour = lib + "openmpi/lib/openmpi3/mca_ess_singleton.so"
		stock     = "/venv/lib/python3.11/site-packages/horovod/torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so"
		begunAny  = "/dev/shm/open_mpi.0000 (deleted)"
	)
	for name, test := range map[string]struct {
		env   []string
		files [][]string // of the rank's processes
		want  singleton
	}{
		"nothing":               {nil, nil, singleton{}},
		"Open MPI is loaded":    {nil, [][]string{{lib + "libmpi.so.40.30.4"}}, singleton{library: "Open MPI"}},
		"Open MPI 4":            {nil, [][]string{{lib + "libmpi.so.40.30.4", begunFour}}, singleton{library: "Open MPI", begun: true}},
		"Open MPI 5":            {nil, [][]string{{"/venv/lib/libmpi.so.40", begunAny}}, singleton{library: "Open MPI", begun: true}},
		"in a child":            {nil, [][]string{{lib + "libtorch_cpu.so"}, {lib + "libmpi.so.40", begunAny}}, singleton{"Open MPI", true, true}},
		"in the first of two":   {nil, [][]string{{lib + "libmpi.so.40", begunAny}, {lib + "libmpi.so.12"}}, singleton{library: "Open MPI", begun: true}},
		"another's file":        {nil, [][]string{{begunAny}}, singleton{}},
		"Open MPI's mpirun":     {[]string{"PMIX_NAMESPACE=1"}, [][]string{{lib + "libmpi.so.40", begunAny}}, singleton{}},
		"MPICH":                 {nil, [][]string{{lib + "libmpich.so.12.2.2"}}, singleton{library: "MPICH"}},
		"Intel MPI":             {[]string{"PMI_FD=3"}, [][]string{{"/opt/intel/libmpi.so.12"}}, singleton{library: "MPICH"}},
		"MPICH's mpiexec":       {[]string{"HYDI_CONTROL_FD=9"}, [][]string{{lib + "libmpich.so.12"}}, singleton{}},
		"torch":                 {nil, [][]string{{"/venv/torch/lib/libtorch_cpu.so"}}, singleton{peers: true}},
		"jax":                   {nil, [][]string{{"/venv/jaxlib/libjax_common.so", lib + "libmpi.so.40.40.7"}}, singleton{library: "Open MPI", peers: true}},
		"gorun":                 {nil, [][]string{{"/lib/libtorch_cpu.so"}, {"/memfd:gorun-alone (deleted)"}}, singleton{"gorun", true, true}},
		"Horovod":               {nil, [][]string{{stock}}, singleton{library: "Horovod", begun: true}},
		"Horovod on Open MPI":   {[]string{"HOROVOD_SIZE=2"}, [][]string{{stock, lib + "libmpi.so.40", begunAny}}, singleton{library: "Horovod", begun: true}},
		"Horovod that fails":    {[]string{"HOROVOD_SIZE=2"}, [][]string{{stock}}, singleton{}},
		"Horovod's horovodrun":  {[]string{"HOROVOD_GLOO_RENDEZVOUS_ADDR=a"}, [][]string{{stock}}, singleton{}},
		"Horovod's mpirun":      {[]string{"PMIX_NAMESPACE=1"}, [][]string{{stock, lib + "libmpi.so.40", begunAny}}, singleton{}},
		"something of the kind": {nil, [][]string{{lib + "libmpi_cxx.so.40", lib + "libmpi.so.4", lib + "libmpichabi.so.12"}}, singleton{}},
	} {
		var processes []proc.Files
		for pid, files := range test.files {
			f := proc.Files{PID: pid}
			for _, file := range files {
				if !telling(file) && test.want != (singleton{}) {
					t.Errorf("%s: %s is not asked for", name, file)
				}
				f.Paths = append(f.Paths, file)
			}
			processes = append(processes, f)
		}
		if got := judgeFiles(processes, func(int) []string { return test.env }); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
