//go:build linux

package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/launcher"
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

// TestRecordOfHostsApart: the status of a job says which host another one does not hear, until it does, or one of the two is lost.
func TestRecordOfHostsApart(t *testing.T) {
	job, lock, err := jobs.Store{Dir: t.TempDir()}.Create(jobs.Record{State: jobs.Running})
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	d := &detached{job: job, ask: make(chan struct{}, 1), ranks: []jobs.Rank{{Host: "host2", State: "runs"}, {Rank: 1, Host: "host3", State: "runs"}}}
	d.record.State, d.record.Ranks = jobs.Running, 2
	since := time.Now()
	shows := func(want ...string) {
		t.Helper()
		got := standOf(d.record)
		for _, r := range d.list() {
			got += "; " + r.State
		}
		if want := strings.ReplaceAll(strings.Join(want, "; "), "NOW", since.Local().Format(time.TimeOnly)); got != want {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	apart := launcher.HostEvent{Host: "host3", To: "host2", State: launcher.HostSilent, Since: since}
	d.host(apart)
	shows("running, host3 silent to host2 since NOW", "runs", "host silent to host2 since NOW")
	d.host(launcher.HostEvent{Host: "host3", To: "host1", State: launcher.HostBack, Since: since})
	shows("running, host3 silent to host2 since NOW", "runs", "host silent to host2 since NOW")
	d.host(launcher.HostEvent{Host: "host3", To: "host2", State: launcher.HostBack, Since: since})
	shows("running", "runs", "runs")
	d.host(apart)
	d.world(2, []string{"host2", "host3"})
	shows("running, host3 silent to host2 since NOW", "runs", "host silent to host2 since NOW")
	d.host(launcher.HostEvent{Host: "host2", State: launcher.HostLost})
	shows("running", "ended with its host", "runs")
	d.host(apart)
	d.world(1, []string{"host3"})
	shows("running", "ended with its host", "runs")
}
