package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/collective/kernel"
	"gorun/launcher/plan"
	"gorun/worker/bench"
	"gorun/worker/bench/versus"
)

// vsFlags compare with the peers that are installed.
type vsFlags struct {
	vs     bool
	rounds int
}

func (o *vsFlags) vsTable() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "vs", Destination: &o.vs, Usage: "measure Open MPI, MPICH, torch's gloo and stock Horovod too, as far as they are installed, in turns with gorun; on several hosts, the working directory must be the same on all of them"},
		&cli.IntFlag{Name: "rounds", Destination: &o.rounds, Value: 3, Usage: "with --vs, run every program `N` times"},
	}
}

// benchVersus measures gorun, by this very command without --vs, and its peers.
func benchVersus(ctx context.Context, o *benchFlags) error {
	cfg, err := o.config()
	if err == nil {
		err = checkVersus(o, cfg)
	}
	if err != nil {
		return &usageError{err, "gorun bench --help lists the flags"}
	}
	placement, err := place(&o.jobFlags)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	name := bench.KindName(cfg.Kind)
	s := versus.Setting{Operation: name, Ranks: len(placement.Ranks), Hosts: mpiHosts(ctx, placement), Sizes: cfg.Sizes(len(placement.Ranks)), Seconds: cfg.MinTime.Seconds(),
		Root: os.Geteuid() == 0, Gorun: self, Own: append([]string{self}, withoutVersus(os.Args[1:], name)...)}
	if nics := nicsOf(&o.jobFlags); len(nics) > 0 {
		s.NIC = nics[0]
	}
	where := ""
	if s.Hosts != nil {
		where = "."
	}
	dir, err := os.MkdirTemp(where, ".gorun-bench-")
	if err != nil {
		return fmt.Errorf("make room for the peers' programs: %w", err)
	}
	defer os.RemoveAll(dir)
	if s.Dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("make room for the peers' programs: %w", err)
	}
	peers, missing, err := versus.Find(ctx, s, version)
	if err != nil {
		return err
	}
	r, err := versus.Measure(ctx, s, peers, missing, o.rounds, func(what string) { fmt.Fprintln(os.Stderr, what) })
	if err != nil {
		return err
	}
	return r.Print(os.Stdout, o.json)
}

// checkVersus refuses what the peers' programs do not measure.
func checkVersus(o *benchFlags, cfg bench.Config) error {
	switch {
	case cfg.Type != kernel.Float32 || cfg.Op != kernel.Sum:
		return errors.New("--vs: the peers' programs measure float32, and sums")
	case o.given(&o.iters):
		return errors.New("--iters: with --vs, --min-time says how long each size runs")
	case o.rounds < 1:
		return fmt.Errorf("--rounds %d: must be at least 1", o.rounds)
	case o.cluster != "":
		return errors.New("--vs: peers reach hosts by ssh, not through a --cluster")
	}
	return nil
}

// mpiHosts is a host list as the peers' launchers read it, nil for this machine.
func mpiHosts(ctx context.Context, p plan.Placement) []string {
	var list []string
	own := ownNames()
	for _, h := range p.Hosts {
		if len(p.Hosts) > 1 || !own(ctx, h.Name) {
			list = append(list, h.Name+":"+strconv.Itoa(len(h.Ranks)))
		}
	}
	return list
}

// withoutVersus turns the arguments into those of the job that measures an operation of gorun itself.
func withoutVersus(args []string, operation string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, _, inline := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		switch {
		case args[i] == operation && (i == 1 || i == len(args)-1):
			continue
		case !strings.HasPrefix(args[i], "-"):
		case name == "vs" || name == "json":
			continue
		case name == "rounds":
			if !inline {
				i++
			}
			continue
		}
		out = append(out, args[i])
	}
	return slices.Concat(out[:1], []string{"--json"}, out[1:], []string{operation})
}
