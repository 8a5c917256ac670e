package probe_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"gorun/topology/probe"
	"gorun/topology/probe/probetest"
)

// TestTools hears what VMware's programs say, and does not believe everything.
func TestTools(t *testing.T) {
	for name, tc := range map[string]struct {
		said map[string]string
		want map[string]string
	}{
		"all": {map[string]string{"esxi": "esx-07\n", "rack": "r1", "zone": "z", "session": "session = 1a2b\nversion = VMware ESXi 8.0.3 build-24022510\n"},
			map[string]string{"esxi": "esx-07", "rack": "r1", "zone": "z", "esxi-release": "VMware ESXi 8.0.3 build-24022510"}},
		"nobody":  {nil, nil},
		"release": {map[string]string{"session": "version = VMware ESXi 7.0.3\n"}, map[string]string{"esxi-release": "VMware ESXi 7.0.3"}},
		"strange": {map[string]string{"esxi": "a\x1b[2Jb", "rack": strings.Repeat("r", 300), "zone": "  ", "session": "version\nversion =\n"}, nil},
	} {
		root := probetest.Unpack(t, "testdata/vsphere.txtar")
		h, err := probe.Prober{Root: root, Tools: func(_ context.Context, program string, args ...string) ([]byte, error) {
			key := args[len(args)-1]
			if program == "vmtoolsd" {
				key = strings.TrimPrefix(key, "info-get guestinfo.gorun.")
			}
			if text, ok := tc.said[key]; ok {
				return []byte(text), nil
			}
			return nil, errors.New("No value found")
		}}.Probe(t.Context())
		if err != nil || !reflect.DeepEqual(h.Labels, tc.want) {
			t.Errorf("%s: %v, %v; should be %v", name, err, h.Labels, tc.want)
		}
	}
	// What is no machine of VMware's is not asked.
	root := probetest.Unpack(t, "testdata/baremetal.txtar")
	_, err := probe.Prober{Root: root, Tools: func(context.Context, string, ...string) ([]byte, error) {
		t.Error("asked")
		return nil, nil
	}}.Probe(t.Context())
	if err != nil {
		t.Error(err)
	}
}
