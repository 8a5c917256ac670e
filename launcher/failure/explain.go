package failure

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gorun/launcher/output"
)

// What the errors of a job add to their one line: the exit code of a launcher that ends with them, lines with details,
// and the user's next step.

// ExitCode returns the exit code of the rank.
func (e *RankError) ExitCode() int { return e.Code }

// Details returns the last lines that the rank wrote to standard error, unless the user has read them.
func (e *RankError) Details() []string {
	if e.Shown {
		return nil
	}
	return output.TailLines(e.Rank, e.Tail)
}

// ExitCode returns the exit code of the first host.
func (e *HostErrors) ExitCode() int { return e.Failed[0].ExitCode() }

// Details returns a table of the hosts, if several failed, and which others are missing.
func (e *HostErrors) Details() []string {
	var rows [][3]string
	for _, one := range e.Failed {
		rows = append(rows, [3]string{one.Host, one.Stage(), one.Err.Error()})
	}
	var lines []string
	if len(rows) > 1 {
		lines = output.HostTable(rows)
	}
	if len(e.Silent) > 0 {
		lines = append(lines, output.Detail("no answer yet from "+strings.Join(e.Silent, ", ")))
	}
	if len(e.Late) > 0 {
		lines = append(lines, output.Detail("no daemon yet on "+strings.Join(e.Late, ", ")))
	}
	return lines
}

// NextStep returns the first hint that a host has.
func (e *HostErrors) NextStep() (hint string) {
	for _, one := range e.Failed {
		hint = cmp.Or(hint, one.Hint)
	}
	return hint
}

// ExitCode returns the code of the end.
func (e *JobError) ExitCode() int { return e.Code }

// Details returns the lines.
func (e *JobError) Details() (lines []string) {
	for _, line := range e.Lines {
		lines = append(lines, output.Detail(line))
	}
	return lines
}

// NextStep returns the hint.
func (e *JobError) NextStep() string { return e.Hint }

// ExitCode returns the one for lost hosts.
func (e *IsolatedError) ExitCode() int { return ExitTransport }

// NextStep depends on whether the launcher was stopped.
func (e *IsolatedError) NextStep() string {
	if e.Stopped > 0 {
		return "with a longer --lease hosts wait longer; Ctrl-Z stops a job with its ranks for as long as you like"
	}
	return "look at the network of this machine; with a longer --lease hosts wait longer for it"
}

// ExitCode returns the one for lost hosts.
func (e *MinorityError) ExitCode() int { return ExitTransport }

// NextStep names the size of a cluster that stands more.
func (e *MinorityError) NextStep() string {
	return "a cluster of five or more hosts survives the loss of two at once"
}

// programHint explains why a program that the user can see was not found.
func programHint(reason string) string {
	if script, _, windows := strings.Cut(reason, ": its first line ends in a carriage return"); windows {
		return "take the carriage returns from all of its lines: sed -i 's/\\r$//' " + script
	}
	program, _, searched := strings.Cut(reason, ": not found in PATH")
	switch file, err := os.Stat(program); {
	case !searched:
		return ""
	case program == "python":
		return "many hosts have it as python3: gorun … python3 …"
	case strings.Contains(program, " "):
		return "the program and its arguments are words of their own, without quotes around them: gorun … " + program
	case err != nil || file.IsDir():
		return ""
	case strings.HasSuffix(program, ".py"):
		return "name its interpreter: gorun … python3 " + program
	}
	return "a program of this directory is called with its path: gorun … ./" + program
}

