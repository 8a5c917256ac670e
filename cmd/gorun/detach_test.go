//go:build linux

package main

import (
	"fmt"
	"sync"
	"testing"

	"gorun/launcher/jobs"
)

// TestRecordOfManyWriters: what the launcher's loop and the keeper's goroutines record at once is all there.
func TestRecordOfManyWriters(t *testing.T) {
	job, lock, err := jobs.Store{Dir: t.TempDir()}.Create(jobs.Record{Program: "true"})
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	d := &detached{job: job}
	if d.record, err = job.Load(); err != nil {
		t.Fatal(err)
	}
	const rounds = 200
	var writing sync.WaitGroup
	for _, change := range []func(*jobs.Record){
		func(r *jobs.Record) { r.Term++ },
		func(r *jobs.Record) { r.Code++ },
		func(r *jobs.Record) { r.Hosts = append(r.Hosts, fmt.Sprint("host", r.Term)) },
	} {
		writing.Go(func() {
			for range rounds {
				if err := d.save(change); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	if r, err := job.Load(); err != nil || r.Term != rounds || r.Code != rounds || len(r.Hosts) != rounds || r.Program != "true" {
		t.Errorf("of %d changes each the record has %d, %d and %d (%q, %v)", rounds, r.Term, r.Code, len(r.Hosts), r.Program, err)
	}
}
