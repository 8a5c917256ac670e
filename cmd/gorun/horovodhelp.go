package main

import (
	"fmt"
	"io"
	"slices"

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
