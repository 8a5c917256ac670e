package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagInText is a flag in the text of an error.
var flagInText = regexp.MustCompile(`\B--?[A-Za-z][A-Za-z0-9_-]*`)

// asTyped names flags in an error of the command line as the user has typed them: -rf, not --rf.
func asTyped(err error, args []string, flags []cli.Flag) error {
	wrong, ok := errors.AsType[*usageError](err)
	if !ok {
		return err
	}
	text := flagInText.ReplaceAllStringFunc(wrong.Error(), func(flag string) string {
		names := []string{strings.TrimLeft(flag, "-")}
		if f := findFlag(flags, names[0]); f != nil {
			names = append(names, f.Names()...)
		}
		for _, name := range names {
			for _, arg := range args { // the program's come last
				if said, _, _ := flagName(arg); said == name {
					return strings.SplitN(arg, "=", 2)[0]
				}
			}
		}
		return flag
	})
	return &usageError{errors.New(text), wrong.hint}
}
