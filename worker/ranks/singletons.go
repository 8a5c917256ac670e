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
	"gorun/worker/compat"
	"gorun/worker/loop"
	"gorun/worker/proc"
)

// An MPI library that does not find its launcher silently puts each rank into a world of its own. Open MPI's does, as
// it knows only its own mpirun, and MPICH's if its environment was taken away. The files that ranks have mapped and
// opened show it, whatever shell or interpreter is around the program. So they do for a Horovod that was found in place
// of gorun's, and for gorun's own module, if a rank's variables were taken away.

// firstLook is the pause before the first look at a rank. Pauses double: a rank that spends the second half of its
// life in MPI is seen.
const firstLook = 50 * time.Millisecond

// singleton is a rank that an MPI library keeps apart from the others, or may do so.
type singleton struct {
	library string // of MPI, gorunAlone or horovod
	begun   bool   // it has begun with MPI, and knows of itself only
	peers   bool   // it may have found the others by another library
}

// Libraries other than MPI.
const (
	gorunAlone = "gorun"
	horovod    = "Horovod"
)

// ofMPI reports whether the library is MPI's, or none. Beside MPI, torch may have found the other ranks.
func (s singleton) ofMPI() bool { return s.library != gorunAlone && s.library != horovod }

var (
	openMPI = regexp.MustCompile(`^libmpi\.so\.(20|40|80)(\.|$)`)
	mpich   = regexp.MustCompile(`^libmpi(ch)?\.so\.12(\.|$)`)
	// begun matches what Open MPI opens in MPI_Init: version 4 its component for programs without an mpirun, all
	// versions a file that they try shared memory with.
	begun = regexp.MustCompile(`/mca_ess_singleton\.so$|^/dev/shm/open_mpi\.`)
	// lone matches what gorun's module maps in a world of one (contrib/c/session/world.h).
	lone = regexp.MustCompile(`^/memfd:gorun-alone\b`)
	// stockHorovod matches a built Horovod, which finds the other ranks by a rendezvous or by MPI.
	stockHorovod = regexp.MustCompile(`/horovod/\w+/mpi_lib[^/]*\.so$`)
	// meets matches libraries that let ranks find each other without MPI and without gorun.
	meets = regexp.MustCompile(`^(libtorch_cpu|libtensorflow_framework|xla_extension|libjax_common|_jax)\b`)
)

// telling reports whether judgeFiles looks for a file.
func telling(file string) bool {
	name := path.Base(file)
	return lone.MatchString(file) || stockHorovod.MatchString(file) ||
		openMPI.MatchString(name) || mpich.MatchString(name) || begun.MatchString(file) || meets.MatchString(name)
}

// judgeFiles judges a rank by the files of its processes and the variables that they were started with.
func judgeFiles(processes []proc.Files, environment func(pid int) []string) (s singleton) {
	for _, p := range processes {
		uses := func(library *regexp.Regexp) bool {
			return slices.ContainsFunc(p.Paths, func(file string) bool { return library.MatchString(path.Base(file)) })
		}
		s.peers = s.peers || uses(meets)
		singly := slices.ContainsFunc(p.Paths, begun.MatchString)
		switch {
		case s.begun:
		case slices.ContainsFunc(p.Paths, lone.MatchString):
			s.library, s.begun = gorunAlone, true
		case slices.ContainsFunc(p.Paths, stockHorovod.MatchString) && aloneInHorovod(environment(p.PID), singly):
			s.library, s.begun = horovod, true
		case uses(openMPI) && !has(environment(p.PID), "PMIX_NAMESPACE"): // its mpirun sets that, also one that a rank runs
			s.library, s.begun = "Open MPI", singly
		case uses(mpich) && !has(environment(p.PID), "HYDI_CONTROL_FD"): // its mpiexec sets that
			s.library = "MPICH"
		}
	}
	return s
}

