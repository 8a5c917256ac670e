package main

import (
	"slices"
	"strings"
)

// errorFile notes that gorun, unlike torchrun, does not write the first exception of a rank to a file.
func errorFile(environ []string, programs []program) (notes []string) {
	const name = "TORCHELASTIC_ERROR_FILE"
	set := func(env []string) bool {
		return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") && len(kv) > len(name)+1 })
	}
	if !set(environ) || slices.ContainsFunc(programs, func(p program) bool { return set(p.Env) }) {
		return nil
	}
	return []string{"gorun: " + name + " is not passed on: gorun shows what the first rank that fails wrote last; with -x " + name +
		" the ranks of each host write to that file"}
}
