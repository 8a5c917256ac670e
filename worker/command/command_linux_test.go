package command

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/topology/doctor"
	"gorun/topology/picture"
)

// TestParse: the command lines of launchers and resident daemons are known by their words alone; all others are for
// people.
func TestParse(t *testing.T) {
	const session = "0123456789abcdef"
	for _, c := range []struct {
		command string
		known   bool
	}{
		{"worker --session " + session, true},
		{"worker --session UPPER", false},
		{"worker --rdma= --session " + session, true},
		{"worker --rdma=/lib/libibverbs.so.1 --session " + session, true},
		{"worker --rdma-check=", true},
		{"worker --daemon --session " + session + " --rdma-for /usr/bin/gorun", true},
		{"worker --daemon --without-rdma reason", true},
		{"worker --daemon --without-rdma", false},
		{"worker --session " + session + " --rdma=", false},
		{"worker --relay " + session, true},
		{"worker --relay", false},
		{"worker --resumable", true},
		{"worker --daemon", true},
		{"worker --daemon --session " + session, true},
		{"worker --daemon --resumable idle", true},
		{"worker --sweep job", true},
		{"worker --sweep", false},
		{"worker --cluster-key-file F", false},
		{"bench --rank {}", true},
		{"bench --rank", false},
		{"bench -np 2", false},
		{"topo --facts", true},
		{"topo --agent", true},
		{"topo --json", false},
		{"doctor --facts", true},
		{"doctor -H host1", false},
		{"", false},
	} {
		if known := (Process{}).Parse(strings.Fields(c.command)) != nil; known != c.known {
			t.Errorf("%q is known: %v, want %v", c.command, known, c.known)
		}
	}
}

// TestAnswers: a host's description of itself is what the hosts that ask can read.
func TestAnswers(t *testing.T) {
	var topology, facts bytes.Buffer
	must.Do(t, writeTopology(t.Context(), &topology))
	if host, err := picture.ParseHost(topology.Bytes()); err != nil || host.Hostname == "" || host.Name != host.Hostname {
		t.Errorf("topology: %+v, %v", host, err)
	}
	must.Do(t, (Process{Version: "v1"}).writeFacts(t.Context(), &facts))
	var found doctor.Facts
	if err := json.Unmarshal(facts.Bytes(), &found); err != nil || found.Version != "v1" {
		t.Errorf("facts: %+v, %v", found, err)
	}
}

// TestStateDir: an absolute XDG_STATE_HOME decides, and then the home.
func TestStateDir(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for given, want := range map[string]string{"/state": "/state/gorun", "state": "/home/me/.local/state/gorun", "": "/home/me/.local/state/gorun"} {
		p := Process{Env: []string{"XDG=no", "XDG_STATE_HOME=" + given}}
		if dir, err := StateDir(p.getenv); dir != want || err != nil {
			t.Errorf("XDG_STATE_HOME=%s: %s, %v", given, dir, err)
		}
	}
}
