package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
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

// maintenance are the events of an ESXi host that is emptied, and is back.
var maintenance = []string{"EnteringMaintenanceModeEvent", "ExitMaintenanceModeEvent", "CanceledHostOperationEvent"}

// pageSize is how many events are read at a time, and mostPast how many of the past.
const pageSize, mostPast = 100, 1000

// watchMoves prints a line for each start and end of a move, until ctx ends. With leave it also has jobs leave virtual
// machines whose ESXi host enters maintenance mode.
func watchMoves(ctx context.Context, c *vim25.Client, naming naming, leave bool, announce func(line string) error) error {
	kinds, left := kinds, leaving{}
	if leave {
		kinds = slices.Concat(kinds, maintenance)
	}
	began, err := methods.GetCurrentTime(ctx, c) // vCenter's clock, not ours
	if err != nil {
		return fmt.Errorf("ask vCenter for the time: %w", err)
	}
	if leave {
		if err := left.begin(ctx, c, naming, announce); err != nil {
			return err
		}
	}
	err = event.NewManager(c).Events(ctx, []types.ManagedObjectReference{c.ServiceContent.RootFolder}, pageSize, true, false,
		func(_ types.ManagedObjectReference, events []types.BaseEvent) error {
			var where map[types.ManagedObjectReference]machine // of all machines, read when needed
			for _, e := range events {
				if e.GetEvent().CreatedTime.Before(*began) {
					continue // history
				}
				if e.GetEvent().Vm == nil {
					if err := left.host(ctx, c, naming, e, announce); err != nil {
						return err
					}
					continue
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
				if _, moves := left[name]; moves && arrived {
					if err := left.back(name, text, announce); err != nil {
						return err
					}
				}
			}
			return nil
		}, kinds...)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch events of vCenter: %w", err)
}

// leaving are the virtual machines that jobs were told to leave, with their ESXi hosts.
type leaving map[string]string

// begin says for all virtual machines whether jobs are to leave them, by the last event of each ESXi host: an earlier
// gorun-vsphere may have said otherwise. A job does nothing about what it knows.
func (l leaving) begin(ctx context.Context, c *vim25.Client, naming naming, announce func(line string) error) error {
	events, err := past(ctx, c)
	if err != nil {
		return fmt.Errorf("ask vCenter for past maintenance: %w", err)
	}
	last := map[string]types.BaseEvent{} // by ESXi host
	for _, e := range events {
		if at := e.GetEvent().Host; at != nil && (last[at.Name] == nil || e.GetEvent().Key > last[at.Name].GetEvent().Key) {
			last[at.Name] = e
		}
	}
	all, err := machines(ctx, c, naming)
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, emptied := last[m.esxi].(*types.EnteringMaintenanceModeEvent); emptied {
			err = l.leave(m, announce)
		} else {
			err = l.back(m.name, cmp.Or(m.esxi, "its ESXi host")+" is not in maintenance mode", announce)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// past returns the latest events of maintenance.
func past(ctx context.Context, c *vim25.Client) ([]types.BaseEvent, error) {
	history, err := event.NewManager(c).CreateCollectorForEvents(ctx, types.EventFilterSpec{EventTypeId: maintenance})
	if err != nil {
		return nil, err
	}
	defer history.Destroy(context.WithoutCancel(ctx))
	if err := history.SetPageSize(ctx, mostPast); err != nil {
		return nil, err
	}
	return history.LatestPage(ctx)
}

// host takes an event of an ESXi host.
func (l leaving) host(ctx context.Context, c *vim25.Client, naming naming, e types.BaseEvent, announce func(line string) error) error {
	at := e.GetEvent().Host
	switch e.(type) {
	case *types.EnteringMaintenanceModeEvent:
		all, err := machines(ctx, c, naming)
		if err != nil {
			return err
		}
		for _, m := range all {
			if at == nil || m.esxi != at.Name || l[m.name] != "" {
				continue
			}
			if err := l.leave(m, announce); err != nil {
				return err
			}
		}
	case *types.ExitMaintenanceModeEvent, *types.CanceledHostOperationEvent:
		for _, name := range slices.Sorted(maps.Keys(l)) {
			if at == nil || l[name] != at.Name {
				continue
			}
			if err := l.back(name, at.Name+" is not in maintenance mode", announce); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave has jobs leave a virtual machine.
func (l leaving) leave(m machine, announce func(line string) error) error {
	l[m.name] = m.esxi
	if err := announce(m.name + " leaves " + m.esxi + " enters maintenance mode"); err != nil {
		return fmt.Errorf("announce that %s is left: %w", m.name, err)
	}
	return nil
}

// back lets jobs use a virtual machine again.
func (l leaving) back(name, why string, announce func(line string) error) error {
	delete(l, name)
	if err := announce(name + " returns " + why); err != nil {
		return fmt.Errorf("announce that %s is back: %w", name, err)
	}
	return nil
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
