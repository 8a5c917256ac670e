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
