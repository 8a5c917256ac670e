package ranks

import (
	"log/slog"

	"gorun/rendezvous/wire"
	"gorun/worker/counters"
)

// gauge is where a process writes what it does.
type gauge struct {
	page   *counters.Page   // nil if it has none
	stacks *counters.Stacks // nil if it has none
}

// gauges are those of this host, by process.
type gauges map[int]gauge

// open gives a process that is about to start a page for its counters. A rank does without if there is no memory.
func (all gauges) open(number int, log *slog.Logger) {
	page, err := counters.NewPage()
	if err != nil {
		log.Warn("a rank counts nothing", "process", number, "err", err)
		return
	}
	stacks, err := counters.NewStacks()
	if err != nil {
		log.Warn("a rank writes no stacks", "process", number, "err", err)
	}
	all[number] = gauge{page, stacks}
}

// paths returns where a process finds its gauge, "" for what it lacks.
func (all gauges) paths(number int) (page, stacks string) {
	g := all[number]
	if g.page != nil {
		page = g.page.Path()
	}
	if g.stacks != nil {
		stacks = g.stacks.Path()
	}
	return page, stacks
}

// split returns what a process has counted, nil if it counted nothing.
func (all gauges) split(number int) *wire.Split {
	page := all[number].page
	if page == nil {
		return nil
	}
	c := page.Read()
	if c.Elapsed == 0 {
		return nil
	}
	return &wire.Split{Elapsed: c.Elapsed.Microseconds(), Steps: c.Steps, Step: c.Step.Microseconds(),
		Data: c.Data.Microseconds(), Others: c.Others.Microseconds(), Communication: c.Communication.Microseconds(),
		Hidden: c.Hidden.Microseconds(), Operations: c.Operations, Activity: c.Activity.String(),
		For: c.For.Microseconds()}
}

func (all gauges) close() {
	for _, g := range all {
		if g.page != nil {
			g.page.Close()
		}
		if g.stacks != nil {
			g.stacks.Close()
		}
	}
}
