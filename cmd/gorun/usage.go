package main

import (
	"errors"
	"fmt"
	"strings"

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

// unknownFlag is how the flag package begins to speak of one.
const unknownFlag = "flag provided but not defined: -"

// reword translates an error of the flag package into a user's words.
func reword(err error) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, unknownFlag); ok {
		return fmt.Errorf("unknown flag --%s", name)
	}
	if names, ok := strings.CutPrefix(text, "Cannot use two forms of the same flag: "); ok {
		return fmt.Errorf("--%s are two names of the same flag: give one", strings.ReplaceAll(names, " ", " and --"))
	}
	return errors.New(strings.NewReplacer("flag needs an argument: -", "flag needs an argument: --",
		" for flag -", " for flag --", " for -", " for --", ": parse error", "").Replace(text))
}
