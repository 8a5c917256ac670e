package ranks

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

// binding is where ranks, engine and streams run. It is decided once, for every slot of this host: a slot that gets
// another rank keeps its CPUs.
type binding struct {
	ranks   []topology.Binding // by local rank; nil if they are not bound
	engine  []int              // CPUs, nil for any
	streams [][]int            // CPUs beside the NIC of each network, nil if it makes no difference
	spare   [][]int            // CPUs of what the ranks start, by local rank
}

// of returns the binding of a rank.
func (b binding) of(rank wire.Rank) topology.Binding {
	if rank.LocalRank < len(b.ranks) {
		return b.ranks[rank.LocalRank]
	}
	return topology.Binding{}
}

// spareOf returns the CPUs of what a rank starts, nil if it is not bound to cores of its own.
func (b binding) spareOf(rank wire.Rank) []int {
	if rank.LocalRank < len(b.spare) {
		return b.spare[rank.LocalRank]
	}
	return nil
}

// bind decides where the ranks of this host run, and where the engine does.
func (r *Ranks) bind(roster *wire.Roster, gpus []string) error {
	if r.binding.ranks != nil || r.job.Bind.To == "" || r.job.Bind.To == topology.BindNone {
		return nil
	}
	host := r.cfg.Daemon.Host()
	slots := max(r.job.Slots, 1)
	for _, rank := range roster.Ranks {
		slots = max(slots, rank.LocalRank+1)
	}
	devices := make([]string, slots)
	for i := range devices {
		devices[i] = deviceOf(r.job.Env, gpus, i)
	}
	by := r.job.Bind
	by.NICs = r.cfg.NICs
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
	r.binding = binding{ranks: bound, engine: engine, spare: by.Spare(host, bound, engine),
		streams: by.Along(host, topology.ChosenRails([]topology.Host{host}, r.job.NICs), engine)}
	r.pinStreams(r.binding.streams)
	return nil
}

// pinStreams has the streams in each network run on the CPUs beside its NIC.
func (r *Ranks) pinStreams(beside [][]int) {
	if beside == nil {
		return
	}
	r.cfg.Daemon.Pin(func(stream int) {
		if stream == 0 || len(beside[(stream-1)%len(beside)]) == 0 {
			return // what is small goes over any of them
		}
		runtime.LockOSThread() // until the goroutine ends, and the thread with it
		if err := proc.BindThread(beside[(stream-1)%len(beside)]); err != nil {
			r.cfg.Log.Warn("a stream does not run beside its NIC", "stream", stream, "error", err)
		}
	})
}

// reportBindings shows what bind decided, if the user wants to see it.
func (r *Ranks) reportBindings(roster *wire.Roster) {
	if !r.job.ReportBindings {
		return
	}
	host := r.cfg.Daemon.Host()
	if r.binding.ranks == nil {
		r.say(fmt.Sprintf("ranks are not bound: they run on any of %s", topology.Count(host.CPUs, "CPU")))
		return
	}
	b := picture.Bound{Ranks: slices.Repeat([]int{-1}, len(r.binding.ranks)), Bindings: r.binding.ranks,
		Engine: r.binding.engine, Spare: r.binding.spare}
	for _, rank := range roster.Ranks {
		b.Ranks[rank.LocalRank] = rank.Rank
	}
	r.say(fmt.Sprintf("ranks are bound to %s", r.job.Bind.To))
	for _, line := range picture.Binding(host, b) {
		r.say(line)
	}
	for i, rail := range topology.ChosenRails([]topology.Host{host}, r.job.NICs) {
		if i < len(r.binding.streams) && len(r.binding.streams[i]) > 0 {
			r.say(fmt.Sprintf("streams in %s run on CPUs %s", rail, strings.Trim(fmt.Sprint(r.binding.streams[i]), "[]")))
		}
	}
}

// say shows a line to users of -v.
func (r *Ranks) say(text string) { r.cfg.Out.Write(&wire.Log{Text: text}) }
