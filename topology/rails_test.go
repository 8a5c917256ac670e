package topology

import (
	"fmt"
	"slices"
	"testing"
)

// railed are hosts with a NIC in each of so many networks.
func railed(n, networks int) (hosts []Host, rails []string) {
	for i := range n {
		h := Host{Name: fmt.Sprintf("h%d", i)}
		for k := range networks {
			h.NICs = append(h.NICs, NIC{Name: fmt.Sprintf("e%d", k), Up: true, Addrs: []string{fmt.Sprintf("10.%d.0.%d/24", k, i+1)}})
		}
		hosts = append(hosts, h)
	}
	return hosts, Rails(hosts)
}

func TestRails(t *testing.T) {
	hosts, rails := railed(3, 2)
	if !slices.Equal(rails, []string{"10.0.0.0/24", "10.1.0.0/24"}) {
		t.Errorf("rails %v", rails)
	}
	slices.Reverse(hosts[1].NICs)
	hosts[2].NICs[0].Addrs = []string{"fe80::1/64", "fd00::1/64", "10.0.0.9/24"}
	if again := Rails(hosts); !slices.Equal(again, rails) {
		t.Errorf("with NICs in another order, and more addresses: %v", again)
	}
	hosts[2].NICs[0].Up = false
	if left := Rails(hosts); len(left) != 0 {
		t.Errorf("of a host that is not in one of them: %v", left)
	}
}

// TestWithSums: what is known of networks counts together; if one of them only was measured, that is what there is.
func TestWithSums(t *testing.T) {
	hosts, rails := railed(2, 2)
	one := []Edge{{To: 1, Bandwidth: 5, Rail: rails[0]}}
	if edges := WithSums(hosts, one, rails[:1]); len(edges) != 3 || edges[0] != (Edge{To: 1, Bandwidth: 5}) || edges[1] != (Edge{From: 1, Bandwidth: 5}) {
		t.Errorf("of one network: %+v", edges)
	}
	both := append(one, Edge{To: 1, Bandwidth: 7, Rail: rails[1]})
	if edges := WithSums(hosts, both, rails); len(edges) != 4 || edges[0] != (Edge{To: 1, Bandwidth: 12}) {
		t.Errorf("of two networks: %+v", edges)
	}
}
