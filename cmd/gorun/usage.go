package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher/failure"
)

// usageError is a mistake on the command line.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func (e *usageError) ExitCode() int { return failure.ExitUsage }

func (e *usageError) NextStep() string { return e.hint }

// exclusive refuses two flags that exclude each other.
func exclusive(first, second string) error {
	return fmt.Errorf("--%s and --%s exclude each other", first, second)
}

var errNoProgram = errors.New("no program to run")

// How the flag package begins to speak of a flag.
const (
	unknownFlag = "flag provided but not defined: -"
	noArgument  = "flag needs an argument: -"
)

// reword translates an error of the flag package into a user's words.
func reword(err error) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, unknownFlag); ok {
		return fmt.Errorf("unknown flag --%s", name)
	}
	if names, ok := strings.CutPrefix(text, "Cannot use two forms of the same flag: "); ok {
		return fmt.Errorf("--%s are two names of the same flag: give one", strings.ReplaceAll(names, " ", " and --"))
	}
	return errors.New(strings.TrimSuffix(text, ": parse error"))
}

// noFile returns the error of a flag that names a file and has none, nil if the flag names no file. The hint mentions
// standard output if the flag accepts it.
func noFile(flags []cli.Flag, name string) error {
	at := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if at < 0 {
		return nil
	}
	file, ok := flags[at].(*cli.PathFlag)
	if !ok {
		return nil
	}
	hint := "--" + name + " FILE"
	if strings.Contains(file.Usage, "- for standard output") {
		hint += ", or --" + name + " - for standard output"
	}
	return &usageError{fmt.Errorf("--%s: no file name", name), hint}
}
