// Package versus measures gorun's collectives beside those of the peers that are installed: Open MPI, MPICH, torch's gloo
// and stock Horovod. All programs run the same way, one after the other and in turns, so that whatever else the machine does meets all of
// them alike.
//
// It has no goroutines of its own, and installs nothing: a peer that cannot run here is named with the reason.
package versus

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gorun/contrib"
)

// Setting is what ranks run, where, and over which sizes.
type Setting struct {
	Operation string // one of bench.Kinds
	Ranks     int
	Hosts     []string // name:ranks; nil for this machine alone
	NIC       string   // between hosts, "" for what the peers choose
	Sizes     []int    // bytes
	Seconds   float64  // of each size in each round
	Dir       string   // of the peers' programs; on all hosts
	Root      bool     // the user is root
	// Gorun is this binary, and Own the command that measures it.
	Gorun string
	Own   []string
}

// Peer is a program that is measured.
type Peer struct {
	Name, Version string
	Command       []string
}

// Missing is a peer that cannot run here.
type Missing struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Find writes and compiles the peers' programs into s.Dir and returns what can be measured, gorun first.
func Find(ctx context.Context, s Setting, version string) (found []Peer, missing []Missing, err error) {
	if err := unpack(s.Dir); err != nil {
		return nil, nil, err
	}
	found = []Peer{{Name: "gorun", Version: version, Command: s.Own}}
	for _, look := range []func(context.Context, Setting) (Peer, error){openMPI, mpich, gloo, horovod} {
		p, err := look(ctx, s)
		if err != nil {
			missing = append(missing, Missing{p.Name, err.Error()})
			continue
		}
		found = append(found, p)
	}
	return found, missing, ctx.Err()
}

// unpack writes the sources.
func unpack(dir string) error {
	files, err := fs.Glob(contrib.Programs, "bench/*")
	if err != nil {
		return fmt.Errorf("write the peers' programs: %w", err)
	}
	for _, name := range files {
		text, err := contrib.Programs.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the peers' programs: %w", err)
		}
	}
	return nil
}

// mpi is an implementation of MPI: the names that its programs may have, and a word by which their own output tells
// whose they are.
type mpi struct {
	name      string
	launchers []string
	compilers []string
	says      []string
	binary    string
}

func openMPI(ctx context.Context, s Setting) (Peer, error) {
	m := mpi{"Open MPI", []string{"mpirun.openmpi", "mpirun", "mpiexec"}, []string{"mpicc.openmpi", "mpicc"}, []string{"open mpi", "openrte", "openmpi"}, "collective-openmpi"}
	// Unbound, because ranks may outnumber the CPUs; Open MPI then yields while it waits. Its tuned choice of algorithms
	// is the best of its settings in most sizes.
	flags := []string{"--oversubscribe", "--bind-to", "none", "--mca", "coll_tuned_priority", "100"}
	if s.Root {
		flags = append(flags, "--allow-run-as-root")
	}
	if s.Hosts != nil {
		flags = append(flags, "-H", strings.Join(s.Hosts, ","), "--mca", "btl", "self,vader,tcp", "--mca", "pml", "ob1")
		if s.NIC != "" {
			flags = append(flags, "--mca", "btl_tcp_if_include", s.NIC, "--mca", "oob_tcp_if_include", s.NIC)
		}
	}
	return m.find(ctx, s, flags)
}

func mpich(ctx context.Context, s Setting) (Peer, error) {
	m := mpi{"MPICH", []string{"mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra", "mpirun", "mpiexec"}, []string{"mpicc.mpich", "mpicc"}, []string{"hydra", "mpich"}, "collective-mpich"}
	var flags []string
	if s.Hosts != nil {
		flags = append(flags, "-hosts", strings.Join(s.Hosts, ","))
		if s.NIC != "" {
			flags = append(flags, "-iface", s.NIC)
		}
	}
	return m.find(ctx, s, flags)
}

