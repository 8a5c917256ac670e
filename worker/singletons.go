package worker

import (
	"context"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
	"gorun/worker/proc"
)

// An MPI library that does not find its launcher makes a world of one rank without a word, and so does each of the others:
// Open MPI's, which speaks with its own mpirun only, and MPICH's if its environment was taken away. What ranks have mapped
// into their memory, and opened, shows it, whatever shell or interpreter is around the program.

// firstLook is the pause before the first look at a rank. Pauses double: a rank that spends the second half of its life in MPI is seen.
const firstLook = 50 * time.Millisecond

// singleton is a rank that an MPI library keeps apart from the others, or may do so.
type singleton struct {
	library string
	begun   bool // it has begun with MPI, and knows of itself only
	peers   bool // it may have found the others by another library
}

var (
	openMPI = regexp.MustCompile(`^libmpi\.so\.(20|40|80)(\.|$)`)
	mpich   = regexp.MustCompile(`^libmpi(ch)?\.so\.12(\.|$)`)
	// begun matches what Open MPI opens in MPI_Init: version 4 its component for programs without an mpirun, all versions a file
	// with which they try shared memory.
	begun = regexp.MustCompile(`/mca_ess_singleton\.so$|^/dev/shm/open_mpi\.`)
	// meets matches libraries with which ranks find each other without MPI and without gorun.
	meets = regexp.MustCompile(`^(libtorch_cpu|libtensorflow_framework|xla_extension|libjax_common|_jax)\b`)
)

// telling reports whether a file is one of those that show it.
func telling(file string) bool {
	name := path.Base(file)
	return openMPI.MatchString(name) || mpich.MatchString(name) || begun.MatchString(file) || meets.MatchString(name)
}

// judgeFiles judges a rank by the files of its processes and the variables that they were started with.
func judgeFiles(processes []proc.Files, environment func(pid int) []string) (s singleton) {
	for _, p := range processes {
		s.peers = s.peers || slices.ContainsFunc(p.Paths, func(file string) bool { return meets.MatchString(path.Base(file)) })
		uses := func(library *regexp.Regexp) bool {
			return slices.ContainsFunc(p.Paths, func(file string) bool { return library.MatchString(path.Base(file)) })
		}
		switch {
		case s.begun:
		case uses(openMPI) && !has(environment(p.PID), "PMIX_NAMESPACE"): // its mpirun sets that, also one that a rank runs
			s.library, s.begun = "Open MPI", slices.ContainsFunc(p.Paths, begun.MatchString)
		case uses(mpich) && !has(environment(p.PID), "HYDI_CONTROL_FD"): // its mpiexec sets that
			s.library = "MPICH"
		}
	}
	return s
}

func has(env []string, name string) bool {
	return slices.ContainsFunc(env, func(variable string) bool { return strings.HasPrefix(variable, name+"=") })
}

// lookForSingletons looks at ranks that have just started, by process, again and again as long as they run.
func (d *daemon) lookForSingletons(ctx context.Context, ranks []int) {
	if d.roster.Size < 2 {
		return
	}
	d.loop.Go(func() {
		for pause := firstLook; resume.Pause(ctx, pause); pause *= 2 {
			running := make(chan map[int]int, 1)
			d.post(ctx, func() {
				pids := map[int]int{}
				for _, process := range ranks {
					if s := d.single[process]; d.running[process] && !(s.begun && s.peers) {
						pids[process] = d.pids[process]
					}
				}
				running <- pids
			})
			var pids map[int]int
			select {
			case pids = <-running:
			case <-ctx.Done():
			}
			if len(pids) == 0 {
				return
			}
			files, err := proc.FilesBelow(slices.Collect(maps.Values(pids)), telling)
			if err != nil {
				d.log.Debug("look for MPI", "err", err)
				continue
			}
			found := map[int]singleton{}
			for process, pid := range pids {
				found[process] = judgeFiles(files[pid], proc.Environment)
			}
			d.post(ctx, func() {
				for process, s := range found {
					d.seen(process, s)
				}
			})
		}
	})
}

// seen adds what a look at a rank has shown to what was known of it.
func (d *daemon) seen(process int, s singleton) {
	known := d.single[process]
	if !d.running[process] {
		return
	}
	if known.begun || s.library == "" {
		s.library, s.begun = known.library, known.begun
	}
	s.peers = s.peers || known.peers
	d.single[process] = s
	if !s.begun || known.begun {
		return
	}
	d.out.Write(&wire.Alone{Process: process, Library: s.library, Sure: true})
	if d.job.IfAlone == wire.AloneEnds {
		d.ranks.Kill(process)
	}
}

// alone judges a rank that has ended with 0 by itself. If it fails because it was alone, alone returns its MPI library.
func (d *daemon) alone(process int) (library string) {
	s := d.single[process]
	if s.library == "" || s.library == "MPICH" && d.mpi.Began(process) {
		return ""
	}
	others := s.peers || d.sessions.Met(process)
	switch {
	case s.begun && d.job.IfAlone == wire.AloneWarns, s.begun && others && d.job.IfAlone != wire.AloneEnds, !s.begun && others:
		return "" // seen has warned the user if it has begun
	case !s.begun && d.job.IfAlone != wire.AloneEnds:
		d.out.Write(&wire.Alone{Process: process, Library: s.library})
		return ""
	}
	return s.library
}
