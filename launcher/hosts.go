package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// host is what the loop knows of a host, and the conversation with its daemon.
type host struct {
	talk.Conversation
	id     int
	name   string
	hangUp func() // ends the conversation

	up    bool        // its daemon has got the job
	ready *wire.Ready // what its daemon reported when it was ready; nil before
	ended bool        // its conversation is over
	world wire.World  // the one that it entered last

	spares  bool               // it was sent some, or may have been
	leaving bool               // an elastic job has ordered it to stop
	evicted *eviction          // how it was given up; nil if it was not
	failure *failure.HostError // why its conversation ended
	session string             // identifies the daemon for a successor of this launcher
	adopted bool               // another launcher has started it
}

// newHost returns a host before its conversation. template is what all daemons get.
func newHost(id int, name string, spec *Spec, template wire.Job) *host {
	template.HostID, template.Name = id, name
	return &host{id: id, name: name, Conversation: talk.New(spec.talks(), template)}
}

// talks returns what the conversations with all hosts have in common.
func (s *Spec) talks() talk.Config {
	return talk.Config{Dial: s.Dial, Files: s.Files, Python: s.Python, Version: s.Version, Env: s.Env, Interval: s.Timing().LauncherInterval,
		Output: s.Output, Watched: s.Watch != nil, Note: s.Note}
}

// eviction is how a host was given up.
type eviction struct {
	why     string
	own     bool // it follows from what its own daemon sent
	alive   bool // the launcher heard it until then
	mayLive bool // the job ended, and its ranks may run on
}

// whyLost returns why a host was evicted; if it was not, the reason that its conversation shows.
func (h *host) whyLost(otherwise string) string {
	if h.evicted != nil {
		return h.evicted.why
	}
	return otherwise
}

// fails records why the conversation with a host that runs ranks ended, unless a reason is already recorded.
func (h *host) fails(err error) {
	h.failure = cmp.Or(h.failure, &failure.HostError{Host: h.name, Step: "run", Err: err, Code: failure.ExitTransport})
}

// drop ends a daemon that is of no use any more. Its end is reported like any other.
func (h *host) drop() {
	h.leaving = true
	if h.up {
		h.Queue.Put(&wire.Stop{})
	} else {
		h.hangUp()
	}
}

// lostBy returns the event that a host is lost, with what is known about its machine.
func (h *host) lostBy(why string) elastic.HostLost {
	ev := elastic.HostLost{Host: h.id, Reason: why}
	if now := time.Now(); !h.Heard.Last(now).IsZero() {
		ev.Silent = now.Sub(h.Heard.Last(now))
	}
	switch d := h.Daemon(); {
	case h.evicted != nil && h.evicted.own:
		ev.Ended = true
	case h.evicted != nil:
		ev.Alive = h.evicted.alive
	case d != nil:
		ev.Ended = d.Ended == nil || d.Ended()
	case strings.HasPrefix(h.failure.Step, string(ssh.StepAuthenticate)), // of a bastion, too
		strings.HasPrefix(h.failure.Step, string(ssh.StepHostKey)):
		ev.Refused = true
	default:
		ev.Alive = h.Answered()
	}
	return ev
}

// hostList are the hosts of a job, by id.
type hostList []*host

// broadcast sends a message to all hosts that are up.
func (l hostList) broadcast(m wire.Message) {
	for _, h := range l {
		if h.up {
			h.Queue.Put(m)
		}
	}
}

// names returns the names of all hosts.
func (l hostList) names() []string {
	names := make([]string, len(l))
	for id, h := range l {
		names[id] = h.name
	}
	return names
}

// running counts the daemons that can answer.
func (l hostList) running() (n int) {
	for _, h := range l {
		if h.up && !h.ended {
			n++
		}
	}
	return n
}

// allEnded reports whether the conversations with all hosts are over.
func (l hostList) allEnded() bool {
	return !slices.ContainsFunc(l, func(h *host) bool { return !h.ended })
}

