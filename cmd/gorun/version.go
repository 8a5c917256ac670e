package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"
)

// version is set by the linker.
var version = "dev"

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, "gorun", version)
	return err
}

func versionCommand() *cli.Command {
	return &cli.Command{Name: "version", Usage: "print the version", Action: func(c *cli.Context) error {
		if c.Args().Present() {
			return &usageError{errors.New("version takes no arguments"), "to run a program of that name: gorun -np N version …"}
		}
		return printVersion(c.App.Writer)
	}}
}
