package main

import (
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

// benchCommand measures collectives as a job of its own, whose ranks are this very binary.
func benchCommand(hurry <-chan struct{}) *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "begin", Aliases: []string{"b"}, Value: "4", Usage: "first `SIZE` in bytes: 4, 64K, 1M, 1G"},
		&cli.StringFlag{Name: "end", Aliases: []string{"e"}, Value: "256M", Usage: "last `SIZE`"},
		&cli.IntFlag{Name: "factor", Aliases: []string{"f"}, Value: 4, Usage: "each size is `N` times the one before"},
		&cli.StringFlag{Name: "dtype", Value: "float32", Usage: "element `TYPE`: uint8 … int64, float16, bfloat16, float32, float64"},
		&cli.StringFlag{Name: "op", Value: "sum", Usage: "`REDUCTION` of what is reduced: sum, prod, min, max, avg"},
		&cli.IntFlag{Name: "iters", Usage: "run each size `N` times; 0: as often as min-time says"},
		&cli.DurationFlag{Name: "min-time", Value: 500 * time.Millisecond, Usage: "run each size for about this `TIME`, at least 5 times"},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON document instead of a table"},
	}
	flags = slices.Concat(flags, vsFlags(), simulateFlags())
	for _, f := range launchFlags() {
		if !slices.Contains([]string{"version", "no-horovod-shim", "output-filename", "prefix-output-with-timestamp", "wdir", "rank-wrapper", "hydra-hostfile",
			"tag", "only-ranks", "merge-stderr", "color", "json-events", "timeout", "dry-run", "x", "genv", "env", "module", "configfile", "stdin", "max-restarts",
			"prepend-pattern", "outfile-pattern", "errfile-pattern"}, f.Names()[0]) {
			if f, ok := f.(*cli.BoolFlag); ok && f.Name == "no-tag-output" {
				f.Hidden = true // always so
			}
			flags = append(flags, f)
		}
	}
	return &cli.Command{
		Name:      "bench",
		Usage:     "measure collectives: gorun bench [allreduce|allgather|broadcast|…] -np 4 -H host1:2,host2:2",
		ArgsUsage: "[" + strings.Join(bench.Kinds(), "|") + "]",
		Flags:     flags,
		Action: func(c *cli.Context) error {
			if c.Bool("simulate") {
				return simulate(c)
			}
			if c.Bool("vs") {
				return benchVersus(c)
			}
			return benchJob(c, hurry)
		},
	}
}

// operationLast lets the operation of a benchmark stand before its flags, where the flag parser would stop at it.
func operationLast(args []string) []string {
	if len(args) > 3 && args[1] == "bench" && !strings.HasPrefix(args[2], "-") {
		return slices.Concat(args[:2], args[3:], args[2:3])
	}
	return args
}

// benchJob launches the ranks.
func benchJob(c *cli.Context, hurry <-chan struct{}) error {
	cfg, err := benchConfig(c)
	if err != nil {
		return &usageError{err, "gorun bench --help lists the flags"}
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	// Rank 0 prints the table as it is.
	if err := c.Set("no-tag-output", "true"); err != nil {
		return fmt.Errorf("set no-tag-output: %w", err)
	}
	// Ranks run where there surely is a directory, and are the daemon's own binary, wherever it lies on a host: a child of the daemon still is it until it has become
	// the rank.
	return runJob(c, hurry, []program{{Program: launcher.Program{Argv: []string{"/proc/self/exe", "bench", "--rank", string(text)}, Dir: "/"}}}, nil)
}

func benchConfig(c *cli.Context) (cfg bench.Config, err error) {
	name := "allreduce"
	switch c.NArg() {
	case 0:
	case 1:
		name = c.Args().First()
	default:
		return cfg, fmt.Errorf("unexpected argument %q", c.Args().Get(0))
	}
	cfg = bench.Config{Factor: c.Int("factor"), Iters: c.Int("iters"), MinTime: c.Duration("min-time"), JSON: c.Bool("json")}
	if cfg.Kind, err = bench.Kind(name); err != nil {
		return cfg, err
	}
	if cfg.Type, err = bench.Type(c.String("dtype")); err != nil {
		return cfg, err
	}
	if cfg.Op, err = bench.Op(c.String("op")); err != nil {
		return cfg, err
	}
	if !cfg.Reduces() && c.IsSet("op") {
		return cfg, fmt.Errorf("--op %s: %s reduces nothing", c.String("op"), name)
	}
	if cfg.Coding, err = kernel.ParseCoding(c.String("wire-compression")); err != nil {
		return cfg, fmt.Errorf("--wire-compression: %w", err)
	}
	if cfg.Begin, err = bench.Size(c.String("begin")); err != nil {
		return cfg, err
	}
	if cfg.End, err = bench.Size(c.String("end")); err != nil {
		return cfg, err
	}
	return cfg, cfg.Check()
}
