package main

import (
	"errors"
	"testing"

	"gorun/launcher/jobs"
)

// TestMissingJob: what to do about a job that is not found depends on whether all hosts have answered.
func TestMissingJob(t *testing.T) {
	for want, silent := range map[string][]string{
		"no such job, gorun ps --cluster host:1 lists them": nil,
		"no such job; no answer from c, d, if the job's launcher was there, another host carries it on when its lease is over: ask again": {"c", "d"},
	} {
		err := explainMissing(&jobs.NotFoundError{Err: jobs.ErrNone, Silent: silent}, "host:1")
		if e, ok := errors.AsType[*usageError](err); !ok || e.Error()+", "+e.hint != want {
			t.Errorf("%v, want %s", e, want)
		}
	}
}
