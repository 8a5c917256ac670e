package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gorun/topology/doctor"

	"github.com/urfave/cli/v2"
)

// horovodTable binds the flags of horovodrun that do something of their own.
func (o *jobFlags) horovodTable() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "check-build", Destination: &o.checkBuild, Aliases: []string{"cb"},
			Usage: "print what this binary has, as horovodrun does", Hidden: true},
		&cli.PathFlag{Name: "config-file", Destination: &o.configFile,
			Usage: "read horovodrun's engine flags from a YAML `FILE`; flags given here win"},
		&cli.StringSliceFlag{Name: "network-interfaces", Destination: &o.nics, Aliases: []string{"iface"}, Category: "network",
			Usage: "NICs between the hosts: a `LIST` of names, drivers or networks (eth0,10.0.0.0/8)", DefaultText: "those on the path to the hosts"},
		&cli.StringSliceFlag{Name: "network-interface", Destination: &o.nic,
			Usage: "as --network-interfaces, with one `NIC`, given once for each", Hidden: true},
	}
}

// settings are the knobs that are set, and what follows from it.
type settings struct {
	env  []string // for the ranks
	idle []string // flags without effect, with the reason
}

// readSettings gathers the knobs: the command line wins over the --config-file.
func readSettings(o *jobFlags) (settings, error) {
	var s settings
	file, unknown, err := readConfigFile(o.configFile)
	if err != nil {
		return s, &usageError{err, "the keys are those of horovodrun's --config-file"}
	}
	if err := o.atMostOne(o.switches["gloo"], o.switches["mpi"], o.switches["jsrun"]); err != nil {
		return s, err
	}
	values := map[string]string{}
	for _, k := range knobs {
		value, ok, err := k.given(o)
		if err != nil {
			return s, err
		}
		if !ok {
			value, ok = file[k.file]
		}
		if ok {
			values[k.names[0]] = value
		}
	}
	reasons := map[string][]string{}
	var order []string
	for _, k := range knobs {
		value, ok := values[k.names[0]]
		if !ok {
			continue
		}
		if beside(values, k.needs) {
			if v := k.variable(value); v != "" {
				s.env = append(s.env, v)
			}
		}
		if why := k.without(values, o.noShim); why != "" {
			if reasons[why] == nil {
				order = append(order, why)
			}
			reasons[why] = append(reasons[why], "--"+k.names[0])
		}
	}
	for _, why := range order {
		s.idle = append(s.idle, fmt.Sprintf("%s (%s)", strings.Join(reasons[why], " "), why))
	}
	if len(unknown) > 0 {
		s.idle = append(s.idle, fmt.Sprintf("%s in %s (horovodrun has no such key)", strings.Join(unknown, " "), o.configFile))
	}
	return s, nil
}

// horovodVersion is the version of Horovod whose command line, and whose Python interface, gorun has.
const horovodVersion = "0.28.1"

// printHorovodVersion prints the version alone, as scripts read it, and beside it what the user runs.
func printHorovodVersion(w, errs io.Writer) error {
	fmt.Fprintf(errs, "gorun: note: this is gorun %s, in place of Horovod %s\n", version, horovodVersion)
	_, err := fmt.Fprintln(w, horovodVersion)
	return err
}

// horovodHelp is horovodrun --help: the flags of that command.
func horovodHelp(w io.Writer, app *cli.App) {
	var flags []cli.Flag
	for _, name := range horovodNames() {
		if f := findFlag(app.Flags, name); !slices.Contains(flags, f) {
			flags = append(flags, f)
		}
	}
	fmt.Fprintf(w, "usage: horovodrun [-h] [-v] -np NUM_PROC [flags] command [arguments]\n\ngorun %s in place of Horovod %s's runner\n\n", version, horovodVersion)
	writeFlags(w, flags)
	fmt.Fprint(w, "\ngorun's own flags work here too: gorun help flags.\n")
}

// checkBuild prints what horovodrun --check-build prints, in its layout, of what takes Horovod's place here, and then
// which frameworks this host has.
func checkBuild(ctx context.Context, w io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find frameworks: %w", err)
	}
	_, frameworks := doctor.Python(ctx, self)
	_, err = fmt.Fprintf(w, `gorun %s, in place of Horovod v%s:

Available Frameworks:
    [X] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [ ] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [ ] CCL
    [ ] MPI
    [X] Gloo

Frameworks of python3 on this host (gorun doctor -H shows other hosts):
    %s
`, version, horovodVersion, strings.ReplaceAll(cmp.Or(frameworks, "none"), ", ", "\n    "))
	return err
}
