package elastic

import "fmt"

func (m *Machine) process(number int) *process {
	if number < 0 || number >= len(m.processes) {
		return nil
	}
	return m.processes[number]
}

// ends notes that the process has ended: its slot is free.
func (p *process) ends() {
	p.Started, p.Exited = true, true
	delete(p.host.used, p.Slot)
}

// failure returns the end of a job that ends because the process has exited with a code.
func (p *process) failure(code int) End {
	why := fmt.Sprintf("process %d on %s exited with code %d", p.number, p.host.site.Name, code)
	return End{Cause: ProcessFailed, Process: p.number, Host: p.host.id, Code: code, Why: why}
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

// ranks reports whether a slot of a daemon, which may be nil, has a process that was in a world.
func (d *daemon) ranks(slot int) bool {
	return d != nil && d.used[slot] != nil && d.used[slot].Since > 0
}

// live returns the processes of the present world that have not ended.
func (m *Machine) live() []*process {
	var out []*process
	for _, p := range m.world {
		if !p.Exited {
			out = append(out, p)
		}
	}
	return out
}

func (m *Machine) allLeft() bool {
	for _, p := range m.live() {
		if p.Left < m.job.Epoch {
			return false
		}
	}
	return true
}

// endFor ends a job for what the first failure has led to.
func (m *Machine) endFor(cause Cause, why string) {
	e := End{Cause: cause, Process: -1, Host: -1, Why: why}
	if first := m.job.First; first != nil {
		e.Process, e.Host, e.Code = first.Process, first.Host, first.Code
	}
	m.end(e)
}

// allGone ends a job when no process of it goes on.
func (m *Machine) allGone() {
	for _, p := range m.world {
		if !p.OK {
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
