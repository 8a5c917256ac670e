package ranks

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

// An MPI library that does not find its launcher makes a world of one rank without a word, and so does each of the
// others: Open MPI's, which speaks with its own mpirun only, and MPICH's if its environment was taken away. What
// ranks have mapped into their memory, and opened, shows it, whatever shell or interpreter is around the program.

// firstLook is the pause before the first look at a rank. Pauses double: a rank that spends the second half of its
// life in MPI is seen.
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
	// begun matches what Open MPI opens in MPI_Init: version 4 its component for programs without an mpirun, all
	// versions a file that they try shared memory with.
	begun = regexp.MustCompile(`/mca_ess_singleton\.so$|^/dev/shm/open_mpi\.`)
	// meets matches libraries that let ranks find each other without MPI and without gorun.
	meets = regexp.MustCompile(`^(libtorch_cpu|libtensorflow_framework|xla_extension|libjax_common|_jax)\b`)
)

// telling reports whether a file is one that shows it.
func telling(file string) bool {
	name := path.Base(file)
	return openMPI.MatchString(name) || mpich.MatchString(name) || begun.MatchString(file) || meets.MatchString(name)
}

// judgeFiles judges a rank by the files of its processes and the variables that they were started with.
func judgeFiles(processes []proc.Files, environment func(pid int) []string) (s singleton) {
	for _, p := range processes {
		uses := func(library *regexp.Regexp) bool {
			return slices.ContainsFunc(p.Paths, func(file string) bool { return library.MatchString(path.Base(file)) })
		}
		s.peers = s.peers || uses(meets)
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
func (r *Ranks) lookForSingletons(ctx context.Context, started []int) {
	r.cfg.Loop.Go(func() {
		for pause := firstLook; resume.Pause(ctx, pause); pause *= 2 {
			pids := r.unsettled(ctx, started)
			if len(pids) == 0 {
				return
			}
			files, err := proc.FilesBelow(slices.Collect(maps.Values(pids)), telling)
			if err != nil {
				r.cfg.Log.Debug("look for MPI", "err", err)
				continue
			}
			found := map[int]singleton{}
			for number, pid := range pids {
				found[number] = judgeFiles(files[pid], proc.Environment)
			}
			r.cfg.Loop.Post(ctx, func() {
				for number, s := range found {
					r.seen(number, s)
				}
			})
		}
	})
}

// unsettled returns the pids of the processes that run and may show more at another look. It waits for the
// loop.
func (r *Ranks) unsettled(ctx context.Context, started []int) map[int]int {
	running := make(chan map[int]int, 1)
	r.cfg.Loop.Post(ctx, func() {
		pids := map[int]int{}
		for _, number := range started {
			if p := r.of(number); p.running && !(p.mpi.begun && p.mpi.peers) {
				pids[number] = p.pid
			}
		}
		running <- pids
	})
	select {
	case pids := <-running:
		return pids
	case <-ctx.Done():
		return nil
	}
}

// seen adds what a look at a rank has shown to what was known of it.
func (r *Ranks) seen(number int, s singleton) {
	p := r.of(number)
	known := p.mpi
	if !p.running {
		return
	}
	if known.begun || s.library == "" {
		s.library, s.begun = known.library, known.begun
	}
	s.peers = s.peers || known.peers
	p.mpi = s
	if !s.begun || known.begun {
		return
	}
	r.cfg.Out.Write(&wire.Alone{Process: number, Library: s.library, Sure: true})
	if r.job.IfAlone == wire.AloneEnds {
		r.group.Kill(number)
	}
}

// alone judges a rank that has ended with 0 by itself. If it fails because it was alone, alone returns its MPI library.
func (r *Ranks) alone(number int) (library string) {
	s := r.of(number).mpi
	if s.library == "" || s.library == "MPICH" && r.cfg.MPI.Began(number) {
		return ""
	}
	others := s.peers || r.cfg.Sessions.Met(number)
	switch {
	case s.begun && r.job.IfAlone == wire.AloneWarns,
		s.begun && others && r.job.IfAlone != wire.AloneEnds,
		!s.begun && others:
		return "" // seen has warned the user if it has begun
	case !s.begun && r.job.IfAlone != wire.AloneEnds:
		r.cfg.Out.Write(&wire.Alone{Process: number, Library: s.library})
		return ""
	}
	return s.library
}
