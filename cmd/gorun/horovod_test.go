package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"

	"github.com/urfave/cli/v2"
)

// parse runs the flag parser as a launch does and hands the context to see.
func parse(t *testing.T, args []string, see func(*jobFlags)) error {
	t.Helper()
	o := new(jobFlags)
	app := appOf(o, nil)
	app.Commands = nil
	seen := false
	app.Action = func(c *cli.Context) error {
		seen = true
		o.read(c)
		see(o)
		return nil
	}
	words, err := launchArgs(args, app.Flags)
	if err == nil {
		err = app.Run(words)
	}
	if err == nil && !seen {
		t.Fatalf("%q: nothing was run", args)
	}
	return err
}

// TestKnobs gives every engine flag of horovodrun and looks at what reaches the ranks: the names and values
// are those of Horovod 0.28.1.
func TestKnobs(t *testing.T) {
	for _, tt := range []struct{ flags, want string }{
		{"--fusion-threshold-mb 32", "HOROVOD_FUSION_THRESHOLD=33554432"},
		{"--fusion-threshold-mb=0", "HOROVOD_FUSION_THRESHOLD=0"},
		{"--cycle-time-ms 0.5", "HOROVOD_CYCLE_TIME=0.5"},
		{"--cache-capacity 0", "HOROVOD_CACHE_CAPACITY=0"},
		{"--hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE=1"},
		{"--no-hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE=0"},
		{"--hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER=1"},
		{"--no-hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER=0"},
		{"--torus-allreduce", "HOROVOD_TORUS_ALLREDUCE=1"},
		{"--no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE=0"},
		{"--autotune --autotune-log-file f --autotune-warmup-samples 1 --autotune-steps-per-sample 2 --autotune-bayes-opt-max-samples 3 --autotune-gaussian-process-noise 0.5",
			"HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=f HOROVOD_AUTOTUNE_WARMUP_SAMPLES=1 HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=2 HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=3 HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=0.5"},
		{"--no-autotune --autotune-log-file f", "HOROVOD_AUTOTUNE=0"},
		{"--autotune-warmup-samples 1", ""},
		{"--timeline-filename t.json --timeline-mark-cycles", "HOROVOD_TIMELINE=t.json HOROVOD_TIMELINE_MARK_CYCLES=1"},
		{"--timeline-filename t.json --no-timeline-mark-cycles", "HOROVOD_TIMELINE=t.json HOROVOD_TIMELINE_MARK_CYCLES=0"},
		{"--timeline-mark-cycles", ""},
		{"--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE=1"},
		{"--stall-check", "HOROVOD_STALL_CHECK_DISABLE=0"},
		{"--stall-check-warning-time-seconds 5 --stall-check-shutdown-time-seconds 9", "HOROVOD_STALL_CHECK_TIME_SECONDS=5 HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9"},
		{"--mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE=1"},
		{"--no-mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE=0"},
		{"--mpi-args=--oversubscribe --binding-args=-bind-to", ""},
		{"--tcp", "NCCL_IB_DISABLE=1"},
		{"--num-nccl-streams 2 --thread-affinity 1 --gloo-timeout-seconds 30", "HOROVOD_NUM_NCCL_STREAMS=2 HOROVOD_THREAD_AFFINITY=1 HOROVOD_GLOO_TIMEOUT_SECONDS=30"},
		{"--log-level INFO --log-with-timestamp", "HOROVOD_LOG_LEVEL=INFO HOROVOD_LOG_HIDE_TIME=0"},
		{"--log-without-timestamp", "HOROVOD_LOG_HIDE_TIME=1"},
		{"--log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME=1"},
		{"--no-log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME=0"},
		{"--disable-cache --gloo", ""},
		{"--mpi", ""},
		{"--jsrun", ""},
	} {
		err := parse(t, append(append([]string{"gorun"}, strings.Fields(tt.flags)...), "true"), func(o *jobFlags) {
			s, err := readSettings(o)
			if got := strings.Join(s.env, " "); err != nil || got != tt.want {
				t.Errorf("%s: %v, env %s; want %s", tt.flags, err, got, tt.want)
			}
		})
		if err != nil {
			t.Errorf("%s: %v", tt.flags, err)
		}
	}
}

