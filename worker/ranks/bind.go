package ranks

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/picture"
	"gorun/worker/loop"
	"gorun/worker/proc"
)

// binding is where ranks, engine and streams run. It is decided once, for every slot of this host: a slot that gets
// another rank keeps its CPUs.
type binding struct {
	ranks   []topology.Binding // by slot; nil if they are not bound
	engine  []int              // CPUs, nil for any
	streams [][]int            // CPUs beside the NIC of each network, nil if it makes no difference
	spare   [][]int            // CPUs of what the ranks start, by slot
}

// of returns the binding of a rank.
func (b binding) of(rank wire.Rank) topology.Binding {
	if rank.Slot < len(b.ranks) {
		return b.ranks[rank.Slot]
	}
	return topology.Binding{}
}

// spareOf returns the CPUs of what a rank starts, nil if it is not bound to cores of its own.
func (b binding) spareOf(rank wire.Rank) []int {
	if rank.Slot < len(b.spare) {
		return b.spare[rank.Slot]
	}
	return nil
}

// cpus shares the CPUs of this host out.
type cpus struct {
	loop.Component
	nics    []string // that the user chose
	daemon  Daemon
	binding binding
}

// bind decides where the ranks of this host run, which has so many slots at least, and where the engine does.
func (c *cpus) bind(slots int, gpus []string) error {
	if c.binding.ranks != nil || c.Job.Bind.To == "" || c.Job.Bind.To == topology.BindNone {
		return nil
	}
	host := c.daemon.Host()
	slots = max(slots, c.Job.Slots, 1)
	devices := make([]string, slots)
	for i := range devices {
		devices[i] = deviceOf(c.Job.Env, gpus, i)
	}
	by := c.Job.Bind
	by.NICs = c.nics
	bound, err := by.Place(host, devices)
	if err != nil {
		return err
	}
	engine := by.Beside(host, bound)
	if len(engine) > 0 {
		if err := proc.BindSelf(engine); err != nil {
			return err
		}
	}
	c.binding = binding{ranks: bound, engine: engine, spare: by.Spare(host, bound, engine),
		streams: by.Along(host, topology.ChosenRails([]topology.Host{host}, c.Job.NICs), engine)}
	c.pinStreams(c.binding.streams)
	return nil
}

// pinStreams has the streams in each network run on the CPUs beside its NIC.
func (c *cpus) pinStreams(beside [][]int) {
	if beside == nil {
		return
	}
	c.daemon.Pin(func(stream int) {
		if stream == 0 || len(beside[(stream-1)%len(beside)]) == 0 {
			return // what is small goes over any of them
		}
		runtime.LockOSThread() // until the goroutine ends, and the thread with it
		if err := proc.BindThread(beside[(stream-1)%len(beside)]); err != nil {
			c.Log.Warn("a stream does not run beside its NIC", "stream", stream, "error", err)
		}
	})
}

// report shows what bind decided, if the user wants to see it.
func (c *cpus) report(ranks []wire.Rank) {
	if !c.Job.ReportBindings {
		return
	}
	host := c.daemon.Host()
	if c.binding.ranks == nil {
		c.Say("ranks are not bound: they run on any of %s", topology.Count(host.CPUs, "CPU"))
		return
	}
	b := picture.Bound{Ranks: slices.Repeat([]int{-1}, len(c.binding.ranks)), Bindings: c.binding.ranks,
		Engine: c.binding.engine, Spare: c.binding.spare}
	for _, rank := range ranks {
		b.Ranks[rank.Slot] = rank.Rank
	}
	c.Say("ranks are bound to %s", c.Job.Bind.To)
	for _, line := range picture.Binding(host, b) {
		c.Say("%s", line)
	}
	for i, rail := range topology.ChosenRails([]topology.Host{host}, c.Job.NICs) {
		if i < len(c.binding.streams) && len(c.binding.streams[i]) > 0 {
			c.Say("streams in %s run on CPUs %s", rail, strings.Trim(fmt.Sprint(c.binding.streams[i]), "[]"))
		}
	}
}

// threads returns each rank's share of the CPUs: the default of OpenMP, one thread per CPU in every rank, makes
// ranks wait for each other's threads.
func (c *cpus) threads() int { return max(1, c.daemon.Host().CPUs/max(1, c.Job.Slots)) }

// threadsOf returns a rank's share of the CPUs, at most the number of CPUs that it is bound to.
func (c *cpus) threadsOf(rank wire.Rank) int {
	if bound := len(c.binding.of(rank).CPUs); bound > 0 {
		return min(c.threads(), bound)
	}
	return c.threads()
}

// reportThreads shows each rank's share of the CPUs to users of -v.
func (c *cpus) reportThreads() {
	c.Tell("OMP_NUM_THREADS=%d unless it is set: %s for %s", c.threads(),
		topology.Count(c.daemon.Host().CPUs, "CPU"), topology.Count(c.Job.Slots, "rank"))
}
