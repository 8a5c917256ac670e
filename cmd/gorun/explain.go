package main

import (
	"errors"
	"io"

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
