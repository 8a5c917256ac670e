package topology_test

import (
	"fmt"
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
		{nil, nil, "fe80::1"},
	} {
		if got := topology.NICNames(tt.list, nics); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: interfaces %v, want %v", tt.list, got, tt.want)
		}
		use := topology.ChosenNIC(tt.list, nics)
		for _, n := range nics {
			for _, s := range n.Addrs {
				if a := netip.MustParsePrefix(s).Addr(); a.String() == tt.no && use(n.Name, a) {
					t.Errorf("%v: %s would be used", tt.list, a)
				}
			}
		}
	}
}

// TestOnlyNICs: neither the ring nor a measurement goes by interfaces that data does not go over.
func TestOnlyNICs(t *testing.T) {
	machine := func(name string, management, data int) topology.Host {
		return topology.Host{Name: name, NICs: []topology.NIC{
			{Name: "ens160", Up: true, Speed: management, Addrs: []string{"10.1.0.5/24"}},
			{Name: "ens192", Up: true, Speed: data, Addrs: []string{"fd00::5/64", "10.2.0.5/24"}},
			{Name: "ens224", Up: true, Speed: 400000},
			{Name: "ens256", Speed: 400000, Addrs: []string{"10.2.0.6/24"}}}}
	}
	hosts := []topology.Host{machine("a", 100000, 10000), machine("b", 100000, 25000)}
	for _, tt := range []struct {
		list  []string
		why   string
		addrs string
	}{
		{nil, "100 Gbit/s by NIC", "[10.2.0.5 10.1.0.5 fd00::5]"}, // one without an address does not count
		{[]string{"10.2.0.0/24"}, "10 Gbit/s by NIC", "[10.2.0.5]"},
		{[]string{"ens192"}, "10 Gbit/s by NIC", "[10.2.0.5 fd00::5]"},
		{[]string{"ens224"}, "nothing known, order of the host list", "[]"},
	} {
		for _, why := range topology.Order(topology.OnlyNICs(hosts, tt.list), nil).Why {
			if why != tt.why {
				t.Errorf("%v: %q, should be %q", tt.list, why, tt.why)
			}
		}
		if got := fmt.Sprint(topology.Addresses(hosts[0], tt.list, netip.MustParseAddr("10.2.0.5"))); got != tt.addrs {
			t.Errorf("%v: %s, should be %s", tt.list, got, tt.addrs)
		}
	}
	if len(hosts[0].NICs) != 4 {
		t.Error("the hosts themselves were changed")
	}
}
