package network

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"gorun/topology"
)

func TestLanes(t *testing.T) {
	nics := []topology.NIC{
		{Name: "ens224", Addrs: []string{"10.2.0.5/24", "fd00::5/64"}},
		{Name: "ens256", Addrs: []string{"10.3.0.5/24"}},
		{Name: "docker0", Addrs: []string{"172.17.0.1/16"}},
		{Name: "ens257", Addrs: []string{"10.3.0.6/24"}}, // in the network of another
	}
	data := []string{"10.1.0.9:7", "10.2.0.9:7", "10.3.0.9:7", "172.17.0.1:7", "[fd00::9]:7"}
	for _, tt := range []struct {
		names  []string
		stream int
		want   []string
	}{
		{nil, 1, data},
		{[]string{"ens224"}, 2, data},
		{[]string{"ens256", "ens257"}, 2, data},
		{[]string{"ens224", "docker0"}, 2, data}, // the peer's address there is our own
		{[]string{"ens224", "ens256"}, 0, []string{"10.3.0.9:7", "10.2.0.9:7", "10.1.0.9:7", "172.17.0.1:7", "[fd00::9]:7"}},
		{[]string{"ens224", "ens256"}, 1, []string{"10.2.0.9:7", "10.3.0.9:7", "10.1.0.9:7", "172.17.0.1:7", "[fd00::9]:7"}},
		{[]string{"ens224", "ens256"}, 2, []string{"10.3.0.9:7", "10.2.0.9:7", "10.1.0.9:7", "172.17.0.1:7", "[fd00::9]:7"}},
		{[]string{"ens256", "ens224"}, 3, []string{"10.2.0.9:7", "10.3.0.9:7", "10.1.0.9:7", "172.17.0.1:7", "[fd00::9]:7"}},
	} {
		if got := routes(data, chosenOf(tt.names, nics), tt.stream); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v, stream %d: %v, want %v", tt.names, tt.stream, got, tt.want)
		}
	}
	if got := routes([]string{"nonsense"}, nics, 1); !reflect.DeepEqual(got, []string{"nonsense"}) {
		t.Error(got)
	}
}

func TestOnePerNetwork(t *testing.T) {
	var prefixes []netip.Prefix
	for _, p := range []string{"10.1.0.5/24", "10.1.0.6/24", "10.2.0.5/24", "fd00::5/64", "fd00::6/64", "10.1.0.7/32"} {
		prefixes = append(prefixes, netip.MustParsePrefix(p))
	}
	for hint, want := range map[string]string{
		"10.1.0.5": "[10.1.0.5 10.2.0.5 fd00::5 10.1.0.7]",
		"10.1.0.6": "[10.1.0.6 10.2.0.5 fd00::5 10.1.0.7]",
		"fd00::6":  "[10.1.0.5 10.2.0.5 fd00::6 10.1.0.7]",
		"10.9.0.1": "[10.1.0.5 10.2.0.5 fd00::5 10.1.0.7]",
	} {
		if got := fmt.Sprint(onePerNetwork(prefixes, netip.MustParseAddr(hint))); got != want {
			t.Errorf("reached at %s: %s, want %s", hint, got, want)
		}
	}
}
