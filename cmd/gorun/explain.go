package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"gorun/launcher"
	"gorun/launcher/discover"
	"gorun/launcher/elastic"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/worker/command"
)

// exitStatusHelp is the table of exit codes; the README has the same.
const exitStatusHelp = `Exit status:
  0        every rank exited with 0
  1        gorun itself failed, or a rank exited with 1
  2        wrong flags or arguments, or a host lacks what they ask for: slots, CPUs, GPUs, NICs
  124      the job took longer than --timeout
  126 127  the program is not executable, or was not found on a host
  128+n    a rank was killed by signal n, or gorun was stopped by it (130: Ctrl-C)
  255      a host could not be reached, or was lost
  other    the exit status of the first rank that failed`

// explain prints what went wrong, where, and what to do, and returns the exit code.
//
// The rules: one line `gorun: error: …` that says what and where, lower case, no full stop; at most one
// line `gorun: hint: …` with the next step; several hosts failing for their own reasons make a table.
func explain(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	report := output.Report{W: w}
	hint := func(text string) {
		if text != "" {
			report.Hintf("%s", text)
		}
	}
	var (
		usage  *usageError
		rank   *launcher.RankError
		one    *launcher.HostError
		many   *launcher.HostErrors
		sig    signalError
		slots  *plan.SlotsError
		status command.ExitStatus
		late   *launcher.TimeoutError
		few    *launcher.ElasticError
		alone  *launcher.AloneError
		lesser *launcher.MinorityError
		script *discover.Error
	)
	switch {
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &rank):
		report.Errorf("%v", rank)
		report.Tail(rank.Rank, rank.Tail)
		hint(rankHint(rank))
		return rank.Code
	case errors.As(err, &many):
		report.Errorf("%v", many)
		var rows []output.HostFailure
		advice := ""
		for _, e := range many.Failed {
			rows = append(rows, output.HostFailure{Host: e.Host, Step: e.Step, Reason: e.Err.Error()})
			advice = cmp.Or(advice, e.Hint)
		}
		if len(rows) > 1 {
			report.Hosts(rows)
		}
		if len(many.Silent) > 0 {
			report.Detail("no answer yet from " + strings.Join(many.Silent, ", "))
		}
		if len(many.Late) > 0 {
			report.Detail("no daemon yet on " + strings.Join(many.Late, ", "))
		}
		hint(advice)
		return many.Failed[0].ExitCode()
	case errors.As(err, &one):
		report.Errorf("%v", one)
		hint(one.Hint)
		return one.ExitCode()
	case errors.As(err, &late):
		report.Errorf("%v", late)
		for _, state := range late.States {
			report.Detail(state)
		}
		hint("give it more time with --timeout, or none at all without it")
		return launcher.ExitTimeout
	case errors.As(err, &few):
		report.Errorf("%v", few)
		hint(elasticHint(few))
		return launcher.ExitFailure
	case errors.As(err, &alone):
		report.Errorf("%v", alone)
		if alone.Stopped > 0 {
			hint("with a longer --lease hosts wait longer; Ctrl-Z stops a job with its ranks for as long as you like")
			return launcher.ExitTransport
		}
		hint("look at the network of this machine; with a longer --lease hosts wait longer for it")
		return launcher.ExitTransport
	case errors.As(err, &lesser):
		report.Errorf("%v", lesser)
		hint("of a cluster of five hosts and more, two may be lost at once")
		return launcher.ExitTransport
	case errors.As(err, &script):
		report.Errorf("%v", err)
		hint("this machine runs it with sh -c; it prints a line for each host, as in host1:4, and exits with 0")
		return launcher.ExitFailure
	case errors.As(err, &sig):
		report.Errorf("%v", sig)
		return 128 + int(sig.sig)
	case errors.As(err, &slots):
		report.Errorf("%v", err)
		if n := len(slots.Hosts); slots.PerHost > 0 {
			hint(fmt.Sprintf("allow more ranks on each host (-ppn %d) or start fewer (-np %d)", (slots.NP+n-1)/n, slots.Slots))
			return launcher.ExitUsage
		}
		hint(fmt.Sprintf("give the hosts more slots (-H %s:%d,…) or start fewer ranks (-np %d)", slots.Hosts[0].Name,
			max(slots.Hosts[0].Slots, 1)+slots.NP-slots.Slots, slots.Slots))
		return launcher.ExitUsage
	case errors.As(err, &usage):
		report.Errorf("%v", usage)
		hint(usage.hint)
		return launcher.ExitUsage
	}
	report.Errorf("%v", err)
	return launcher.ExitFailure
}

