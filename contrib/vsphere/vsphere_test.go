package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// TestFacts: every virtual machine is on an ESXi host; those of a cluster are in its zone, and in a rack by DRS.
func TestFacts(t *testing.T) {
	simulator.Test(func(ctx context.Context, c *vim25.Client) {
		finder := find.NewFinder(c)
		cluster, err := finder.ClusterComputeResource(ctx, "DC0_C0")
		if err != nil {
			t.Fatal(err)
		}
		hosts, err := cluster.Hosts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var refs []types.ManagedObjectReference
		for _, h := range hosts {
			refs = append(refs, h.Reference())
		}
		group := func(name string, hosts ...types.ManagedObjectReference) types.ClusterGroupSpec {
			return types.ClusterGroupSpec{ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd},
				Info: &types.ClusterHostGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: name}, Host: hosts}}
		}
		task, err := cluster.Reconfigure(ctx, &types.ClusterConfigSpecEx{GroupSpec: []types.ClusterGroupSpec{group("row A", refs...), group("rack 1", refs[0])}}, true)
		if err == nil {
			err = task.Wait(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		move(ctx, t, c, "DC0_C0_RP0_VM0", hosts[0])
		move(ctx, t, c, "DC0_C0_RP0_VM1", hosts[1])
		var out bytes.Buffer
		if err := writeFacts(ctx, c, namings["name"], &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"# written by gorun-vsphere\nhosts:\n",
			"  \"DC0_C0_RP0_VM0\":\n    esxi: \"" + hosts[0].Name() + "\"\n    rack: \"rack 1\"\n    zone: \"DC0_C0\"\n    by: vCenter\n",
			"  \"DC0_C0_RP0_VM1\":\n    esxi: \"" + hosts[1].Name() + "\"\n    rack: \"row A\"\n    zone: \"DC0_C0\"\n    by: vCenter\n",
			"  \"DC0_H0_VM0\":\n    esxi: \"DC0_H0\"\n    by: vCenter\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no\n%sin\n%s", want, out.String())
			}
		}
	})
}

