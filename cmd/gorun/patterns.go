package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gorun/launcher/output"
	"gorun/rendezvous/wire"
)

// hydraPattern matches the patterns that Hydra fills in: a rank (%r), its host (%h) and the host's number (%p). There is one
// group of processes (%g), 0.
var (
	hydraPattern = regexp.MustCompile(`^(?:[^%]|%[rhpg%])*$`)
	errPattern   = errors.New("only %r, %h, %p, %g and %% are filled in")
)

// readPatterns reads Hydra's patterns for tags and files.
func readPatterns(o *jobFlags, cfg *output.Config) error {
	if err := o.atMostOne(&o.tag, &o.tagPattern); err != nil {
		return err
	}
	numbers := map[string]int{} // of hosts
	filled := func(pattern string, rank int) string {
		host := cfg.Host(rank)
		if _, ok := numbers[host]; !ok {
			numbers[host] = len(numbers)
		}
		return strings.NewReplacer("%%", "%", "%r", strconv.Itoa(rank), "%h", host, "%p", strconv.Itoa(numbers[host]), "%g", "0").Replace(pattern)
	}
	for _, pattern := range []*string{&o.tagPattern, &o.outPattern, &o.errPattern} {
		if flag := o.names[pattern]; !hydraPattern.MatchString(*pattern) {
			return &usageError{fmt.Errorf("--%s %s: %w", flag, *pattern, errPattern), "--" + flag + " '%h.%r'"}
		}
	}
	if o.given(&o.tagPattern) {
		cfg.Tag = func(rank int, _ wire.OutputStream) string { return filled(o.tagPattern, rank) }
	}
	files := map[wire.OutputStream]string{wire.Stdout: o.outPattern, wire.Stderr: o.errPattern}
	cfg.Divert = func(rank int, name wire.OutputStream) string { return filled(files[name], rank) }
	cfg.TagDiverted = o.given(&o.tag) || o.given(&o.tagPattern) || *o.switches["tag-output"]
	return nil
}
