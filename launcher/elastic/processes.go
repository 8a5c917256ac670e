package elastic

import "fmt"

func (m *Machine) process(number int) *process {
	if number < 0 || number >= len(m.processes) {
		return nil
	}
	return m.processes[number]
}

// exited notes that a process has ended, and whether the present world ends with it.
func (m *Machine) exited(p *process, ev Exited) {
	if p.host.failed && !m.fixed() {
		return // a consequence: it counts as lost with its host
	}
	p.started, p.exited = true, true
	delete(p.host.used, p.slot)
	why := fmt.Sprintf("process %d on %s exited with code %d", p.number, p.host.site.name, ev.Code)
	failure := End{Cause: ProcessFailed, Process: p.number, Host: p.host.id, Code: ev.Code, Why: why}
	switch {
	case m.job.Start.Failing: // a consequence
		return
	case m.fixed() && ev.Asked:
		m.hostFails(p.host, "its daemon has stopped its processes")
		return
	case m.fixed() && ev.Code != 0:
		m.end(failure)
		return
	case ev.Code != 0 && !ev.Asked:
		m.emit(ProcessLost{p.number})
	}
	switch {
	case p.dismissed: // it was stopped
	case ev.Code == 0:
		p.ok, m.job.Finished = true, true
	default:
		m.suspect(p.host.site, p.slot)
		m.failed(failure)
	}
}

// failed notes the end of the present world.
func (m *Machine) failed(e End) {
	if m.job.First == nil {
		m.job.First = &e
	}
	if m.job.Broken == "" {
		m.job.Broken = e.Why
	}
}

// live returns the processes of the present world that have not ended.
func (m *Machine) live() []*process {
	var out []*process
	for _, p := range m.world {
		if !p.exited {
			out = append(out, p)
		}
	}
	return out
}

func (m *Machine) allLeft() bool {
	for _, p := range m.live() {
		if p.left < m.job.Epoch {
			return false
		}
	}
	return true
}

// allGone ends a job when no process of it goes on.
func (m *Machine) allGone() {
	for _, p := range m.world {
		if !p.ok {
			e := End{Cause: ProcessFailed, Process: p.number, Host: p.host.id, Why: "no process is left"}
			if m.job.First != nil {
				e = *m.job.First
			}
			m.end(e)
			return
		}
	}
	m.end(End{Cause: Finished, Process: -1, Host: -1})
}