// move moves a virtual machine and waits until it has arrived.
func move(ctx context.Context, t *testing.T, c *vim25.Client, name string, to *object.HostSystem) *object.VirtualMachine {
	t.Helper()
	vm, err := find.NewFinder(c).VirtualMachine(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	ref := to.Reference()
	task, err := vm.Relocate(ctx, types.VirtualMachineRelocateSpec{Host: &ref}, types.VirtualMachineMovePriorityDefaultPriority)
	if err == nil {
		err = task.Wait(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// TestMoves: a move is announced when vCenter begins it and when it has ended, then with where the machine is, moves of
// long ago are not.
func TestMoves(t *testing.T) {
	simulator.Test(func(ctx context.Context, c *vim25.Client) {
		hosts, err := find.NewFinder(c).HostSystemList(ctx, "DC0_C0/*")
		if err != nil {
			t.Fatal(err)
		}
		const name = "DC0_C0_RP0_VM0"
		vm := move(ctx, t, c, name, hosts[0]) // before a client watches
		begin := func() {
			announced := &types.VmBeingHotMigratedEvent{DestHost: types.HostEventArgument{EntityEventArgument: types.EntityEventArgument{Name: hosts[1].Name()}, Host: hosts[1].Reference()}}
			announced.CreatedTime = time.Now()
			announced.Vm = &types.VmEventArgument{EntityEventArgument: types.EntityEventArgument{Name: name}, Vm: vm.Reference()}
			if err := event.NewManager(c).PostEvent(ctx, announced, types.TaskInfo{}); err != nil {
				t.Fatal(err)
			}
		}
		work, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		lines, ended := make(chan string), make(chan error, 1)
		go func() {
			ended <- watchMoves(work, c, namings["name"], false, func(line string) error {
				select {
				case lines <- line:
				case <-work.Done():
				}
				return nil
			})
		}()
		// The server does not show when a watcher is ready, so the move begins again until the watcher reports it.
		var got string
		for got == "" {
			begin()
			select {
			case got = <-lines:
			case err := <-ended:
				t.Fatal(err)
			case <-time.After(200 * time.Millisecond):
			}
		}
		if want := name + " starts vMotion to " + hosts[1].Name(); got != want {
			t.Errorf("announced: %s, want %s", got, want)
		}
		move(ctx, t, c, name, hosts[1])
		there := fmt.Sprintf("%s ends esxi=%q zone=%q by=vCenter moved from %s", name, hosts[1].Name(), "DC0_C0", hosts[0].Name())
		for got != there {
			select {
			case got = <-lines:
				if !strings.HasPrefix(got, name+" starts ") && !strings.HasPrefix(got, name+" ends ") {
					t.Fatalf("announced: %s", got)
				}
			case <-work.Done():
				t.Fatalf("no end of the move was announced, only %s", got)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestMaintenance: jobs leave the virtual machines of an ESXi host that is emptied, until these have moved or it is back.
func TestMaintenance(t *testing.T) {
	simulator.Test(func(ctx context.Context, c *vim25.Client) {
		hosts, err := find.NewFinder(c).HostSystemList(ctx, "DC0_C0/*")
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1"} {
			move(ctx, t, c, name, hosts[i])
		}
		at := types.Event{CreatedTime: time.Now(), Host: &types.HostEventArgument{
			EntityEventArgument: types.EntityEventArgument{Name: hosts[0].Name()}, Host: hosts[0].Reference()}}
		empty, back := &types.EnteringMaintenanceModeEvent{HostEvent: types.HostEvent{Event: at}}, &types.ExitMaintenanceModeEvent{HostEvent: types.HostEvent{Event: at}}
		left := leaving{}
		var lines []string
		note := func(line string) error {
			lines = append(lines, line)
			return nil
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		take := func(events ...types.BaseEvent) {
			for _, e := range events {
				must(left.host(ctx, c, namings["name"], e, note))
			}
		}
		take(empty, empty, back, back)
		name := "DC0_C0_RP0_VM0"
		if want := []string{name + " leaves " + hosts[0].Name() + " enters maintenance mode",
			name + " returns " + hosts[0].Name() + " is not in maintenance mode"}; !slices.Equal(lines, want) {
			t.Errorf("announced: %q, want %q", lines, want)
		}
		for _, again := range []struct {
			before types.BaseEvent
			want   string
		}{{empty, " leaves "}, {back, " returns "}} { // before another one begins, which knows of nothing
			again.before.GetEvent().CreatedTime = time.Now()
			must(event.NewManager(c).PostEvent(ctx, again.before, types.TaskInfo{}))
			lines = nil
			must(leaving{}.begin(ctx, c, namings["name"], note))
			told := slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, name+" ") })
			if len(told) != 1 || !strings.HasPrefix(told[0], name+again.want) || len(lines) < 2 {
				t.Errorf("announced: %q, want one that%s", told, again.want)
			}
		}
		// And as a watcher of vCenter sees it.
		work, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		seen, ended := make(chan string, 100), make(chan error, 1)
		go func() {
			ended <- watchMoves(work, c, namings["name"], true, func(line string) error {
				seen <- line
				return nil
			})
		}()
		for got := ""; !strings.HasPrefix(got, name+" leaves "); {
			empty.CreatedTime = time.Now()
			if err := event.NewManager(c).PostEvent(ctx, empty, types.TaskInfo{}); err != nil {
				t.Fatal(err)
			}
			select {
			case got = <-seen:
			case err := <-ended:
				t.Fatal(err)
			case <-time.After(200 * time.Millisecond):
			}
		}
		move(ctx, t, c, name, hosts[1])
		for got := ""; !strings.HasPrefix(got, name+" returns "); {
			select {
			case got = <-seen:
			case <-work.Done():
				t.Fatal("the machine has moved, and no job may use it again")
			}
		}
		cancel()
		<-ended
	})
}

func TestMistakes(t *testing.T) {
	env := func(values map[string]string) func(string) string { return func(k string) string { return values[k] } }
	for _, tc := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{nil, nil, "what to do?"},
		{[]string{"facts", "moves"}, nil, "what to do?"},
		{[]string{"-by", "mac", "facts"}, nil, "-by mac: not name, guest or ip"},
		{[]string{"facts"}, nil, "GOVC_URL is no address"},
		{[]string{"facts"}, map[string]string{"GOVC_URL": "https://127.0.0.1:1/sdk"}, "connect to vCenter at 127.0.0.1:1: "},
	} {
		if err := run(t.Context(), tc.args, env(tc.env), io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %s", tc.args, err, tc.want)
		}
	}
}