// TestKnobsComplete: TestKnobs leaves no flag out.
func TestKnobsComplete(t *testing.T) {
	source, err := os.ReadFile("horovod_test.go")
	must.Do(t, err)
	for _, k := range knobs {
		for _, name := range slices.Concat(k.names, k.opposed) {
			if !strings.Contains(string(source), "--"+name) {
				t.Errorf("--%s is not tested", name)
			}
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Do(t, os.WriteFile(file, []byte("params:\n  cycle_time_ms: 5\n  cache_capacity: 2048\n  hierarchical_allreduce: true\nstall_check: {enabled: false}\nautotune:\n"), 0o600))
	err := parse(t, []string{"gorun", "--config-file", file, "--cycle-time-ms", "7", "--no-hierarchical-allreduce", "true"}, func(o *jobFlags) {
		s, err := readSettings(o)
		want := []string{"HOROVOD_CYCLE_TIME=7", "HOROVOD_CACHE_CAPACITY=2048", "HOROVOD_HIERARCHICAL_ALLREDUCE=0", "HOROVOD_STALL_CHECK_DISABLE=1"}
		if err != nil || !reflect.DeepEqual(s.env, want) {
			t.Errorf("%v, env %q, want %q", err, s.env, want)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// horovodConfig has every key of horovodrun's configuration.
const horovodConfig = `
controller: gloo
params: {fusion_threshold_mb: 32, cycle_time_ms: 5, cache_capacity: 2048, hierarchical_allreduce: true, hierarchical_allgather: true, torus_allreduce: false}
autotune: {enabled: true, log_file: f, warmup_samples: 5, steps_per_sample: 20, bayes_opt_max_samples: 50, gaussian_process_noise: 0.9}
timeline: {filename: f, mark_cycles: true}
stall_check: {enabled: true, warning_time_seconds: 120, shutdown_time_seconds: 240}
library_options: {mpi_threads_disable: true, num_nccl_streams: 2, thread_affinity: 1, gloo_timeout_seconds: 30}
logging: {level: info, with_timestamp: false}
`

func TestConfigFile(t *testing.T) {
	values, unknown, err := parseConfig([]byte(horovodConfig))
	if err != nil || len(values) != 24 || len(unknown) > 0 {
		t.Errorf("%v, %d values: %v, unknown %q", err, len(values), values, unknown)
	}
	// What horovodrun does not look at, it does not look into either.
	values, unknown, err = parseConfig([]byte("controller: Gloo\nlogging: {hide_timestamp: [true], level: info}\nmine: 3\ncontrol: x\n1: 2"))
	if want := []string{`"logging.hide_timestamp"`, `"mine"`, `"control"`, `"1"`}; err != nil || len(values) != 2 || !slices.Equal(unknown, want) {
		t.Errorf("%v, values %v, unknown %q", err, values, unknown)
	}
	for in, want := range map[string]string{
		"params: 3":                             `line 1: "params" is not a section with keys`,
		"- a":                                   "not a mapping",
		"params:\n  cycle_time_ms: -1":          `line 2: params.cycle_time_ms: "-1": must be >= 0`,
		"params:\n  cache_capacity: many":       `"many": not a number`,
		"autotune:\n  enabled: maybe":           `"maybe": neither true nor false`,
		"params:\n  cycle_time_ms: [1]":         "takes one value",
		"controller: jsrun":                     "neither gloo nor mpi",
		"logging:\n  level: LOUD":               "none of TRACE",
		"a: {b":                                 "parse config file",
		"autotune: {gaussian_process_noise: 2}": "must be in [0, 1]",
	} {
		if _, _, err := parseConfig([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", in, err, want)
		}
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add([]byte(horovodConfig))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		values, _, err := parseConfig(data)
		for name, value := range values {
			i := slices.IndexFunc(knobs, func(k knob) bool { return k.file == name })
			if i < 0 || knobs[i].check(value) != "" {
				t.Fatalf("%s = %q was accepted (%v)", name, value, err)
			}
		}
	})
}

func TestLaunchArgs(t *testing.T) {
	pair := words2("")
	flags := []cli.Flag{&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}}, &cli.IntFlag{Name: "np"}, &cli.GenericFlag{Name: "mca", Value: &pair}}
	for in, want := range map[string]string{
		"gorun":                        "gorun",
		"gorun -np 2 -v x -mca a b":    "gorun|-np|2|-v|x|-mca|a|b",
		"gorun --np=2 --mca a b x":     "gorun|--np=2|--mca|a b|x",
		"gorun -mca a":                 "gorun|-mca|a",
		"gorun -nope 3 -mca a b":       "gorun|-nope|3|-mca|a|b",
		"gorun -np 2 -- -mca a b":      "gorun|-np|2|--|-mca|a|b",
		"/usr/bin/horovodrun -np 2 -v": "/usr/bin/horovodrun|-np|2|--version",
		"horovodrun -np 2 python -v":   "horovodrun|-np|2|python|-v",
	} {
		words, err := launchArgs(strings.Fields(in), flags)
		if got := strings.Join(words, "|"); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
		}
	}
}

// words2 is a value of two words.
type words2 string

func (w *words2) Set(s string) error { *w = words2(s); return nil }
func (w *words2) String() string     { return string(*w) }
func (w *words2) Words() int         { return 2 }
