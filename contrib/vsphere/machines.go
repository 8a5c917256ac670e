package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// naming returns the name of a virtual machine in gorun's host list, "" if unknown.
type naming func(*mo.VirtualMachine) string

var namings = map[string]naming{
	"name": func(vm *mo.VirtualMachine) string { return vm.Name },
	"guest": func(vm *mo.VirtualMachine) string {
		if vm.Guest == nil {
			return ""
		}
		return vm.Guest.HostName
	},
	"ip": func(vm *mo.VirtualMachine) string {
		if vm.Guest == nil {
			return ""
		}
		return vm.Guest.IpAddress
	},
}

// machine is the place of a virtual machine.
type machine struct {
	ref              types.ManagedObjectReference
	name             string
	esxi, rack, zone string // "" if unknown
}

// machines returns all virtual machines that have a name, by name.
func machines(ctx context.Context, c *vim25.Client, naming naming) ([]machine, error) {
	kinds := []string{"VirtualMachine", "HostSystem", "ClusterComputeResource"}
	all, err := view.NewManager(c).CreateContainerView(ctx, c.ServiceContent.RootFolder, kinds, true)
	if err != nil {
		return nil, fmt.Errorf("list virtual machines: %w", err)
	}
	defer all.Destroy(context.WithoutCancel(ctx))
	var vms []mo.VirtualMachine
	var hosts []mo.HostSystem
	var clusters []mo.ClusterComputeResource
	for _, want := range []struct {
		kind       string
		properties []string
		into       any
	}{
		{"VirtualMachine", []string{"name", "guest", "runtime.host"}, &vms},
		{"HostSystem", []string{"name", "parent"}, &hosts},
		{"ClusterComputeResource", []string{"name", "configurationEx"}, &clusters},
	} {
		if err := all.Retrieve(ctx, []string{want.kind}, want.properties, want.into); err != nil {
			return nil, fmt.Errorf("list %s: %w", want.kind, err)
		}
	}
	esxi, rack, zone := map[types.ManagedObjectReference]string{}, map[types.ManagedObjectReference]string{}, map[types.ManagedObjectReference]string{}
	clusterName := map[types.ManagedObjectReference]string{}
	for _, cluster := range clusters {
		clusterName[cluster.Self] = cluster.Name
		for host, group := range racks(&cluster) {
			rack[host] = group
		}
	}
	for _, host := range hosts {
		esxi[host.Self] = host.Name
		if host.Parent != nil {
			zone[host.Self] = clusterName[*host.Parent]
		}
	}
	var out []machine
	for i := range vms {
		vm := &vms[i]
		m := machine{ref: vm.Self, name: naming(vm)}
		if m.name == "" {
			continue
		}
		if at := vm.Runtime.Host; at != nil {
			m.esxi, m.rack, m.zone = esxi[*at], rack[*at], zone[*at]
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b machine) int { return strings.Compare(a.name, b.name) })
	// One fact for each name: machines with the same name cannot be distinguished.
	return slices.CompactFunc(out, func(a, b machine) bool { return a.name == b.name }), nil
}

// racks returns the DRS host groups of a cluster, by host. Of several groups of a host it takes the smallest: a rack is in a
// row and in a room.
func racks(cluster *mo.ClusterComputeResource) map[types.ManagedObjectReference]string {
	out, size := map[types.ManagedObjectReference]string{}, map[types.ManagedObjectReference]int{}
	config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		return out
	}
	for _, g := range config.Group {
		group, ok := g.(*types.ClusterHostGroup)
		if !ok {
			continue
		}
		for _, host := range group.Host {
			if known := size[host]; known == 0 || len(group.Host) < known {
				out[host], size[host] = group.Name, len(group.Host)
			}
		}
	}
	return out
}
