package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gorun/launcher/hosts"
)

// hostfiles are the names that hostfiles usually have.
var hostfiles = []string{"hosts", "hostfile", "machinefile", "machines", "hosts.*", "*.hosts", "hostfile.*", "*.hostfile", "hosts-*"}

// knownHosts returns the hosts of the hostfiles in this directory and of ssh's configuration.
func knownHosts() []string {
	names := map[string]bool{}
	for _, pattern := range hostfiles {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := readShort(file)
			if err != nil {
				continue
			}
			list, _ := hosts.ParseFile(string(text))
			for _, h := range list {
				names[h.Name] = true
			}
		}
	}
	home, _ := os.UserHomeDir()
	config, _ := readShort(filepath.Join(home, ".ssh", "config"))
	for line := range strings.Lines(string(config)) {
		if words := strings.Fields(line); len(words) > 1 && strings.EqualFold(words[0], "host") {
			for _, name := range words[1:] {
				if !strings.ContainsAny(name, "*?!") {
					names[name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// knownJobs returns the names of the user's jobs.
func knownJobs() (names []string) {
	store, err := jobStore()
	if err != nil {
		return nil
	}
	all, _ := store.List()
	for _, r := range all {
		names = append(names, fmt.Sprint(r.ID))
	}
	return names
}
