package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"gorun/launcher/dial"
	"gorun/launcher/hosts"
	"gorun/launcher/scheduler"
	"gorun/launcher/ssh"
)

// way is how gorun reaches the hosts of a job.
type way struct {
	scheduler.Launcher                   // runs nothing if it is ssh
	in                 *hosts.Allocation // nil outside of one
}

// wayToHosts reads --launcher. Without that flag it takes srun, like mpirun and mpiexec, if the job runs on hosts of
// this Slurm allocation; for this machine alone it needs no command.
func wayToHosts(o *jobFlags) (way, error) {
	l, err := scheduler.Parse(o.launcher)
	if err != nil {
		return way{}, &usageError{fmt.Errorf("--launcher: %w", err), "--launcher srun, or --launcher 'command {host} {program}'"}
	}
	if l.Name == scheduler.SSH || o.cluster != "" {
		return way{}, nil
	}
	in, allocErr := hosts.Allocated(surroundings())
	if l.Runs() {
		return explicitWay(o, l, in, allocErr)
	}
	srun, _ := scheduler.Parse("srun")
	if in == nil || !in.Steps || allocErr != nil || o.given(&o.script) || o.sshCommand != "" {
		return way{}, nil
	}
	if _, err := exec.LookPath(srun.Program()); err != nil {
		return way{}, nil
	}
	list, _, err := hostList(o, 0)
	if err != nil || outside(in, list) != "" || len(list) == 1 && !o.elastic() && ownNames()(context.Background(), list[0].Name) {
		return way{}, nil // whoever needs the list reports its mistakes
	}
	return way{srun, in}, nil
}

// explicitWay checks a launcher that the user has named.
func explicitWay(o *jobFlags, l scheduler.Launcher, in *hosts.Allocation, allocErr error) (way, error) {
	if _, err := exec.LookPath(l.Program()); err != nil {
		return way{}, &usageError{fmt.Errorf("--launcher: %w", err), "the commands of the scheduler have to be in the PATH here; or --launcher ssh"}
	}
	if l.Name != "srun" {
		return way{l, in}, nil
	}
	if in == nil || allocErr != nil || os.Getenv("SLURM_JOB_ID") == "" {
		return way{}, &usageError{errors.New("--launcher srun: this is no allocation of Slurm"), "salloc or sbatch first; or --launcher ssh"}
	}
	if o.given(&o.script) {
		return way{l, in}, nil
	}
	list, _, err := hostList(o, 0)
	if err != nil {
		return way{}, err
	}
	if host := outside(in, list); host != "" {
		return way{}, &usageError{fmt.Errorf("--launcher srun: %s is not in %s", host, in.From), "name hosts of the allocation, as in scontrol show hostnames; or --launcher ssh"}
	}
	return way{l, in}, nil
}

// outside returns a host that is not in the allocation, "" if all are.
func outside(in *hosts.Allocation, list []hosts.ListedHost) string {
	for _, h := range list {
		if !slices.ContainsFunc(in.Hosts, func(x hosts.ListedHost) bool { return hosts.Same(x.Name, h.Name) }) {
			return h.Name
		}
	}
	return ""
}

// steps returns what starts daemons by the scheduler's command.
func (w way) steps(o *jobFlags, exe string, binary func() (ssh.Binary, error)) *dial.Steps {
	s := &dial.Steps{Launcher: w.Launcher, Exe: exe, Binary: binary, Env: w.Environment(localEnv(o), os.Environ())}
	if dir, err := os.UserCacheDir(); err == nil { // only a command without standard input needs it
		s.Dir = filepath.Join(dir, "gorun", "steps")
	}
	if w.in != nil && w.Name == "srun" {
		s.Groups = w.in.Groups
	}
	s.Apart = o.elastic() // an elastic job goes on without a host
	return s
}

// discovers reports whether Slurm can be asked which hosts an elastic job has, as that may change.
func (w way) discovers(o *jobFlags) bool {
	return w.Name == "srun" && w.in != nil && w.in.Groups == nil && !o.namesHosts() && !o.given(&o.script)
}

// nodes reads what Slurm knows about the job. Hosts that the job got after its start have as many slots as its first host.
func (w way) nodes(text string) ([]hosts.ListedHost, error) {
	list, err := hosts.SlurmNodes(text)
	for i := range list {
		list[i].Slots = w.in.Hosts[0].Slots
		for _, h := range w.in.Hosts {
			if hosts.Same(h.Name, list[i].Name) {
				list[i].Slots = h.Slots
			}
		}
	}
	return list, err
}

// idleTask reports whether srun has started gorun as several tasks. The first one is the launcher, and the others have
// nothing to do: one gorun starts all ranks.
func idleTask(o *jobFlags) bool {
	task, tasks := os.Getenv("SLURM_PROCID"), os.Getenv("SLURM_STEP_NUM_TASKS")
	return task != "" && task != "0" && tasks != "" && tasks != "1" && !o.namesHosts() && o.cluster == ""
}
