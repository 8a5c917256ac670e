package hosts

import "fmt"

// Error is why a host cannot take part in a job: where, at which step and why in one line, and what to do in another.
type Error struct {
	Host string // as in the host list
	Hop  string // the bastion at which it failed, "" if it was the host itself
	Step string // how far the host got
	Err  error
	Hint string // what the user can do, "" if nothing useful is known
	Code int    // exit code of a launcher that ends with it, 0 for 1
}

// Stage is the step, and the bastion at which it failed.
func (e *Error) Stage() string {
	if e.Hop != "" {
		return e.Step + " (bastion " + e.Hop + ")"
	}
	return e.Step
}

// Error is one line without the hint.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Host, e.Stage(), e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// NextStep returns the hint.
func (e *Error) NextStep() string { return e.Hint }

// ExitCode returns the exit code of a launcher that ends with e.
func (e *Error) ExitCode() int {
	if e.Code == 0 {
		return 1
	}
	return e.Code
}
