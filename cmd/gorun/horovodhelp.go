package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// horovodVersion is the version of Horovod whose command line, and whose Python interface, gorun has.
const horovodVersion = "0.28.1"

// printHorovodVersion prints the version alone, as scripts read it, and beside it what the user runs.
func printHorovodVersion(w, errs io.Writer) error {
	fmt.Fprintf(errs, "gorun: note: this is gorun %s, in place of Horovod %s\n", version, horovodVersion)
	_, err := fmt.Fprintln(w, horovodVersion)
	return err
}

// horovodGroup is a group of flags in horovodrun's help: some by name, then the knobs whose keys in a --config-file are
// in a section.
type horovodGroup struct {
	title, section string
	names          []string
}

var horovodGroups = []horovodGroup{
	{"", "", []string{"help", "version", "np", "check-build", "ssh-port", "ssh-identity-file", "disable-cache", "start-timeout", "network-interfaces",
		"output-filename", "prefix-output-with-timestamp", "verbose", "config-file"}},
	{"host arguments", "", []string{"hosts", "hostfile"}},
	{"elastic arguments", "", []string{"min-np", "max-np", "slots-per-host", "elastic-timeout", "reset-limit", "blacklist-cooldown-range", "host-discovery-script"}},
	{"tuneable parameter arguments", "params", nil},
	{"autotune arguments", "autotune", nil},
	{"timeline arguments", "timeline", nil},
	{"stall check arguments", "stall_check", nil},
	{"library arguments", "library_options", []string{"mpi-args", "tcp", "binding-args"}},
	{"logging arguments", "logging", nil},
	{"controller arguments", "controller", []string{"jsrun"}},
}

// horovodHelp is horovodrun --help: the flags of that command under its own headings.
func horovodHelp(w io.Writer, app *cli.App) {
	fmt.Fprintf(w, "usage: horovodrun [-h] [-v] -np NUM_PROC [flags] command [arguments]\n\ngorun %s in place of Horovod %s's runner\n", version, horovodVersion)
	for _, g := range horovodGroups {
		if g.title == "" {
			fmt.Fprint(w, "\noptions:\n")
		} else {
			fmt.Fprintf(w, "\n%s:\n", g.title)
		}
		for _, name := range g.flags() {
			info := flagInfos([]cli.Flag{findFlag(app.Flags, name)})[0]
			info.names = info.ofHorovod()
			info.write(w)
		}
	}
	fmt.Fprint(w, "\ngorun's own flags work here too: gorun help flags.\n")
}

// flags returns the names of the group's flags.
func (g horovodGroup) flags() []string {
	names := slices.Clone(g.names)
	for _, k := range knobs {
		if section, _, _ := strings.Cut(k.file, "."); k.file != "" && section == g.section {
			names = slices.Concat(names, k.names, k.opposed)
		}
	}
	return names
}

// ofHorovod returns the names that the flag has in horovodrun, as people write them there.
func (f flagInfo) ofHorovod() (names []string) {
	if f.names[0] == "--version" {
		names = append(names, "-v")
	}
	for _, name := range f.names {
		switch bare := strings.TrimLeft(name, "-"); {
		case bare == "np" || bare == "cb":
			names = append(names, "-"+bare)
		case len(bare) == 1 && slices.Contains([]string{"h", "p", "i", "H"}, bare), bare == "help", slices.Contains(horovodNames(), bare):
			names = append(names, name)
		}
	}
	return names
}
