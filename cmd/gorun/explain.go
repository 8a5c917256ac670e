package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"gorun/launcher/failure"
	"gorun/launcher/output"
	"gorun/worker/command"
)

// An explained error is the one to report of all that it wraps or is wrapped in, and knows the exit code. It may also
// have a NextStep, which is the hint, and Details, the lines between.
type explained interface {
	error
	ExitCode() int
}

// explain prints what went wrong, where, and what to do, and returns the exit code.
//
// The rules: one line `gorun: error: …` with what and where, lower case, no full stop; at most one
// line `gorun: hint: …` with the next step; several hosts failing for their own reasons make a table.
func explain(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[command.ExitStatus](err); ok { // everything is printed already
		return int(status)
	}
	code, hint := failure.ExitFailure, ""
	report := output.Report{W: w}
	known, ok := errors.AsType[explained](err)
	if ok {
		code, err = known.ExitCode(), known
	}
	report.Errorf("%v", err)
	if e, ok := known.(interface{ Details() []string }); ok {
		report.Lines(e.Details())
	}
	if e, ok := known.(interface{ NextStep() string }); ok {
		hint = e.NextStep()
	}
	if hint == "" {
		hint = failure.LimitHint(err.Error())
	}
	if hint != "" {
		report.Hintf("%s", hint)
	}
	return code
}

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

// exitCodeText is the table as text.
func exitCodeText() string {
	var text strings.Builder
	for _, c := range exitCodes {
		wrap(&text, fmt.Sprintf("%-9s%s", c.code, c.meaning), 2, 11)
	}
	return strings.TrimSuffix(text.String(), "\n")
}
