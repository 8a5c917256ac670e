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
	must.Report(t, err)
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
	if want := []string{`"1"`, `"control"`, `"logging.hide_timestamp"`, `"mine"`}; err != nil || len(values) != 2 || !slices.Equal(unknown, want) {
		t.Errorf("%v, values %v, unknown %q", err, values, unknown)
	}
	// A date may be the name of a file, and a value may stand elsewhere.
	values, _, err = parseConfig([]byte("timeline: {filename: &day 2026-11-30}\nautotune:\n  log_file: *day"))
	if err != nil || values["timeline.filename"] != "2026-11-30" || values["autotune.log_file"] != "2026-11-30" {
		t.Errorf("%v, values %v", err, values)
	}
	for in, want := range map[string]string{
		"params: 3":                             `parse config file: line 1: "params" is not a section with keys`,
		"- a":                                   "parse config file: ",
		"params:\n  cycle_time_ms: -1":          `parse config file: line 2: params.cycle_time_ms: "-1": must be >= 0`,
		"params:\n  cache_capacity: many":       `"many": not a number`,
		"autotune:\n  enabled: maybe":           `"maybe": neither true nor false`,
		"params:\n  cycle_time_ms: [1]":         "takes one value",
		"controller: jsrun":                     "parse config file: line 1: controller is neither gloo nor mpi",
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