// aloneInHorovod reports whether a stock Horovod knows of one rank only: by its variables, or as Open MPI began singly.
// With gorun's variables, and without a rendezvous, it ends with an error by itself.
func aloneInHorovod(env []string, singly bool) bool {
	another := []string{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "PMIX_NAMESPACE", "HYDI_CONTROL_FD"} // a launcher has set them
	launched := slices.ContainsFunc(another, func(name string) bool { return has(env, name) })
	return !launched && (singly || !has(env, "HOROVOD_SIZE"))
}

func has(env []string, name string) bool {
	return slices.ContainsFunc(env, func(variable string) bool { return strings.HasPrefix(variable, name+"=") })
}

// singletons looks for MPI libraries that keep ranks apart.
type singletons struct {
	loop.Component
	mpi       *compat.MPI
	met       func(process int) bool // whether it has met other ranks by gorun
	kill      func(process int)
	processes processes
	found     map[int]singleton // by process
}

// look looks at processes that have just started, again and again as long as they run.
func (s *singletons) look(ctx context.Context, started []int) {
	s.Loop.Go(func() {
		for pause := firstLook; resume.Pause(ctx, pause); pause *= 2 {
			pids := s.unsettled(ctx, started)
			if len(pids) == 0 {
				return
			}
			files, err := proc.FilesBelow(slices.Collect(maps.Values(pids)), telling)
			if err != nil {
				s.Log.Debug("look for MPI", "err", err)
				continue
			}
			seen := map[int]singleton{}
			for number, pid := range pids {
				seen[number] = judgeFiles(files[pid], proc.Environment)
			}
			s.Loop.Post(ctx, func() {
				for number, what := range seen {
					s.add(number, what)
				}
			})
		}
	})
}

// unsettled returns the pids of the processes that run and may show more at another look. It waits for the
// loop.
func (s *singletons) unsettled(ctx context.Context, started []int) map[int]int {
	running := make(chan map[int]int, 1)
	s.Loop.Post(ctx, func() {
		pids := map[int]int{}
		for _, number := range started {
			known := s.found[number]
			if p := s.processes.of(number); p.running && !(known.begun && known.peers) {
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

// add adds what a look at a rank has shown to what was known of it.
func (s *singletons) add(number int, seen singleton) {
	known := s.found[number]
	if !s.processes.of(number).running {
		return
	}
	if !seen.ofMPI() && s.met(number) { // only a process that the rank has started is alone
		seen.library, seen.begun = "", false
	}
	if known.begun || seen.library == "" {
		seen.library, seen.begun = known.library, known.begun
	}
	seen.peers = seen.peers || known.peers
	s.found[number] = seen
	if !seen.begun || known.begun {
		return
	}
	s.Out.Write(&wire.Alone{Process: number, Library: seen.library, Sure: true})
	if s.Job.IfAlone == wire.AloneEnds {
		s.kill(number)
	}
}

// killed reports whether a rank was killed because it was alone, and returns its MPI library.
func (s *singletons) killed(number int) (library string, ok bool) {
	known := s.found[number]
	return known.library, known.begun && s.Job.IfAlone == wire.AloneEnds
}

// judge judges a rank that has ended with 0 by itself. If it fails because it was alone, judge returns its MPI library.
func (s *singletons) judge(number int) (library string) {
	known := s.found[number]
	if known.library == "" || known.library == "MPICH" && s.mpi.Began(number) {
		return ""
	}
	others := s.met(number) || known.peers && known.ofMPI()
	switch {
	case known.begun && s.Job.IfAlone == wire.AloneWarns,
		known.begun && others && s.Job.IfAlone != wire.AloneEnds,
		!known.begun && others:
		return "" // add has warned the user if it has begun
	case !known.begun && s.Job.IfAlone != wire.AloneEnds:
		s.Out.Write(&wire.Alone{Process: number, Library: known.library})
		return ""
	}
	return known.library
}