// commandLike is the command of gorun's for which a program may have been meant, "" if there is none.
func commandLike(program string) string {
	for _, c := range commands(nil) {
		if !c.Hidden && typos(program, c.Name) == 1 {
			return c.Name
		}
	}
	return ""
}

// programHint knows why a program is not found that the user can see.
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
	case err != nil && commandLike(program) != "":
		return "did you mean gorun " + commandLike(program) + "? What is not a command of gorun's is a program that it starts"
	case err != nil || file.IsDir():
		return ""
	case strings.HasSuffix(program, ".py"):
		return "name its interpreter: gorun … python3 " + program
	}
	return "a program of this directory is called with its path: gorun … ./" + program
}

// elasticHint says which flags decided that a job does not go on.
func elasticHint(e *launcher.ElasticError) string {
	switch e.Cause {
	case elastic.TooFew:
		return "--min-np goes on with fewer, --blacklist-cooldown-range uses again what failed, --elastic-timeout waits longer for other hosts"
	case elastic.TooManyResets:
		return "what made ranks fail is in their output; --reset-limit lets them begin anew more often"
	}
	return ""
}

// rankHint knows the mistakes that everybody makes.
func rankHint(e *launcher.RankError) string {
	tail := strings.Join(e.Tail, "\n")
	switch {
	case e.Code == 127:
		if hint := programHint(e.Reason); hint != "" {
			return hint
		}
		if strings.Contains(e.Reason, ": a link to ") {
			return fmt.Sprintf("a virtual environment needs the Python that it was made from, at the same path on %s", e.Host)
		}
		return fmt.Sprintf("install the program on %s, or give its full path; PATH is the launcher's", e.Host)
	case e.Code == 126:
		return "make the file executable (chmod +x), or name its interpreter: gorun … python3 " + "script.py"
	case strings.Contains(tail, "can't open file") && e.Host == "localhost":
		return "no such file is here: name it as from this directory, or choose another with --wdir"
	case strings.Contains(tail, "can't open file"):
		return fmt.Sprintf("gorun does not copy programs: put the script on %s at the same path", e.Host)
	case strings.Contains(tail, "No module named 'gorun'"):
		return "this binary carries no Python binding: build it with make"
	case strings.Contains(tail, "module 'horovod.torch' has no attribute 'init'"):
		return "Python finds a source tree of Horovod that was not built before gorun's drop-in: run the script from another directory, or build that Horovod"
	case strings.HasPrefix(e.Reason, "working directory"):
		return fmt.Sprintf("make it on %s, or choose one that is there with --wdir; gorun copies no files", e.Host)
	case e.Alone == "Open MPI":
		return "start programs of Open MPI by: mpirun --mca plm_rsh_agent 'gorun rsh-agent'; if each rank is to work by itself, add --strict=false"
	case e.Alone != "":
		return "something around the program takes away PMI_FD or PMI_RANK, which it needs to find the others: keep them, or add --pmi-port"
	case e.Unfinished:
		return "the other ranks may wait for it for ever: a program that called MPI_Init ends with MPI_Finalize, or with MPI_Abort to end them all"
	case e.Signal == 9:
		return fmt.Sprintf("if nobody killed it, look for the out-of-memory killer on %s: dmesg | grep -i oom", e.Host)
	}
	return frameworkHint(tail)
}
