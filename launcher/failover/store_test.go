package failover

import (
	"os"
	"path/filepath"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/authority"
)

// TestStatesOfEarlierVersion: what a host has saved under the former name of the directory is found, and moved once.
func TestStatesOfEarlierVersion(t *testing.T) {
	state := t.TempDir()
	former := filepath.Join(state, "heirs")
	for _, host := range []string{"a", "b"} {
		must.Do(t, (States{filepath.Join(former, host)}).Save(authority.State{Job: "ab", Holder: host}))
	}
	for range 2 {
		all, err := StatesOf(state, "a").Load()
		if err != nil || len(all) != 1 || all[0].Holder != "a" {
			t.Fatalf("%+v, %v", all, err)
		}
	}
	if left, err := os.ReadDir(former); err != nil || len(left) != 1 || left[0].Name() != "b" {
		t.Errorf("of the other host: %v, %v", left, err)
	}
	must.Do(t, StatesOf(state, "b").Save(authority.State{Job: "cd"}))
	if all, err := StatesOf(state, "b").Load(); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := os.Stat(former); err == nil {
		t.Error("the former directory is still there")
	}
}
