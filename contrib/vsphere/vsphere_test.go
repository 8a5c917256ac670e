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

// must ends the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// watcher watches vCenter, for a minute at most.
type watcher struct {
	lines  chan string // what it announces
	ended  chan error
	cancel func()
}

func watch(ctx context.Context, c *vim25.Client, maintenance bool) *watcher {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	w := &watcher{make(chan string, 100), make(chan error, 1), cancel}
	go func() {
		w.ended <- watchMoves(ctx, c, namings["name"], maintenance, func(line string) error {
			w.lines <- line
			return nil
		})
	}()
	return w
}

// await returns the next line that begins with a prefix. Until it comes, events are posted again and again: the server does not
// show when a watcher is ready.
func (w *watcher) await(t *testing.T, prefix string, post func()) string {
	t.Helper()
	for {
		post()
		select {
		case line := <-w.lines:
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case err := <-w.ended:
			t.Fatalf("no line begins with %q: %v", prefix, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// TestFacts: every virtual machine is on an ESXi host; those of a cluster are in its zone, and in a rack by DRS.
func TestFacts(t *testing.T) {
	simulator.Test(func(ctx context.Context, c *vim25.Client) {
		finder := find.NewFinder(c)
		cluster, err := finder.ClusterComputeResource(ctx, "DC0_C0")
		must(t, err)
		hosts, err := cluster.Hosts(ctx)
		must(t, err)
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
		must(t, err)
		move(ctx, t, c, "DC0_C0_RP0_VM0", hosts[0])
		move(ctx, t, c, "DC0_C0_RP0_VM1", hosts[1])
		var out bytes.Buffer
		must(t, writeFacts(ctx, c, namings["name"], &out))
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
	must(t, err)
	ref := to.Reference()
	task, err := vm.Relocate(ctx, types.VirtualMachineRelocateSpec{Host: &ref}, types.VirtualMachineMovePriorityDefaultPriority)
	if err == nil {
		err = task.Wait(ctx)
	}
	must(t, err)
	return vm
}

// TestMoves: a move is announced when vCenter begins it and when it has ended, then with where the machine is, moves of
// long ago are not.
func TestMoves(t *testing.T) {
	simulator.Test(func(ctx context.Context, c *vim25.Client) {
		hosts, err := find.NewFinder(c).HostSystemList(ctx, "DC0_C0/*")
		must(t, err)
		const name = "DC0_C0_RP0_VM0"
		vm := move(ctx, t, c, name, hosts[0]) // before a client watches
		begin := func() {
			announced := &types.VmBeingHotMigratedEvent{DestHost: types.HostEventArgument{EntityEventArgument: types.EntityEventArgument{Name: hosts[1].Name()}, Host: hosts[1].Reference()}}
			announced.CreatedTime = time.Now()
			announced.Vm = &types.VmEventArgument{EntityEventArgument: types.EntityEventArgument{Name: name}, Vm: vm.Reference()}
			must(t, event.NewManager(c).PostEvent(ctx, announced, types.TaskInfo{}))
		}
		w := watch(ctx, c, false)
		got := w.await(t, "", begin)
		if want := name + " starts vMotion to " + hosts[1].Name(); got != want {
			t.Errorf("announced: %s, want %s", got, want)
		}
		move(ctx, t, c, name, hosts[1])
		w.await(t, fmt.Sprintf("%s ends esxi=%q zone=%q by=vCenter moved from %s", name, hosts[1].Name(), "DC0_C0", hosts[0].Name()), func() {})
		w.cancel()
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestMaintenance: jobs leave the virtual machines of an ESXi host that is emptied, until these have moved or it is back.
func TestMaintenance(t *testing.T) {
	simulator.Test(func(ctx context.Context, c *vim25.Client) {
		hosts, err := find.NewFinder(c).HostSystemList(ctx, "DC0_C0/*")
		must(t, err)
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
		take := func(events ...types.BaseEvent) {
			for _, e := range events {
				must(t, left.host(ctx, c, namings["name"], e, note))
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
			must(t, event.NewManager(c).PostEvent(ctx, again.before, types.TaskInfo{}))
			lines = nil
			must(t, leaving{}.begin(ctx, c, namings["name"], note))
			told := slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, name+" ") })
			if len(told) != 1 || !strings.HasPrefix(told[0], name+again.want) || len(lines) < 2 {
				t.Errorf("announced: %q, want one that%s", told, again.want)
			}
		}
		// And as a watcher of vCenter sees it.
		w := watch(ctx, c, true)
		w.await(t, name+" leaves ", func() {
			empty.CreatedTime = time.Now()
			must(t, event.NewManager(c).PostEvent(ctx, empty, types.TaskInfo{}))
		})
		move(ctx, t, c, name, hosts[1])
		w.await(t, name+" returns ", func() {})
		w.cancel()
		<-w.ended
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
