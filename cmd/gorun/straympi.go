package main

import (
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gorun/launcher"
	"gorun/rendezvous/wire"
	"gorun/worker/proc"
)

// strayMPI warns of programs of Open MPI. Their library works only with its own mpirun: started by another program,
// each rank believes that it is the only one, and nothing reports that. Daemons detect it later for programs that are
// not on this machine and for libraries that scripts load.
func strayMPI(programs []program) (notes []string) {
	for _, p := range programs {
		if p.Ranks < 2 {
			continue
		}
		if uses, _ := proc.Within(time.Second, func() bool { return usesOpenMPI(p.Program) }); !uses {
			continue
		}
		notes = append(notes, fmt.Sprintf("gorun: warning: %s is a program of Open MPI, each of whose %d ranks will find itself alone; "+
			"start it by: mpirun --mca plm_rsh_agent 'gorun rsh-agent'", p.Argv[0], p.Ranks))
	}
	return notes
}

// usesOpenMPI looks at the libraries that an executable is linked with. MPICH and its relatives call theirs
// libmpich.so.12 or libmpi.so.12.
func usesOpenMPI(p launcher.Program) bool {
	path := p.Argv[0]
	if strings.Contains(path, "/") {
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.Dir, path)
		}
	} else if found, err := exec.LookPath(path); err == nil {
		path = found
	}
	f, err := elf.Open(path)
	if err != nil {
		return false // no executable, or not here
	}
	defer f.Close()
	libraries, _ := f.ImportedLibraries() // none in a static one
	return slices.ContainsFunc(libraries, func(name string) bool {
		return slices.Contains([]string{"libmpi.so.20", "libmpi.so.40", "libmpi.so.80"}, name)
	})
}

// ifAlone returns what happens to a job whose ranks are alone.
func ifAlone(o *jobFlags) wire.IfAlone {
	switch {
	case o.strict:
		return wire.AloneEnds
	case o.given(&o.strict):
		return wire.AloneWarns
	}
	return wire.AloneFails
}
