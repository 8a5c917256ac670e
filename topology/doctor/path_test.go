package doctor_test

import (
	"errors"
	"fmt"
	"reflect"
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
	for _, tt := range []struct {
		name string
		all  []doctor.Answer
		list []string
		want []string
	}{
		{"a host by itself", []doctor.Answer{answer("a", nic("eth0", 1500, "10.0.0.1/24"))}, nil, nil},
		{"each to the next", []doctor.Answer{answer("a", nic("eth0", 9000, "10.0.0.1/24")), answer("b", nic("ens1", 1500, "10.0.0.2/24", "10.0.0.20/24")), answer("c", nic("eth0", 9000, "10.0.0.3/24"))}, nil,
			[]string{"{a b eth0 10.0.0.2 1500}", "{b c ens1 10.0.0.3 1500}", "{c a eth0 10.0.0.1 9000}"}},
		{"IPv4 before IPv6", []doctor.Answer{answer("a", nic("eth0", 1500, "fe80::1/64", "fd00::1/64", "10.0.0.1/24")), answer("b", nic("eth0", 1500, "fe80::2/64", "fd00::2/64"))}, nil,
			[]string{"{a b eth0 fd00::2 1500}", "{b a eth0 10.0.0.1 1500}"}},
		{"nobody's address is outside", []doctor.Answer{answer("a", nic("lo", 65536, "127.0.0.1/8")), answer("b", nic("eth0", 1500, "fe80::2/64"))}, nil, nil},
		{"one that is down, one of unknown size", []doctor.Answer{answer("a", nic("eth0", 1500, "10.0.0.1/24")), answer("b", nic("eth0", 0, "10.0.0.2/24")), answer("c", down)}, nil, nil},
		{"over another NIC", []doctor.Answer{answer("a", nic("eth0", 1500, "10.0.0.1/24"), nic("fast", 9000, "10.1.0.1/24")), answer("b", nic("eth0", 1500, "10.0.0.2/24"), nic("ens9", 9000, "10.1.0.2/24"))}, []string{"10.1.0.0/24"},
			[]string{"{a b fast 10.1.0.2 9000}", "{b a ens9 10.1.0.1 9000}"}},
	} {
		var got []string
		for _, w := range doctor.Paths(tt.all, tt.list) {
			got = append(got, fmt.Sprint(w))
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestJudgePath(t *testing.T) {
	way := doctor.Path{From: "a", To: "b", NIC: "eth0", Bytes: 9000}
	for _, tt := range []struct {
		arrive int
		err    error
		status doctor.Status
		text   string
	}{
		{9000, nil, doctor.Pass, "packets of 9000 bytes arrive"},
		{0, nil, doctor.Pass, "not known: it answers no probe, as behind a firewall"},
		{0, errors.New("no route"), doctor.Warn, "not known: no route"},
		{1500, nil, doctor.Fail, "packets of 9000 bytes are lost on the way, those of 1500 arrive: connections open and then hang"},
	} {
		f := doctor.JudgePath(way, tt.arrive, tt.err)
		if f.Host != "a" || f.Check != "path to b" || f.Status != tt.status || f.Text != tt.text || (f.Fix == "") != (tt.status == doctor.Pass) {
			t.Errorf("%d bytes, %v: %+v", tt.arrive, tt.err, f)
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
