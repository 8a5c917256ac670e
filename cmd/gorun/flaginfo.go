package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"gorun/collective/schedule"
	"gorun/launcher/scheduler"
)

// flagInfo is a flag as help, completion and manual show it.
type flagInfo struct {
	names  []string // with their dashes
	value  string   // what it takes, "" if nothing
	usage  string
	preset string
	env    []string // variables that stand for it
}

// choices are the words that completion offers for the values of some flags; what is not here is taken for a file.
var choices = map[string][]string{
	"algorithm":        slices.Sorted(slices.Values(schedule.AlgorithmNames())),
	"bind-to":          {"core", "hwthread", "none", "numa", "socket"},
	"color":            {"always", "auto", "never"},
	"gpu-path":         gpuPaths,
	"jax-engine":       {"gorun"},
	"launcher":         scheduler.Names(),
	"map-by":           {"node", "slot"},
	"on-failure":       {"replace", "shrink", "wait"},
	"on-loss":          {"keep-batch", "shrink-batch"},
	"rank-by":          {"node", "slot"},
	"rdma":             {"auto", "off", "on"},
	"ring-order":       {"host", "measured", "topology"},
	"transport":        {"rdma", "tcp", "tcp,rdma"},
	"wire-compression": {"bf16", "fp16", "int8", "none"},
}

// flagInfos describes flags in their order.
func flagInfos(flags []cli.Flag) []flagInfo {
	var out []flagInfo
	for _, f := range flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		info := flagInfo{usage: doc.GetUsage()}
		for _, name := range f.Names() {
			dashes := "--"
			if len(name) == 1 {
				dashes = "-"
			}
			info.names = append(info.names, dashes+name)
		}
		if doc.TakesValue() {
			info.value = "VALUE"
			if before, rest, ok := strings.Cut(info.usage, "`"); ok {
				name, after, _ := strings.Cut(rest, "`")
				info.value, info.usage = name, before+name+after
			}
		}
		info.preset, info.env = presetOf(doc), doc.GetEnvVars()
		out = append(out, info)
	}
	return out
}

// presetOf returns a flag's default as users write it, "" for off and none.
func presetOf(f cli.DocGenerationFlag) string {
	text := strings.Trim(f.GetDefaultText(), `"`)
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if text == "false" || text == "0s" {
		return ""
	}
	return text
}

// writeFlags explains flags, each on one line or with its meaning below its names.
func writeFlags(w io.Writer, flags []cli.Flag) {
	for _, f := range flagInfos(flags) {
		f.write(w)
	}
}

func (f flagInfo) write(w io.Writer) {
	term := f.term()
	if utf8.RuneCountInString(term) > helpColumn-4 {
		wrap(w, term, 2, 6)
		wrap(w, f.meaning(), helpColumn, helpColumn)
		return
	}
	wrap(w, fmt.Sprintf("%-*s%s", helpColumn-2, term, f.meaning()), 2, helpColumn)
}

// term returns the names of a flag, the short ones first, and what it takes.
func (f flagInfo) term() string {
	names := slices.Clone(f.names)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(min(len(a), 3), min(len(b), 3)) })
	return strings.TrimSpace(strings.Join(names, ", ") + " " + f.value)
}

// meaning returns what a flag does, its default, and the variable that stands for it.
func (f flagInfo) meaning() string {
	text := f.usage
	if f.preset != "" {
		text += " (default: " + f.preset + ")"
	}
	for _, name := range f.env {
		text += " [$" + name + "]"
	}
	return text
}
