package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gorun/rendezvous/step"
)

// scheduled lists prefixes of the variables that a scheduler sets for the processes of a step. With these variables,
// ranks would take themselves for its tasks. LS_COLORS and the PE_ variables of Cray's compilers stay: they are the
// user's.
var scheduled = []string{
	"SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_", "PBS_",
	"LSB_", "LS_JOBPID=", "LS_SUBCWD=", "LS_EXEC_T=", // LSF
	"PE=", "PE_HOSTFILE=", "JOB_ID=", // Grid Engine
}

// unscheduled returns an environment without the variables of a scheduler.
func unscheduled(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return slices.ContainsFunc(scheduled, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
	})
}

// stepProcess is the process that a scheduler's command starts on a host. It takes its order from a file, or from
// standard input if that is "".
func (p Process) stepProcess(ctx context.Context, file string) error {
	order, err := takeOrder(file)
	if err != nil {
		return err
	}
	if order.Host == "" {
		order.Host = p.getenv("SLURMD_NODENAME")
	}
	if order.Host == "" {
		if order.Host, err = os.Hostname(); err != nil {
			return fmt.Errorf("name host: %w", err)
		}
	}
	// The scheduler signals all processes of the step, at a time limit for example. What the children do about that, and
	// with which status they end, is still to be reported.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(ignored)
	env := unscheduled(p.Env)
	return step.Serve(context.WithoutCancel(ctx), order, func(args []string) *exec.Cmd {
		return &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{"gorun"}, args...), Env: env}
	})
}

// takeOrder reads the order. A file is removed at once.
func takeOrder(file string) (step.Order, error) {
	var in io.Reader = os.Stdin
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return step.Order{}, fmt.Errorf("read order: %w", err)
		}
		defer f.Close()
		os.Remove(file)
		in = f
	}
	return step.ReadOrder(in)
}
