package main

import (
	"fmt"
	"strconv"
	"strings"

	"gorun/launcher/output"
	"gorun/rendezvous/wire"
)

// readPatterns reads Hydra's patterns for tags and files.
func readPatterns(o *jobFlags, cfg *output.Config) error {
	if err := o.atMostOne(&o.tag, &o.tagPattern); err != nil {
		return err
	}
	numbers := map[string]int{} // of hosts
	var err error
	filled := func(flag string, pattern *string) func(rank int) string {
		if wrong := checkPattern(*pattern); wrong != nil && err == nil {
			err = &usageError{fmt.Errorf("--%s %s: %w", flag, *pattern, wrong), "--" + flag + " '%h.%r'"}
		}
		if !o.given(pattern) {
			return nil
		}
		return func(rank int) string {
			host := cfg.Host(rank)
			if _, ok := numbers[host]; !ok {
				numbers[host] = len(numbers)
			}
			return fillPattern(*pattern, rank, host, numbers[host])
		}
	}
	tag := filled("prepend-pattern", &o.tagPattern)
	files := map[wire.OutputStream]func(int) string{wire.Stdout: filled("outfile-pattern", &o.outPattern), wire.Stderr: filled("errfile-pattern", &o.errPattern)}
	if err != nil {
		return err
	}
	if tag != nil {
		cfg.Tag = func(rank int, _ wire.OutputStream) string { return tag(rank) }
	}
	cfg.Divert = func(rank int, name wire.OutputStream) string {
		if files[name] == nil {
			return ""
		}
		return files[name](rank)
	}
	cfg.TagDiverted = o.given(&o.tag) || o.given(&o.tagPattern) || o.tagOutput
	return nil
}

// checkPattern refuses a pattern with something in it that Hydra does not fill in.
func checkPattern(pattern string) error {
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			continue
		}
		i++
		if i == len(pattern) || !strings.ContainsRune("rghp%", rune(pattern[i])) {
			return fmt.Errorf("%q is none of %%r, %%h, %%p, %%g, %%%%", pattern[i-1:min(i+1, len(pattern))])
		}
	}
	return nil
}

// fillPattern fills in a rank (%r), its host (%h) and the host's number (%p). There is one group of processes (%g), 0.
func fillPattern(pattern string, rank int, host string, number int) string {
	return strings.NewReplacer("%%", "%", "%r", strconv.Itoa(rank), "%h", host, "%p", strconv.Itoa(number), "%g", "0").Replace(pattern)
}
