package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher/shellwords"
)

// mpirunTable binds the flags of mpirun and mpiexec.
func (o *jobFlags) mpirunTable() []cli.Flag {
	return []cli.Flag{
		&cli.GenericFlag{Name: "mca", Aliases: []string{"prtemca", "pmixmca", "gmca"}, Value: &o.mca,
			Usage: "Open MPI's `KEY VALUE`; btl_tcp_if_include and its like choose the NICs, plm_rsh_agent is --ssh-command, others change nothing", Hidden: true},
		&cli.PathFlag{Name: "configfile", Destination: &o.programsFile, Aliases: []string{"app"},
			Usage: "Hydra's and Open MPI's `FILE` with a program and its flags on each line", Hidden: true},
		&cli.StringFlag{Name: "stdin", Destination: &o.stdin, Aliases: []string{"s"}, Category: "output",
			Usage: "which ranks read standard input, each all of it: `WHICH` is all, none or a list such as 0,4-7", DefaultText: "0"},
	}
}

// nicsOf are the NICs that the flags name, in gorun's words or in Open MPI's.
func nicsOf(o *jobFlags) []string {
	var out []string
	add := func(list string) {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" {
				out = append(out, name)
			}
		}
	}
	for _, list := range slices.Concat(o.nics.Value(), o.nic.Value()) {
		add(list)
	}
	if len(out) > 0 {
		return out
	}
	o.mca.each(func(key, value string) {
		if choosesNICs(key) {
			add(value)
		}
	})
	return out
}

// choosesNICs reports whether a parameter of Open MPI names NICs.
func choosesNICs(key string) bool {
	return slices.Contains([]string{"btl_tcp_if_include", "oob_tcp_if_include", "prte_if_include"}, key)
}

// isAgent reports whether a parameter names the program with which Open MPI's mpirun reaches hosts.
func isAgent(key string) bool { return key == "plm_rsh_agent" || key == "plm_ssh_agent" }

// readApps returns the words of a file that Hydra takes by -configfile and Open MPI by --app: a program and its flags
// on each line, put together with colons.
func readApps(file string) ([]string, error) {
	const hint = "each line is: -n 1 -host host1 program arguments"
	text, err := readShort(file)
	if err != nil {
		return nil, &usageError{fmt.Errorf("read file of programs: %w", err), hint}
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		words, err := shellwords.Split(line)
		if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 {
			words = words[:i]
		} else if err != nil {
			return nil, &usageError{fmt.Errorf("%s: %w", file, err), hint}
		}
		if len(words) > 0 && len(out) > 0 {
			out = append(out, ":")
		}
		out = append(out, words...)
	}
	if len(out) == 0 {
		return nil, &usageError{fmt.Errorf("%s: no program to run", file), hint}
	}
	return out, nil
}
