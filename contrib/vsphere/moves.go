package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// kinds are the events of a move, from its announcement to its end.
var kinds = []string{
	"VmBeingHotMigratedEvent", "VmBeingMigratedEvent", "VmBeingRelocatedEvent",
	"VmMigratedEvent", "DrsVmMigratedEvent", "VmRelocatedEvent", "VmFailedMigrateEvent", "VmRelocateFailedEvent",
}

// pageSize is how many events are read at a time.
const pageSize = 100

// watchMoves prints a line for each start and end of a move, until ctx ends.
func watchMoves(ctx context.Context, c *vim25.Client, naming naming, announce func(line string) error) error {
	began, err := methods.GetCurrentTime(ctx, c) // vCenter's clock, not ours
	if err != nil {
		return fmt.Errorf("ask vCenter for the time: %w", err)
	}
	err = event.NewManager(c).Events(ctx, []types.ManagedObjectReference{c.ServiceContent.RootFolder}, pageSize, true, false,
		func(_ types.ManagedObjectReference, events []types.BaseEvent) error {
			var where map[types.ManagedObjectReference]machine // of all machines, read when needed
			for _, e := range events {
				if e.GetEvent().CreatedTime.Before(*began) || e.GetEvent().Vm == nil {
					continue // history
				}
				state, text, arrived := describe(e)
				name, err := nameOf(ctx, c, naming, e.GetEvent().Vm)
				if err != nil {
					return err
				}
				if state == "" || name == "" {
					continue
				}
				if arrived && where == nil {
					if where, err = places(ctx, c, naming); err != nil {
						return err
					}
				}
				if arrived {
					text = where[e.GetEvent().Vm.Vm].labels() + text
				}
				if err := announce(name + " " + state + " " + text); err != nil {
					return fmt.Errorf("announce move of %s: %w", name, err)
				}
			}
			return nil
		}, kinds...)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch events of vCenter: %w", err)
}

// nameOf returns gorun's name for the virtual machine of an event, "" if there is none.
func nameOf(ctx context.Context, c *vim25.Client, naming naming, of *types.VmEventArgument) (string, error) {
	var vm mo.VirtualMachine
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := property.DefaultCollector(c).RetrieveOne(limit, of.Vm, []string{"name", "guest"}, &vm); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", nil // it is gone by now, and so is any job in it
	}
	return naming(&vm), nil
}

// places returns the places of virtual machines.
func places(ctx context.Context, c *vim25.Client, naming naming) (map[types.ManagedObjectReference]machine, error) {
	list, err := machines(ctx, c, naming)
	if err != nil {
		return nil, err
	}
	where := map[types.ManagedObjectReference]machine{}
	for _, m := range list {
		where[m.ref] = m
	}
	return where, nil
}

// labels returns the labels of a machine's place for gorun, which precede the text for people; "" if unknown.
func (m machine) labels() (text string) {
	for _, label := range []struct{ key, value string }{{"esxi", m.esxi}, {"rack", m.rack}, {"zone", m.zone}} {
		if label.value != "" {
			text += label.key + "=" + strconv.Quote(label.value) + " "
		}
	}
	if text != "" {
		text += "by=vCenter "
	}
	return text
}

// describe returns the state that an event means, its text, and whether the machine has arrived at another place.
func describe(e types.BaseEvent) (state, text string, arrived bool) {
	const starts, ends = "starts", "ends"
	switch e := e.(type) {
	case *types.VmBeingHotMigratedEvent:
		return starts, "vMotion to " + e.DestHost.Name, false
	case *types.VmBeingMigratedEvent:
		return starts, "migration to " + e.DestHost.Name, false
	case *types.VmBeingRelocatedEvent:
		return starts, "relocation to " + e.DestHost.Name, false
	case *types.VmFailedMigrateEvent:
		return ends, "migration to " + e.DestHost.Name + " failed", false
	case *types.VmRelocateFailedEvent:
		return ends, "relocation to " + e.DestHost.Name + " failed", false
	case *types.DrsVmMigratedEvent:
		return ends, "moved by DRS from " + e.SourceHost.Name, true
	case *types.VmMigratedEvent:
		return ends, "moved from " + e.SourceHost.Name, true
	case *types.VmRelocatedEvent:
		return ends, "relocated from " + e.SourceHost.Name, true
	}
	return "", "", false
}
