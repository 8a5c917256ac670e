package main

import (
	"fmt"
	"io"
	"strings"
)

// exitCode is a row of the table of exit codes.
type exitCode struct{ code, meaning string }

// exitCodes are what gorun ends with.
var exitCodes = []exitCode{
	{"0", "every rank exited with 0"},
	{"1", "gorun itself failed, a rank exited with 1, or an elastic job had too few slots left"},
	{"2", "wrong flags or arguments, or a host lacks what they ask for: slots, CPUs, GPUs, NICs"},
	{"124", "the job, or gorun drain, took longer than --timeout"},
	{"126", "the program is not executable"},
	{"127", "the program was not found on a host"},
	{"128+n", "a rank was killed by signal n, or gorun was stopped by it (130: Ctrl-C)"},
	{"255", "a host could not be reached, or was lost"},
	{"other", "the exit status of the first rank that failed"},
}

// writeExitCodes writes the table for a terminal.
func writeExitCodes(w io.Writer) {
	for _, c := range exitCodes {
		wrap(w, fmt.Sprintf("%-9s%s", c.code, c.meaning), 2, 11, helpWidth)
	}
}

// exitCodeText is the table as text.
func exitCodeText() string {
	var text strings.Builder
	writeExitCodes(&text)
	return strings.TrimSuffix(text.String(), "\n")
}
