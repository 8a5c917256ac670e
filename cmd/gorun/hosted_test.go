package main

import (
	"testing"
	"time"

	"gorun/launcher/jobs"
)

func TestChooseJob(t *testing.T) {
	at := func(host string, id int, state string, minute int) clusterRecord {
		return clusterRecord{host, jobs.Record{ID: id, State: state, Started: time.Unix(int64(60*minute), 0)}, "", nil}
	}
	all := []clusterRecord{at("a", 1, jobs.Ended, 1), at("b", 1, jobs.Running, 2), at("a", 2, jobs.Ended, 3)}
	for _, tc := range []struct {
		id      string
		running bool
		want    string
	}{
		{"", false, "b/1"}, {"", true, "b/1"}, {"a/1", false, "a/1"}, {"2", false, "a/2"}, {"1", false, ""}, {"c/1", false, ""}, {"3", false, ""},
	} {
		r, err := chooseJob(all, tc.id, tc.running)
		if got := r.name(); (err == nil) != (tc.want != "") || err == nil && got != tc.want {
			t.Errorf("%q: %s, %v; want %q", tc.id, got, err, tc.want)
		}
	}
	ended := all[:1]
	if r, err := chooseJob(ended, "", false); err != nil || r.name() != "a/1" {
		t.Errorf("the last: %s, %v", r.name(), err)
	}
	if _, err := chooseJob(ended, "", true); err == nil {
		t.Error("a job that has ended runs")
	}
	if h := readHosting(hosting{"h:1", "h", "/a key/file"}.String()); h != (hosting{"h:1", "h", "/a key/file"}) {
		t.Errorf("%+v", h)
	}
}