// find looks for both programs, and makes the one that is measured.
func (m mpi) find(ctx context.Context, s Setting, flags []string) (Peer, error) {
	p := Peer{Name: m.name}
	launcher, version := m.whose(ctx, m.launchers, "--version")
	if launcher == "" {
		return p, fmt.Errorf("none of %s is its launcher", strings.Join(m.launchers, ", "))
	}
	compiler, _ := m.whose(ctx, m.compilers, "-show")
	if compiler == "" {
		return p, fmt.Errorf("none of %s is its compiler", strings.Join(m.compilers, ", "))
	}
	binary := filepath.Join(s.Dir, m.binary)
	out, err := exec.CommandContext(ctx, compiler, "-O3", "-o", binary, filepath.Join(s.Dir, "mpi_collective.c"), "-lm").CombinedOutput()
	if err != nil {
		return p, fmt.Errorf("%s: %w: %s", compiler, err, lastLine(out))
	}
	p.Version = version
	p.Command = slices.Concat([]string{launcher}, flags, []string{"-np", strconv.Itoa(s.Ranks), binary, s.Operation, fmt.Sprint(s.Seconds)}, texts(s.Sizes))
	return p, nil
}

// whose returns the first of some programs that says it is of this implementation, and the line with its version.
func (m mpi) whose(ctx context.Context, names []string, flag string) (path, version string) {
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, _ := exec.CommandContext(ctx, path, flag).CombinedOutput()
		text := strings.ToLower(string(out))
		if slices.ContainsFunc(m.says, func(word string) bool { return strings.Contains(text, word) }) {
			return path, versionIn(string(out))
		}
	}
	return "", ""
}

// pythons are where torch may be.
var pythons = []string{"python3", "python"}

func gloo(ctx context.Context, s Setting) (Peer, error) {
	p := Peer{Name: "torch gloo"}
	python := ""
	for _, name := range pythons {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, path, "-c", "import torch, torch.distributed; print(torch.__version__)").Output()
		if err == nil {
			python, p.Version = path, strings.TrimSpace(string(out))
			break
		}
	}
	if python == "" {
		return p, fmt.Errorf("none of %s is a Python with torch", strings.Join(pythons, ", "))
	}
	// gorun only starts these ranks; they talk to each other by gloo alone.
	p.Command = []string{s.Gorun, "-np", strconv.Itoa(s.Ranks), "--no-tag-output"}
	nic := s.NIC
	if s.Hosts != nil {
		p.Command = append(p.Command, "-H", strings.Join(s.Hosts, ","))
	} else {
		nic = "lo"
	}
	if nic != "" {
		p.Command = append(p.Command, "env", "GLOO_SOCKET_IFNAME="+nic)
	}
	p.Command = append(p.Command, python, "-B", filepath.Join(s.Dir, "torch_gloo.py"), "--operation", s.Operation, "--sizes", strings.Join(texts(s.Sizes), ","), "--min-time", fmt.Sprint(s.Seconds))
	return p, nil
}

// stockOnly prints Horovod's version, unless what there is under its name is gorun.
const stockOnly = "import sys, horovod.torch; assert 'gorun' not in sys.modules; print(horovod.__version__)"

func horovod(ctx context.Context, s Setting) (Peer, error) {
	p := Peer{Name: "stock Horovod"}
	for _, name := range pythons {
		python, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, python, "-c", stockOnly).Output()
		if err != nil {
			continue
		}
		p.Version = strings.TrimSpace(string(out))
		// The horovodrun on PATH may be gorun's.
		p.Command = []string{python, "-m", "horovod.runner.launch", "--gloo", "-np", strconv.Itoa(s.Ranks)}
		if s.Hosts != nil {
			p.Command = append(p.Command, "-H", strings.Join(s.Hosts, ","))
			if s.NIC != "" {
				p.Command = append(p.Command, "--network-interfaces", s.NIC)
			}
		}
		p.Command = append(p.Command, python, "-B", filepath.Join(s.Dir, "horovod_torch.py"), "--operation", s.Operation, "--sizes", strings.Join(texts(s.Sizes), ","), "--min-time", fmt.Sprint(s.Seconds))
		return p, nil
	}
	return p, fmt.Errorf("none of %s is a Python with horovod.torch of its own", strings.Join(pythons, ", "))
}

// versionIn returns the first line with a digit, which is not the first one of MPICH.
func versionIn(text string) string {
	for line := range strings.Lines(text) {
		if strings.ContainsAny(line, "0123456789") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return "unknown"
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

func texts(numbers []int) []string {
	var out []string
	for _, n := range numbers {
		out = append(out, strconv.Itoa(n))
	}
	return out
}
