package worker

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/picture"
	"gorun/worker/proc"
)

// bindRanks decides where the ranks run, of every slot of this host, and where the engine does. A decision stands
// for the life of the daemon: a slot that gets another rank keeps its CPUs.
func (d *daemon) bindRanks(gpus []string) error {
	if d.bound != nil || d.job.Bind.To == "" || d.job.Bind.To == topology.BindNone {
		return nil
	}
	slots := max(d.job.Slots, 1)
	for _, r := range d.roster.Ranks {
		slots = max(slots, r.LocalRank+1)
	}
	devices := make([]string, slots)
	for i := range devices {
		devices[i] = deviceOf(d.job.Env, gpus, i)
	}
	bind := d.job.Bind
	bind.NICs = d.nics
	bound, err := bind.Place(d.self, devices)
	if err != nil {
		return err
	}
	engine := bind.Beside(d.self, bound)
	if len(engine) > 0 {
		if err := proc.BindSelf(engine); err != nil {
			return err
		}
	}
	d.bound, d.beside, d.spare = bound, engine, bind.Spare(d.self, bound, engine)
	d.pinStreams(bind.Along(d.self, d.rails([]topology.Host{d.self}), engine))
	return nil
}

// pinStreams has the streams in each network run on the CPUs beside its NIC.
func (d *daemon) pinStreams(along [][]int) {
	if d.along = along; along == nil {
		return
	}
	d.mesh.Pin(func(stream int) {
		if stream == 0 || len(along[(stream-1)%len(along)]) == 0 {
			return // what is small goes over any of them
		}
		runtime.LockOSThread() // until the goroutine ends, and the thread with it
		if err := proc.BindThread(along[(stream-1)%len(along)]); err != nil {
			d.log.Warn("a stream does not run beside its NIC", "stream", stream, "error", err)
		}
	})
}

// reportBindings shows what bindRanks decided, if the user wants to see it.
func (d *daemon) reportBindings() {
	if !d.job.ReportBindings {
		return
	}
	if d.bound == nil {
		d.out.Write(&wire.Log{Text: fmt.Sprintf("ranks are not bound: they run on any of %s", topology.Count(d.self.CPUs, "CPU"))})
		return
	}
	b := picture.Bound{Ranks: slices.Repeat([]int{-1}, len(d.bound)), Bindings: d.bound, Engine: d.beside, Spare: d.spare}
	for _, r := range d.roster.Ranks {
		b.Ranks[r.LocalRank] = r.Rank
	}
	d.out.Write(&wire.Log{Text: fmt.Sprintf("ranks are bound to %s", d.job.Bind.To)})
	for _, line := range picture.Binding(d.self, b) {
		d.out.Write(&wire.Log{Text: line})
	}
	for i, rail := range d.rails([]topology.Host{d.self}) {
		if i < len(d.along) && len(d.along[i]) > 0 {
			d.out.Write(&wire.Log{Text: fmt.Sprintf("streams in %s run on CPUs %s", rail, strings.Trim(fmt.Sprint(d.along[i]), "[]"))})
		}
	}
}

// spareCPUs are the CPUs of what a rank starts, nil if it is not bound to cores of its own.
func (d *daemon) spareCPUs(r wire.Rank) []int {
	if r.LocalRank < len(d.spare) {
		return d.spare[r.LocalRank]
	}
	return nil
}

// binding is that of a rank.
func (d *daemon) binding(r wire.Rank) topology.Binding {
	if r.LocalRank < len(d.bound) {
		return d.bound[r.LocalRank]
	}
	return topology.Binding{}
}