// NextStep recognizes common mistakes.
func (e *RankError) NextStep() string {
	tail := strings.Join(e.Tail, "\n")
	switch {
	case e.Hint != "":
		return e.Hint
	case e.Code == 127:
		if hint := programHint(e.Reason); hint != "" {
			return hint
		}
		if strings.Contains(e.Reason, ": a link to ") {
			return fmt.Sprintf("a virtual environment needs the Python that it was made from, at the same path on %s", e.Host)
		}
		if strings.Contains(e.Reason, " is active where gorun runs, ") {
			return fmt.Sprintf("make the environment on %s, at the same path; a Python that is meant by its path is taken as it is: gorun … /usr/bin/python3", e.Host)
		}
		return fmt.Sprintf("install the program on %s, or give its full path; PATH is the launcher's", e.Host)
	case e.Code == 126 && strings.HasSuffix(e.Reason, ": argument list too long"):
		return "its variables and arguments are more than the kernel takes: --env-none passes on only the variables that -x names"
	case e.Code == 126 && strings.Contains(e.Reason, ": its file system has not answered"):
		return fmt.Sprintf("look at the mounts of %s, such as NFS: whoever touches one whose server is gone waits for ever", e.Host)
	case e.Code == 126:
		return "make the file executable (chmod +x), or name its interpreter: gorun … python3 " + "script.py"
	case strings.Contains(tail, "can't open file") && e.Host == "localhost":
		return "the file is not in this directory: give its path, or choose another directory with --wdir"
	case strings.Contains(tail, "can't open file"):
		return fmt.Sprintf("put the script on %s at the same path, or have gorun send it: gorun --ship", e.Host)
	case strings.Contains(tail, "No module named 'gorun'"):
		return pathLost + "; or this binary carries no Python binding: build it with make"
	case strings.Contains(tail, "No module named 'horovod'"):
		return pathLost + "; --no-horovod-shim needs an installed Horovod"
	case strings.Contains(tail, "module 'horovod.torch' has no attribute 'init'"):
		return "Python finds a source tree of Horovod that was not built before gorun's drop-in: run the script from another directory, or build that Horovod"
	case strings.Contains(tail, "horovod/common/gloo/memory_store.cc"):
		return "the ranks import an installed Horovod, which got no rendezvous: let Python find gorun's drop-in (without -I and -E), or add --no-horovod-shim"
	case strings.HasPrefix(e.Reason, "working directory"):
		if e.Host == "localhost" {
			return "make it, or choose one that is there with --wdir"
		}
		return fmt.Sprintf("make it on %s, choose one that is there with --wdir, or have gorun send the program: gorun --ship", e.Host)
	case e.Alone == "Open MPI":
		return "start programs of Open MPI by: mpirun --mca plm_rsh_agent 'gorun rsh-agent'; if each rank is to work by itself, add --strict=false"
	case e.Alone == "gorun" || e.Alone == "Horovod":
		return pathLost + "; if each rank is to work by itself, add --strict=false"
	case e.Alone != "":
		return "something around the program takes away PMI_FD or PMI_RANK, which it needs to find the others: keep them, or add --pmi-port"
	case e.Unfinished:
		return "the other ranks may wait for it for ever: a program that called MPI_Init ends with MPI_Finalize, or with MPI_Abort to end them all"
	case e.Memory:
		return "give the job more memory, or each rank less to do: a smaller batch, fewer workers of its data loader"
	case e.Signal == 9:
		return fmt.Sprintf("if nobody killed it, look for the out-of-memory killer on %s: dmesg | grep -i oom", e.Host)
	}
	_, missing, _ := strings.Cut(tail, "ModuleNotFoundError: No module named ")
	if hint := frameworkHint(tail); hint != "" || missing == "" || !strings.HasPrefix(filepath.Base(e.File), "python") {
		return hint
	}
	missing, _, _ = strings.Cut(missing, "\n")
	return fmt.Sprintf("the Python on %s is %s: install %s for it there, or name another Python by its path", e.Host, e.File, missing)
}

// frameworkHints complete errors of frameworks: what the framework needs from a program that gorun has started. See
// docs/guides/tensorflow-jax.md.
var frameworkHints = []struct{ said, hint string }{
	{"nknown backend type gorun", registerBackend},
	{"nknown c10d backend type GORUN", registerBackend}, // before torch 2
	{"Your assigned backend gorun is not available", `on CPUs accelerate takes the process group that is there: call torch.distributed.init_process_group("gorun") first, and name no backend`},
	{"Number of processes must be defined", `JAX asks for both: jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"]))`},
	{"omm_spawn", "gorun refuses MPI_Comm_spawn: start all programs at once, as gorun -np 1 ./master : -np 4 ./worker"},
	{"ulimit -f is ", "allow larger files where gorun runs (ulimit -f unlimited), and on hosts: fsize in /etc/security/limits.d, LimitFSIZE= in systemd"},
	{"libmpi.so.12: cannot open shared object file", wheelOfMPICH},
	{"cannot load MPI library", wheelOfMPICH},
}

const (
	pathLost        = `gorun's PYTHONPATH did not reach this Python: leave out -E, -I or env -i; a wrapper appends it: PYTHONPATH=/my/code:$PYTHONPATH`
	registerBackend = "import gorun.torch.distributed: that makes the backend known"
	wheelOfMPICH    = "mpi4py of pip finds the MPICH of pip: pip install mpich"
)

// frameworkHint returns what to do about the last lines of a rank, "" if that is not known.
func frameworkHint(tail string) string {
	for _, h := range frameworkHints {
		if strings.Contains(tail, h.said) {
			return h.hint
		}
	}
	return ""
}
