package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// tuned are the flags that few jobs need: --set KEY=VALUE gives one its value, or --KEY VALUE as with all flags. gorun
// help flags leaves them out, and gorun help settings lists them.
var tuned = []string{"algorithm", "blacklist", "blacklist-cooldown-range", "checksum", "color", "connect-retry", "elastic-timeout", "evict-stragglers",
	"gpu-path", "grace", "jax-engine", "lease", "loss-limit", "no-horovod-shim", "on-loss", "pmi-port", "pod-template", "rdma-options", "reset-limit",
	"ring-order", "save-topology", "tf-config", "vmtoolsd", "wire-compression"}

// settingsTopic is the topic of the settings.
const settingsTopic = "settings"

// withSettings moves the settings among flags to their topic, and adds the flag that sets them.
func withSettings(flags []cli.Flag) []cli.Flag {
	for _, f := range flags {
		if slices.Contains(tuned, f.Names()[0]) {
			*category(f) = settingsTopic
		}
	}
	return append(flags, &cli.StringSliceFlag{Name: "set", Category: "job",
		Usage: "tune what few jobs need: `KEY=VALUE`, of gorun help settings; may be given more than once"})
}

// applySettings gives flags the values that --set has for them.
func applySettings(c *cli.Context) error {
	for _, setting := range c.StringSlice("set") {
		key, value, given := strings.Cut(setting, "=")
		f := findFlag(c.Command.Flags, key)
		if _, toggle := f.(*cli.BoolFlag); toggle && !given {
			value = "true"
		}
		if f == nil || *category(f) != settingsTopic {
			return &usageError{fmt.Errorf("--set %s: there is no such setting", setting), "gorun help settings lists them"}
		}
		if err := c.Set(f.Names()[0], value); err != nil {
			return &usageError{fmt.Errorf("--set %s: %w", setting, reword(err)), "gorun help settings lists them"}
		}
	}
	return nil
}
