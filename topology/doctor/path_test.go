package doctor_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"gorun/topology"
	"gorun/topology/doctor"
)

// Ways end where links of a job would: at the first address of IPv4, or else of IPv6, of a NIC that is up and that the user
// means.
func TestWays(t *testing.T) {
	answer := func(name string, nics ...topology.NIC) doctor.Answer {
		return doctor.Answer{Facts: doctor.Facts{Host: topology.Host{Name: name, NICs: nics}}}
	}
	nic := func(name string, mtu int, addrs ...string) topology.NIC {
		return topology.NIC{Name: name, MTU: mtu, Up: true, Addrs: addrs}
	}
	down := nic("eth0", 9000, "10.0.0.3/24")
	down.Up = false
	both := func(all ...doctor.Answer) []doctor.Answer { return all }
	for _, tt := range []struct {
		name string
		all  []doctor.Answer
		list []string
		want []string
	}{
		{"a host by itself", both(answer("a", nic("eth0", 1500, "10.0.0.1/24"))), nil, nil},
		{"each to the next and back", both(answer("a", nic("eth0", 9000, "10.0.0.1/24")), answer("b", nic("ens1", 1500, "10.0.0.2/24", "10.0.0.20/24")), answer("c", nic("eth0", 65520, "10.0.0.3/24"))), nil,
			[]string{"a b eth0 10.0.0.2 1500", "a c eth0 10.0.0.3 9000", "b c ens1 10.0.0.3 1500", "b a ens1 10.0.0.1 1500", "c a eth0 10.0.0.1 9000", "c b eth0 10.0.0.2 1500"}},
		{"IPv4 before IPv6", both(answer("a", nic("eth0", 1500, "fe80::1/64", "fd00::1/64", "10.0.0.1/24")), answer("b", nic("eth0", 1500, "fe80::2/64", "fd00::2/64"))), nil,
			[]string{"a b eth0 fd00::2 1500", "b a eth0 10.0.0.1 1500"}},
		{"nobody's address is outside", both(answer("a", nic("lo", 65536, "127.0.0.1/8")), answer("b", nic("eth0", 1500, "fe80::2/64"))), nil, nil},
		{"one that is down, one of unknown size", both(answer("a", nic("eth0", 1500, "10.0.0.1/24")), answer("b", nic("eth0", 0, "10.0.0.2/24")), answer("c", down)), nil, nil},
		{"over another NIC", both(answer("a", nic("eth0", 1500, "10.0.0.1/24"), nic("fast", 9000, "10.1.0.1/24")), answer("b", nic("eth0", 1500, "10.0.0.2/24"), nic("ens9", 9000, "10.1.0.2/24"))), []string{"10.1.0.0/24"},
			[]string{"a b fast 10.1.0.2 9000", "b a ens9 10.1.0.1 9000"}},
		{"where the launcher found it", both(answer("a", nic("docker0", 1500, "172.17.0.1/16"), nic("eth0", 1500, "10.0.0.1/24")), answer("b", nic("eth0", 1500, "10.0.0.2/24"))), nil,
			[]string{"a b eth0 10.0.0.2 1500", "b a eth0 10.0.0.1 1500"}},
	} {
		tt.all[0].At = netip.MustParseAddr("10.0.0.1")
		var got []string
		for _, w := range doctor.Paths(tt.all, tt.list) {
			got = append(got, fmt.Sprint(w.From, " ", w.To, " ", w.NIC, " ", w.ToAddr, " ", w.Bytes))
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestJudgePaths(t *testing.T) {
	well := doctor.Tried{Arrive: 9000, Bandwidth: 1e9}
	way := func(from, to int) doctor.Path {
		return doctor.Path{Pair: topology.Pair{From: from, To: to}, From: "abc"[from : from+1], To: "abc"[to : to+1], NIC: "eth0", ToNIC: "eth1", Bytes: 9000}
	}
	dropped := doctor.Tried{TCP: "i/o timeout", Arrive: 9000}
	for _, tt := range []struct {
		tried []doctor.Tried // from a to b and back, and further
		want  string
	}{
		{[]doctor.Tried{well, well}, "PASS a path to b: packets of 9000 bytes arrive, 8 Gbit/s"},
		{[]doctor.Tried{{Err: errors.New("no route")}, well}, "WARN a path to b: not known: no route"},
		{[]doctor.Tried{{Arrive: 1500}, well}, "FAIL a path to b: packets of 9000 bytes are lost on the way, those of 1500 arrive: connections open and then hang"},
		{[]doctor.Tried{{Arrive: 100}, well}, "FAIL a path to b: packets of 576 bytes are lost on the way, only those of 100 arrive: no data passes"},
		{[]doctor.Tried{{Arrive: 9000, Lost: 0.05}, well}, "WARN a path to b: 5.0 % of the packets from eth0 to invalid IP are lost"},
		{[]doctor.Tried{{Arrive: 9000, Bandwidth: 625e3}, well}, "WARN a path to b: 5 Mbit/s from eth0 to invalid IP is little for data"},
		{[]doctor.Tried{{Arrive: 9000, Bandwidth: 94e6 / 8}, well}, "PASS a path to b: packets of 9000 bytes arrive, 94 Mbit/s"}, // a NIC of 100
		{[]doctor.Tried{dropped, well}, "FAIL b ports: nothing arrives by TCP (i/o timeout) from a (eth0 invalid IP) at ports of b (eth1 invalid IP), as behind a firewall"},
		{[]doctor.Tried{{}, well}, "FAIL b ports: nothing arrives by UDP from a "},
		{[]doctor.Tried{{UDP: "not permitted"}, well}, "FAIL a ports: nothing arrives by UDP (not permitted) from a "},
		{[]doctor.Tried{{TCP: "refused", Elsewhere: "eth7"}, well}, "FAIL b NIC for data: nothing arrives by TCP (refused) and UDP from a (eth0 invalid IP) at ports of b (eth1 invalid IP), but at eth7: eth1 is the wrong NIC"},
		// Of three hosts: none reaches b, or a reaches none.
		{[]doctor.Tried{dropped, well, well, well, well, dropped}, "FAIL b ports: "},
		{[]doctor.Tried{dropped, well, dropped, well, well, well}, "FAIL a ports: "},
		{[]doctor.Tried{dropped, dropped, dropped, dropped, dropped, dropped}, "FAIL b ports: "},
	} {
		paths := []doctor.Path{way(0, 1), way(1, 0), way(0, 2), way(2, 0), way(1, 2), way(2, 1)}[:len(tt.tried)]
		all := doctor.JudgePaths(paths, tt.tried)
		f := all[0]
		if got := fmt.Sprint(f.Status, " ", f.Host, " ", f.Check, ": ", f.Text); len(all) != len(paths) || !strings.HasPrefix(got, tt.want) || (f.Fix == "") != (f.Status == doctor.Pass) {
			t.Errorf("%+v: %s → %q, want %s", tt.tried, got, f.Fix, tt.want)
		}
	}
}

// A host without any of the NICs that the user names is no host for a job over them.
func TestCompareNICs(t *testing.T) {
	a, b := healthy(), healthy()
	b.Host.Name, b.Host.NICs = "b", []topology.NIC{{Name: "eth0", MTU: 1500, Up: true, Addrs: []string{"10.5.0.2/24"}}}
	b.Resolved = []string{"10.5.0.2"}
	var wrong []string
	for _, f := range doctor.Compare([]doctor.Answer{{Facts: a}, {Facts: b}}, []string{"vmxnet3"}) {
		if f.Status != doctor.Pass {
			wrong = append(wrong, fmt.Sprint(f.Status, " ", f.Host, " ", f.Check, ": ", f.Text))
		}
	}
	if want := []string{"FAIL b NIC for data: none of vmxnet3 is up here"}; !reflect.DeepEqual(wrong, want) {
		t.Errorf("%q, want %q", wrong, want)
	}
}
