package metrics

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"gorun/launcher/httpserve"
	"gorun/launcher/jobs"
	"gorun/rendezvous/standing"
)

// Daemon is a resident daemon.
type Daemon struct {
	Name, Version string
	// Stats returns what the daemon does now.
	Stats func() standing.Stats
	// Jobs returns the states of the detached jobs whose launchers run on this host.
	Jobs func(ctx context.Context) []jobs.State
}

// ServeDaemon is Serve for a resident daemon, with the detached jobs whose launchers it runs.
func ServeDaemon(address string, d Daemon) (*httpserve.Server, error) {
	c := &daemonCollector{daemon: d, jobs: map[int]*collector{}}
	return serve(address, c, func(ctx context.Context) { c.take(d.Jobs(ctx)) })
}

func ofDaemon(name, help string, labels ...string) *prometheus.Desc {
	return describe("daemon_"+name, help, append([]string{"daemon"}, labels...)...)
}

// What a daemon says of itself, and, with the hosts of the cluster, what the one says that holds the queue.
var (
	daemonInfo     = ofDaemon("info", "The daemon and its version. Always 1.", "version")
	daemonStart    = ofDaemon("start_time_seconds", "When the daemon started, in seconds since 1970.")
	daemonSlots    = ofDaemon("slots", "Slots of this host.")
	daemonUsed     = ofDaemon("used_slots", "Slots of this host that jobs use.")
	daemonJobs     = ofDaemon("jobs", "Jobs that run on this host.")
	daemonDraining = ofDaemon("draining", "1 while the daemon takes no more jobs.")
	daemonHosts    = ofDaemon("known_hosts", "Hosts of the cluster that the daemon knows, with its own.")
	daemonHolds    = ofDaemon("holds_queue", "1 while the daemon holds the queue of the cluster.")
	daemonRequests = ofDaemon("requests_total", "What the daemon was asked for, as in its audit log.", "request", "result")
	daemonRefused  = ofDaemon("refused_connections_total", "Connections that did not show the key, or were too many.")

	hostSlots    = describe("cluster_host_slots", "Slots of a host of the cluster.", "host")
	hostUsed     = describe("cluster_host_used_slots", "Slots of the host that jobs use or were promised.", "host")
	hostDraining = describe("cluster_host_draining", "1 while the host takes no more jobs.", "host")
	running      = describe("cluster_running_jobs", "Jobs that have slots.")
	waiting      = describe("cluster_waiting_jobs", "Jobs that wait for slots.")
	longest      = describe("cluster_longest_wait_seconds", "How long the first job in the queue waits, 0 if none does.")
)

// daemonCollector makes metrics of what a resident daemon knows.
type daemonCollector struct {
	daemon Daemon

	mu   sync.Mutex
	jobs map[int]*collector
}

// take replaces the states of jobs.
func (c *daemonCollector) take(states []jobs.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := map[int]*collector{}
	for _, s := range states {
		of := c.jobs[s.Record.ID]
		if of == nil {
			of = &collector{version: c.daemon.Version}
		}
		of.take(s)
		now[s.Record.ID] = of
	}
	c.jobs = now
}

// Describe implements prometheus.Collector.
func (c *daemonCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *daemonCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.daemon.Stats()
	gauge, counter := to(ch, prometheus.GaugeValue), to(ch, prometheus.CounterValue)
	own := func(d *prometheus.Desc, v float64, labels ...string) {
		gauge(d, v, append([]string{c.daemon.Name}, labels...)...)
	}
	own(daemonInfo, 1, c.daemon.Version)
	own(daemonStart, float64(s.Started.UnixMilli())/1e3)
	own(daemonSlots, float64(s.Slots))
	own(daemonUsed, float64(s.Used))
	own(daemonJobs, float64(s.Jobs))
	own(daemonDraining, one(s.Draining))
	own(daemonHosts, float64(len(s.Members)))
	own(daemonHolds, one(s.Holds))
	for r, n := range s.Requests {
		counter(daemonRequests, float64(n), c.daemon.Name, r.What, r.Result)
	}
	counter(daemonRefused, float64(s.Refused), c.daemon.Name)
	if s.Holds {
		for _, m := range s.Members {
			gauge(hostSlots, float64(m.Slots), m.Host)
			gauge(hostUsed, float64(m.Used), m.Host)
			gauge(hostDraining, one(m.Draining), m.Host)
		}
		gauge(running, float64(s.Running))
		gauge(waiting, float64(s.Waiting))
		gauge(longest, s.Longest.Seconds())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range c.jobs {
		of.Collect(ch)
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
