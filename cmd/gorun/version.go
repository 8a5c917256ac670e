package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"
)

// version is set by the linker.
var version = "dev"

// licenses are those of the modules in this binary. go generate ./contrib/tools/licenses writes them.
//
//go:embed THIRD_PARTY_LICENSES
var licenses string

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, "gorun", version)
	return err
}

func versionCommand() *cli.Command {
	show := &cli.BoolFlag{Name: "licenses", Usage: "print the licences of the software that is part of gorun"}
	return &cli.Command{Name: "version", Usage: "print the version", UsageText: "gorun version [--licenses]", Flags: []cli.Flag{show}, Action: func(c *cli.Context) error {
		if c.Args().Present() {
			return &usageError{errors.New("version takes no arguments"), "to run a program of that name: gorun -np N version …"}
		}
		if c.Bool(show.Name) {
			_, err := io.WriteString(c.App.Writer, licenses)
			return err
		}
		return printVersion(c.App.Writer)
	}}
}
