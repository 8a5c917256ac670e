//go:build !linux

package command

import "context"

// worker knows nothing: hosts run Linux, the launcher runs elsewhere too.
func (Process) worker([]string) func(context.Context) error { return nil }
