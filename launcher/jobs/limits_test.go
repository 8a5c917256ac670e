package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/launcher/jobs"
)

// TestLimits: jobs that have ended are kept for their time, foreground jobs also by number, and no job that may run is given up.
func TestLimits(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	ended := func(d time.Duration, foreground bool) jobs.Record {
		return jobs.Record{State: jobs.Ended, Started: ago(d + day), Ended: ago(d), Foreground: foreground}
	}
	lost := func(d time.Duration, foreground bool, machine string) jobs.Record {
		return jobs.Record{State: jobs.Lost, Started: ago(d), Foreground: foreground, Machine: machine}
	}
	running := jobs.Record{State: jobs.Running, Started: ago(99 * day), Foreground: true}
	limits := jobs.Limits{Detached: 30 * day, Foreground: day, Most: 2}
	for name, tc := range map[string]struct {
		limits jobs.Limits
		all    []jobs.Record
		want   string // the numbers of the jobs that are not kept
	}{
		"detached":         {limits, []jobs.Record{ended(31*day, false), ended(29*day, false)}, "1"},
		"foreground":       {limits, []jobs.Record{ended(25*time.Hour, true), ended(23*time.Hour, true)}, "1"},
		"too many":         {limits, []jobs.Record{ended(time.Hour, true), ended(time.Hour, false), ended(time.Minute, true), ended(0, true)}, "1"},
		"lost":             {limits, []jobs.Record{lost(31*day, false, "here"), lost(29*day, false, "here"), lost(2*day, true, "here")}, "1 3"},
		"lost elsewhere":   {limits, []jobs.Record{lost(31*day, true, "there"), lost(29*day, true, "there"), ended(0, true), ended(0, true)}, "1"},
		"running":          {limits, []jobs.Record{running, running, running, ended(0, true), ended(0, true)}, ""},
		"waits for others": {limits, []jobs.Record{{State: jobs.Unattended, Started: ago(99 * day)}}, ""},
		"moved":            {limits, []jobs.Record{{State: jobs.Moved, Ended: ago(31 * day)}, {State: jobs.Moved, Ended: ago(day)}}, "1"},
		"all that ended":   {jobs.Limits{}, []jobs.Record{ended(time.Second, false), running, ended(time.Second, true), lost(time.Second, false, "here"), lost(day, true, "there")}, "1 3 4"},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tc.all {
				tc.all[i].ID = i + 1
			}
			var old []string
			for _, r := range tc.limits.Expired(tc.all, now, "here") {
				old = append([]string{fmt.Sprint(r.ID)}, old...)
			}
			if got := strings.Join(old, " "); got != tc.want {
				t.Errorf("not kept: %q, want %q", got, tc.want)
			}
		})
	}
}