// allReady reports whether the daemons of all hosts are ready.
func (l hostList) allReady() bool {
	return !slices.ContainsFunc(l, func(h *host) bool { return h.ready == nil })
}

// unaccounted reports whether a host that was taken over has yet to report its state: no world can be made without it.
func (l hostList) unaccounted() bool {
	return slices.ContainsFunc(l, func(h *host) bool {
		return h.adopted && !h.leaving && h.evicted == nil && h.ready == nil && !h.ended
	})
}

// sameMachine returns the error of a host that is another one under a second name, nil if it is none. Its ranks would
// have the local ranks of that host's, and so their GPUs and cores.
func (l hostList) sameMachine(h *host) *failure.HostError {
	for _, other := range l {
		a, b := h.Daemon(), other.Daemon()
		if other == h || other.ready == nil || other.ended || other.evicted != nil || other.name == h.name || a == nil || b == nil {
			continue
		}
		if a.Same(h.ready.Host.Identity, b.Identity, other.ready.Host.Identity) {
			return &failure.HostError{Host: h.name, Step: "join", Err: fmt.Errorf("it is the same machine as %s, under two names", other.name),
				Hint: fmt.Sprintf("name it once, with the slots of both: %s:%d; --strict=false starts the job anyway", other.name, h.Job().Slots+other.Job().Slots), Code: failure.ExitUsage}
		}
	}
	return nil
}

// otherPython returns the error of a host on which the ranks' Python, or a framework of it, has another version than on
// another host, nil if there is none.
func (l hostList) otherPython(h *host) *failure.HostError {
	for _, other := range l {
		if other.ready == nil || other.ended || other.evicted != nil {
			continue
		}
		for _, what := range []string{"Python", "torch", "tensorflow", "jax"} {
			here, there := h.ready.Python, other.ready.Python
			if here[what] != there[what] && here[what] != "" && there[what] != "" {
				return &failure.HostError{Host: h.name, Step: "join", Code: failure.ExitUsage,
					Err:  fmt.Errorf("%s has %s %s, and on %s %s has %s", here["path"], what, here[what], other.name, there["path"], there[what]),
					Hint: "install the same on all hosts, or name a Python that they all have by its path; --strict=false starts the job anyway"}
			}
		}
	}
	return nil
}

// lastRing returns the ring of the last world, by host ids.
func (l hostList) lastRing() (order []int) {
	last := uint32(0)
	for _, h := range l {
		if w := h.world; w.Epoch > last {
			last, order = w.Epoch, w.Order
		}
	}
	return order
}

// after returns the name of the host that follows a host in the ring of the last world, "" if it is in none.
func (l hostList) after(id int) string {
	order := l.lastRing()
	i := slices.Index(order, id)
	if i < 0 || len(order) < 2 {
		return ""
	}
	return l[order[(i+1)%len(order)]].name
}

// described returns how the hosts describe themselves, by id.
func (l hostList) described() []topology.Host {
	hosts := make([]topology.Host, len(l))
	for i, h := range l {
		if ready := h.ready; ready != nil {
			hosts[i] = ready.Host
		}
		hosts[i].Name = h.name
	}
	return hosts
}

// sendPeers sends hosts what is the same for all of them in the rosters that follow. It is encoded once: a copy for
// each of 1,000 hosts, each naming all the others, would be most of the launcher's memory.
func (l hostList) sendPeers(r *wire.Roster) {
	peers, err := wire.Encode(&wire.Peers{Epoch: r.Epoch, Peers: r.Peers})
	if err != nil {
		return // too many for one message: the error of each roster explains that to its host
	}
	r.Peers = nil
	for _, h := range l {
		h.Queue.Put(peers)
	}
}

// bare is a host's name without the user that logs in there.
func bare(name string) string { return name[strings.LastIndexByte(name, '@')+1:] }
