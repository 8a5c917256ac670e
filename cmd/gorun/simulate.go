package main

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/collective"
	"gorun/collective/schedule"
	"gorun/worker/bench"
)

// simulateFlags determine what is simulated instead of measured.
type simulateFlags struct {
	simulate   bool
	alpha, gap time.Duration
	bandwidth  float64
}

func (o *simulateFlags) simulateTable() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "simulate", Destination: &o.simulate,
			Usage: "start nothing: play an allreduce through between 4 to 4096 hosts, with what messages cost as -v shows it"},
		&cli.DurationFlag{Name: "alpha", Destination: &o.alpha, Value: 30 * time.Microsecond,
			Usage: "of --simulate: `TIME` of a message"},
		&cli.Float64Flag{Name: "bandwidth", Destination: &o.bandwidth, Value: 1.25, Usage: "of --simulate: `GB/s` of a link"},
		&cli.DurationFlag{Name: "gap", Destination: &o.gap, Value: 3 * time.Microsecond,
			Usage: "of --simulate: `TIME` between two messages that a host sends"},
	}
}

// simulatedHosts are the columns of the table.
var simulatedHosts = [...]int{4, 16, 64, 256, 1024, 4096}

// simulate prints how long an allreduce takes with the algorithm that is chosen, or with the one that is named.
func simulate(to io.Writer, o *simulateFlags, cfg bench.Config, algorithm string) error {
	cost := schedule.Cost{Alpha: o.alpha.Seconds(), Beta: 1e-9 / o.bandwidth, Gap: o.gap.Seconds()}
	if !cost.Sound() {
		return &usageError{fmt.Errorf("--alpha %v, --bandwidth %v, --gap %v: no link costs that", o.alpha, o.bandwidth, o.gap), ""}
	}
	if cfg.Kind != collective.Allreduce {
		return &usageError{fmt.Errorf("--simulate: only an allreduce can be simulated, not %s", cfg.Kind), ""}
	}
	forced, err := schedule.ParseAlgorithm(algorithm)
	if err != nil {
		return &usageError{fmt.Errorf("--algorithm: %w", err), ""}
	}
	return printSimulation(to, cost, cfg, forced)
}

func printSimulation(w io.Writer, cost schedule.Cost, cfg bench.Config, forced schedule.Algorithm) error {
	fmt.Fprintf(w, "# allreduce, simulated: a message takes %.3g µs, a byte %.3g ns, %.3g µs between messages\n", cost.Alpha*1e6, cost.Beta*1e9, cost.Gap*1e6)
	fmt.Fprint(w, "# time in µs by ")
	for i, a := range schedule.Algorithms() {
		if i > 0 {
			fmt.Fprint(w, ", ")
		}
		fmt.Fprintf(w, "%s %s", a.Mark(), a)
	}
	fmt.Fprintf(w, "\n#\n#%11s", "size")
	for _, hosts := range simulatedHosts {
		fmt.Fprintf(w, "%12d  ", hosts)
	}
	fmt.Fprintln(w, " hosts")
	for n := int64(cfg.Begin); n <= int64(cfg.End); n *= int64(cfg.Factor) {
		fmt.Fprintf(w, "%12d", n)
		for _, hosts := range simulatedHosts {
			by := forced.Fit(hosts, n)
			if forced == schedule.Auto {
				by = cost.Choose(n, hosts, collective.DefaultDirect)
			}
			fmt.Fprintf(w, "%12.1f %s", cost.Simulate(by, n, hosts)*1e6, by.Mark())
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return fmt.Errorf("print simulation: %w", err)
		}
	}
	return nil
}
