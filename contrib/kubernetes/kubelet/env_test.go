//go:build linux

package main

import (
	"net/netip"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/net/dns/dnsmessage"
)

// TestExpand: variables are replaced as Kubernetes does, and what is none stays.
func TestExpand(t *testing.T) {
	variables := map[string]string{"A": "1", "B": "$(A)"}
	for text, want := range map[string]string{
		"":           "",
		"x$(A)y":     "x1y",
		"$(B)":       "$(A)",
		"$$(A)":      "$(A)",
		"$(C)":       "$(C)",
		"$A ${A} $":  "$A ${A} $",
		"$(A":        "$(A",
		"$(A)$(A)$$": "11$",
	} {
		if got := expand(text, variables); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestFields: fieldRef and resourceFieldRef give what the pod has.
func TestFields(t *testing.T) {
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "a", Labels: map[string]string{"x/y": "z"}}}
	for path, want := range map[string]string{"metadata.name": "a", "metadata.labels['x/y']": "z", "metadata.annotations['x']": ""} {
		if got, err := field(pod, path); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", path, got, want, err)
		}
	}
	if got, err := field(pod, "spec.nodename"); err == nil {
		t.Errorf("an unknown field is %q", got)
	}
	container := &core.Container{Resources: core.ResourceRequirements{Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("1500m")}}}
	node := core.ResourceList{core.ResourceMemory: resource.MustParse("2Gi")}
	for name, want := range map[string]string{"requests.cpu": "2", "requests.memory": "0", "limits.memory": "2147483648"} {
		if got, err := amount(container, node, name, resource.Quantity{}); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
	if got, err := amount(container, node, "cpu", resource.Quantity{}); err == nil {
		t.Errorf("an unknown resource is %q", got)
	}
}

// TestDNS: a service has the addresses of its ready endpoints, a host its own, and a name without any does not exist.
func TestDNS(t *testing.T) {
	host, no := "gorun-0", false
	list := []discovery.EndpointSlice{{Endpoints: []discovery.Endpoint{{Addresses: []string{"10.0.0.2"}}, {Addresses: []string{"10.0.0.1"}, Hostname: &host},
		{Addresses: []string{"10.0.0.3"}, Conditions: discovery.EndpointConditions{Ready: &no}}}}}
	ask := func(kind dnsmessage.Type, host string) (dnsmessage.RCode, []string) {
		question := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{
			{Name: dnsmessage.MustNewName("any.svc.cluster.local."), Type: kind, Class: dnsmessage.ClassINET}}}
		packet, err := question.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var reply dnsmessage.Message
		if err := reply.Unpack(answer(packet, func(string) ([]netip.Addr, error) { return addressesOf(list, host), nil })); err != nil || reply.ID != 7 {
			t.Fatalf("%v: %v", reply, err)
		}
		var found []string
		for _, a := range reply.Answers {
			found = append(found, netip.AddrFrom4(a.Body.(*dnsmessage.AResource).A).String())
		}
		return reply.RCode, found
	}
	for _, tc := range []struct {
		kind dnsmessage.Type
		host string
		code dnsmessage.RCode
		want []string
	}{
		{dnsmessage.TypeA, "", dnsmessage.RCodeSuccess, []string{"10.0.0.1", "10.0.0.2"}},
		{dnsmessage.TypeA, "gorun-0", dnsmessage.RCodeSuccess, []string{"10.0.0.1"}},
		{dnsmessage.TypeAAAA, "gorun-0", dnsmessage.RCodeSuccess, nil},
		{dnsmessage.TypeA, "gorun-1", dnsmessage.RCodeNameError, nil},
	} {
		if code, found := ask(tc.kind, tc.host); code != tc.code || !slices.Equal(found, tc.want) {
			t.Errorf("%v of %q: %v %v, want %v %v", tc.kind, tc.host, code, found, tc.code, tc.want)
		}
	}
	if reply := answer([]byte("no question"), nil); reply != nil {
		t.Errorf("an answer to no question: %v", reply)
	}
}
