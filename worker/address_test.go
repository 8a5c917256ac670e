package worker

import (
	"net/netip"
	"reflect"
	"testing"

	"gorun/topology"
)

func TestChosenNICs(t *testing.T) {
	nics := []topology.NIC{
		{Name: "ens192", Driver: "vmxnet3", Addrs: []string{"10.1.0.5/24", "fe80::1/64"}},
		{Name: "ens224", Driver: "mlx5_core", Addrs: []string{"10.2.0.5/24", "fd00::5/64"}},
	}
	for _, tt := range []struct {
		list []string
		want []string // interfaces
		no   string   // an address that is not to be used
	}{
		{[]string{"ens224"}, []string{"ens224"}, "10.1.0.5"},
		{[]string{"mlx5_core"}, []string{"ens224"}, "10.1.0.5"},
		{[]string{"10.1.0.0/16"}, []string{"ens192"}, "10.2.0.5"},
		{[]string{"fd00::/8"}, []string{"ens224"}, "10.2.0.5"},
		{[]string{"ens224", "10.1.0.0/16"}, []string{"ens224", "ens192"}, "fe80::1"},
		{[]string{"eth0"}, nil, "10.1.0.5"},
		{nil, nil, "10.1.0.5"},
	} {
		if got := nicNames(tt.list, nics); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: interfaces %v, want %v", tt.list, got, tt.want)
		}
		use := chosenNIC(tt.list, nics)
		for _, n := range nics {
			for _, s := range n.Addrs {
				if a := netip.MustParsePrefix(s).Addr(); a.String() == tt.no && use(n.Name, a) {
					t.Errorf("%v: %s would be used", tt.list, a)
				}
			}
		}
	}
}

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
		{[]string{"ens256", "ens224"}, 3, []string{"10.3.0.9:7", "10.2.0.9:7", "10.1.0.9:7", "172.17.0.1:7", "[fd00::9]:7"}},
	} {
		if got := lanes(data, chosenOf(tt.names, nics), tt.stream); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v, stream %d: %v, want %v", tt.names, tt.stream, got, tt.want)
		}
	}
	if got := lanes([]string{"nonsense"}, nics, 1); !reflect.DeepEqual(got, []string{"nonsense"}) {
		t.Error(got)
	}
}
