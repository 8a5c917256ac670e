package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/collective/kernel"
	"gorun/launcher"
	"gorun/worker/bench"
)

// benchFlags are the flags of gorun bench: what it measures, and the flags of a launch that mean something there.
type benchFlags struct {
	jobFlags
	begin, end    string
	factor, iters int
	dtype, op     string
	minTime       time.Duration
	json          bool
	transports    string
}

// notOfBench are flags of a launch that are of no use to a benchmark, or would be in its way.
var notOfBench = []string{"version", "no-horovod-shim", "output-filename", "prefix-output-with-timestamp", "wdir", "ship", "ship-dir", "env-file", "rank-wrapper", "hydra-hostfile",
	"tag", "only-ranks", "merge-stderr", "color", "json-events", "timeout", "dry-run", "x", "genv", "env", "module", "configfile", "stdin", "max-restarts",
	"prepend-pattern", "outfile-pattern", "errfile-pattern", "kubernetes", "image", "namespace", "context", "kubernetes-options", "pod-template"}

func (o *benchFlags) table() []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "begin", Destination: &o.begin, Aliases: []string{"b"}, Value: "4",
			Usage: "first `SIZE` in bytes: 4, 64K, 1M, 1G"},
		&cli.StringFlag{Name: "end", Destination: &o.end, Aliases: []string{"e"}, Value: "256M", Usage: "last `SIZE`"},
		&cli.IntFlag{Name: "factor", Destination: &o.factor, Aliases: []string{"f"}, Value: 4,
			Usage: "each size is `N` times the one before"},
		&cli.StringFlag{Name: "dtype", Destination: &o.dtype, Value: "float32",
			Usage: "element `TYPE`: uint8 … int64, float16, bfloat16, float32, float64"},
		&cli.StringFlag{Name: "op", Destination: &o.op, Value: "sum",
			Usage: "`REDUCTION` of what is reduced: sum, prod, min, max, avg"},
		&cli.IntFlag{Name: "iters", Destination: &o.iters, Usage: "run each size `N` times; 0: as often as min-time says"},
		&cli.DurationFlag{Name: "min-time", Destination: &o.minTime, Value: 500 * time.Millisecond,
			Usage: "run each size for about this `TIME`, at least 5 times"},
		&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "print one JSON document instead of a table"},
		&cli.StringFlag{Name: "transport", Destination: &o.transports,
			Usage: "run once for each of `WORDS`, one after the other: rdma, tcp, or both, as in tcp,rdma"},
	}
	shared := slices.DeleteFunc(o.jobFlags.table(), func(f cli.Flag) bool { return slices.Contains(notOfBench, f.Names()[0]) })
	for _, f := range shared {
		if f, ok := f.(*cli.BoolFlag); ok && f.Name == "no-tag-output" {
			f.Hidden = true // always on
		}
	}
	return append(flags, shared...)
}

// benchCommand measures collectives as a job of its own, whose ranks are this very binary.
func benchCommand(hurry <-chan struct{}) *cli.Command {
	o := new(benchFlags)
	return &cli.Command{
		Name:        "bench",
		Usage:       "measure collectives: time and bandwidth by size",
		UsageText:   "gorun bench [OPERATION] [-np N] [-H host1:slots,host2:slots]",
		Description: "An OPERATION is allreduce, which is measured without one, or another of " + strings.Join(bench.Kinds(), ", ") + ".",
		Flags:       o.table(),
		Action: func(c *cli.Context) error {
			o.read(c)
			cfg, err := o.config()
			if err != nil {
				return &usageError{err, "gorun bench --help lists the flags"}
			}
			return benchEach(c.Context, o, cfg, hurry)
		},
	}
}

// argumentFirst are the commands whose argument users put before the flags, too: gorun logs 3 -f.
var argumentFirst = []string{"bench", "top", "why", "stacks", "web", "logs", "attach", "stop"}

// argumentLast moves the argument of such a command behind its flags, because the flag parser stops at the first
// argument.
func argumentLast(args []string) []string {
	if len(args) > 3 && slices.Contains(argumentFirst, args[1]) && !strings.HasPrefix(args[2], "-") {
		return slices.Concat(args[:2], args[3:], args[2:3])
	}
	return args
}

// benchEach measures once for each transport that the user names.
func benchEach(ctx context.Context, o *benchFlags, cfg bench.Config, hurry <-chan struct{}) error {
	if o.transports == "" {
		return benchJob(ctx, o, cfg, hurry)
	}
	devices := o.RDMA
	words := strings.Split(o.transports, ",")
	for _, word := range words {
		if word != "tcp" && word != "rdma" {
			return &usageError{fmt.Errorf("--transport %s: neither tcp nor rdma", word), "--transport tcp,rdma"}
		}
	}
	if len(words) > 1 && o.json { // one list, which ends with whatever was measured
		fmt.Fprint(o.out, "[")
		defer fmt.Fprintln(o.out, "]")
	}
	for i, word := range words {
		if i > 0 {
			cfg.Before = ","
		}
		switch {
		case word == "tcp":
			o.RDMA = "off"
		case devices == "off" || devices == "auto": // auto is silent about hosts that cannot
			o.RDMA = "on"
		default:
			o.RDMA = devices
		}
		cfg.Transport = word
		if err := benchJob(ctx, o, cfg, hurry); err != nil {
			return err
		}
	}
	return nil
}

// benchJob launches the ranks.
func benchJob(ctx context.Context, o *benchFlags, cfg bench.Config, hurry <-chan struct{}) error {
	text, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	o.noTag = true // rank 0 prints the table itself
	// Ranks run in a directory that exists everywhere. A child of the daemon has the same executable until it starts the
	// rank.
	rank := launcher.Program{Argv: []string{ownBinary, "bench", "--rank", string(text)}, Dir: "/"}
	return runJob(ctx, &o.jobFlags, hurry, []program{{Program: rank}}, nil)
}

// config describes a measurement.
func (o *benchFlags) config() (cfg bench.Config, err error) {
	name := "allreduce"
	switch len(o.args) {
	case 0:
	case 1:
		name = o.args[0]
	default:
		return cfg, fmt.Errorf("unexpected argument %q", o.args[0])
	}
	cfg = bench.Config{Factor: o.factor, Iters: o.iters, MinTime: o.minTime, JSON: o.json}
	if cfg.Kind, err = bench.Kind(name); err != nil {
		return cfg, err
	}
	if cfg.Type, err = bench.Type(o.dtype); err != nil {
		return cfg, err
	}
	if cfg.Op, err = bench.Op(o.op); err != nil {
		return cfg, err
	}
	if !cfg.Reduces() && o.given(&o.op) {
		return cfg, fmt.Errorf("--op %s: %s reduces nothing", o.op, name)
	}
	if cfg.Coding, err = kernel.ParseCoding(o.Coding); err != nil {
		return cfg, fmt.Errorf("--wire-compression: %w", err)
	}
	if cfg.Begin, err = bench.Size(o.begin); err != nil {
		return cfg, err
	}
	if cfg.End, err = bench.Size(o.end); err != nil {
		return cfg, err
	}
	return cfg, cfg.Check()
}
