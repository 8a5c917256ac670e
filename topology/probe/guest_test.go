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

// TestTools reads what VMware's programs print, and does not believe everything.
func TestTools(t *testing.T) {
	for name, tc := range map[string]struct {
		said    map[string]string
		want    map[string]string
		session string
	}{
		"all": {map[string]string{"esxi": "esx-07\n", "rack": "r1", "zone": "z", "session": "session = 1a2b\nversion = VMware ESXi 8.0.3 build-24022510\n"},
			map[string]string{"esxi": "esx-07", "rack": "r1", "zone": "z", "esxi-release": "VMware ESXi 8.0.3 build-24022510"}, ""},
		"nobody":  {nil, nil, ""},
		"session": {map[string]string{"sessionid": "0x37946d2f1c2b0a55\n"}, nil, "0x37946d2f1c2b0a55"},
		// As documented, but with names that are not: which metrics there are depends on the release.
		"hardware": {map[string]string{"host": `<metrics session="4004861987670969122"><metric name="memory" type="static" units="MB">523904</metric>` +
			`<metric name="used" type="accumulate" units="ms">8612</metric><metric name="cores" type="static" units="">64</metric></metrics>`},
			map[string]string{"esxi-hardware": "cores=64, memory=523904 MB"}, ""},
		"no hardware": {map[string]string{"host": `<metrics><metric name="used" type="instant" units="MB">3</metric>`, "sessionid": "VMware Tools is not running\n"}, nil, ""},
		"release":     {map[string]string{"session": "version = VMware ESXi 7.0.3\n"}, map[string]string{"esxi-release": "VMware ESXi 7.0.3"}, ""},
		"strange":     {map[string]string{"esxi": "a\x1b[2Jb", "rack": strings.Repeat("r", 300), "zone": "  ", "session": "version\nversion =\n", "sessionid": "0x12 34"}, nil, ""},
	} {
		root := probetest.Unpack(t, "testdata/vsphere.txtar")
		h, err := probe.Prober{Root: root, Run: func(_ context.Context, program string, args ...string) ([]byte, error) {
			key := args[len(args)-1]
			if program == "vmtoolsd" {
				key = strings.TrimPrefix(key, "info-get guestinfo.gorun.")
			} else if program != "vmware-toolbox-cmd" || args[0] != "stat" {
				t.Errorf("%s: runs %s %v", name, program, args)
			}
			if text, ok := tc.said[key]; ok {
				return []byte(text), nil
			}
			return nil, errors.New("No value found")
		}}.Probe(t.Context())
		if err != nil || !reflect.DeepEqual(h.Labels, tc.want) || h.Session != tc.session {
			t.Errorf("%s: %v, %v, session %q; should be %v, %q", name, err, h.Labels, h.Session, tc.want, tc.session)
		}
	}
	// What is no machine of VMware's is not asked.
	root := probetest.Unpack(t, "testdata/baremetal.txtar")
	_, err := probe.Prober{Root: root, Run: func(_ context.Context, program string, _ ...string) ([]byte, error) {
		if program != "nvidia-smi" {
			t.Error("asked")
		}
		return nil, nil
	}}.Probe(t.Context())
	if err != nil {
		t.Error(err)
	}
}
