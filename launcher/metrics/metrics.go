// Package metrics serves what a job counts, and what a resident daemon does, in the text format of Prometheus and
// OpenMetrics.
//
// Serve listens at the address of --metrics. It asks the daemons each second what their ranks use, so that a scrape
// takes what the launcher knows already and waits for no host. Labels are bounded: a job has as many series as it has
// ranks and hosts, times a constant. Names follow https://prometheus.io/docs/practices/naming: base units, and _total
// for what only grows.
package metrics

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gorun/launcher/httpserve"
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// ioTimeout bounds a client's request, and its reading of the answer.
const ioTimeout = 10 * time.Second

// Serve serves the metrics of a job at HOST:PORT, on the loopback interface where HOST is empty, until Close. state returns
// what is known of the job, and has its daemons report newer figures.
func Serve(address, version string, state func() jobs.State) (*httpserve.Server, error) {
	c := &collector{version: version}
	c.take(state())
	return serve(address, c, func(context.Context) { c.take(state()) })
}

// serve serves what a collector knows, and has update keep that new, until Close.
func serve(address string, c prometheus.Collector, update func(ctx context.Context)) (*httpserve.Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	mux := http.NewServeMux()
	// To compress 300 kB, as 64 hosts have, would take longer than to make them.
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4,
		DisableCompression: true}))
	s, err := httpserve.Serve(address, &http.Server{Handler: mux, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout}, update)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	return s, nil
}

// collector makes metrics of what the launcher knows.
type collector struct {
	version string

	mu      sync.Mutex
	state   jobs.State
	counted map[process]counts // replaced as a whole
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gorun_"+name, help, labels, nil)
}

var (
	info    = describe("info", "The job: its program and gorun's version. Always 1.", "job", "program", "version")
	started = describe("job_start_time_seconds", "When the job started, in seconds since 1970.", "job")
	world   = describe("job_ranks", "Ranks of the job's world.", "job")
	epoch   = describe("job_epoch", "Number of the job's world, which grows by every change of an elastic job.", "job")

	events = describe("job_events_total", "Reports of stalls, and announcements of moves.", "job", "event")

	up         = describe("rank_running", "1 while the process of the rank runs.", "job", "host", "rank")
	cpu        = describe("rank_cpu_seconds_total", "CPU time of the rank and what it started.", "job", "host", "rank")
	memory     = describe("rank_resident_memory_bytes", "Memory of the rank and what it started; shared memory counts for each.", "job", "host", "rank")
	processes  = describe("rank_processes", "Processes of the rank.", "job", "host", "rank")
	arena      = describe("rank_arena_bytes", "Shared memory that holds tensors of the rank.", "job", "host", "rank")
	steps      = describe("rank_steps_total", "Training steps.", "job", "host", "rank")
	step       = describe("rank_last_step_seconds", "Length of the last step.", "job", "host", "rank")
	spent      = describe("rank_time_seconds_total", "Time by what the rank did: computing, or waiting for data, for communication, for other ranks.", "job", "host", "rank", "activity")
	hidden     = describe("rank_hidden_communication_seconds_total", "Communication that ran while the rank did something else.", "job", "host", "rank")
	operations = describe("rank_operations_total", "Operations that the rank has waited for.", "job", "host", "rank")

	sent     = describe("host_sent_bytes_total", "Bytes that the host has sent to others, without what was sent again.", "job", "host")
	overRDMA = describe("host_rdma_bytes_total", "Bytes of host_sent_bytes_total that went over RDMA.", "job", "host")
	failures = describe("host_rdma_failures_total", "Queue pairs that the host found broken.", "job", "host")
	resent   = describe("host_resent_bytes_total", "Bytes that the host has sent again.", "job", "host")
	segments = describe("host_resent_segments_total", "Segments that the host has sent again.", "job", "host")
	renewed  = describe("host_renewed_streams_total", "Connections to other hosts that replaced others.", "job", "host")
	busy     = describe("host_network_busy_seconds_total", "Time in which data of the host waited for the network.", "job", "host")
	damaged  = describe("host_damaged_streams_total", "Connections that were replaced because of damaged data.", "job", "host")
	silent   = describe("host_silent_seconds", "How long the host is silent; 0 if it is not.", "job", "host")
	results  = describe("host_result_bytes", "Shared memory that holds results which the engine has made, or is kept for more.", "job", "host")

	// The links of a host that have carried most: three at most, so that series grow with hosts and not with pairs of them.
	linkSent     = describe("link_sent_bytes_total", "Bytes that the host has sent to another one, over one transport.", "job", "host", "to", "transport")
	linkSegments = describe("link_resent_segments_total", "Segments that the host has sent to another one again.", "job", "host", "to")
	linkBusy     = describe("link_network_busy_seconds_total", "Time in which data for the other host waited for the network.", "job", "host", "to")
	linkQueued   = describe("link_queued_segments", "Segments that wait for the network, or for the other host to acknowledge them.", "job", "host", "to")

	// Operations of the engine. Times are sums over operations, of which several run at a time.
	open   = describe("host_open_operations", "Operations that a rank has submitted, and that have not ended.", "job", "host")
	failed = describe("host_failed_operations_total", "Operations that ended with an error.", "job", "host")
	ended  = describe("host_operations_total", "Operations that have ended.", "job", "host", "kind")
	volume = describe("host_operation_bytes_total", "Bytes of a rank's tensor, summed over operations.", "job", "host", "kind")
	waited = describe("host_operation_wait_seconds_total", "Time from the first rank of the host until all ranks had called, summed over operations.", "job", "host", "kind")
	ran    = describe("host_operation_run_seconds_total", "Time from when all ranks had called until the end, summed over operations.", "job", "host", "kind")
)

// Describe implements prometheus.Collector, and has the registry check what is collected instead.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	state, counted := c.state, c.counted
	c.mu.Unlock()
	record := state.Record
	job := strconv.Itoa(record.ID)
	gauge, counter := to(ch, prometheus.GaugeValue), to(ch, prometheus.CounterValue)
	gauge(info, 1, job, jobs.Clean(record.Program), c.version)
	gauge(started, float64(record.Started.UnixMilli())/1e3, job)
	gauge(world, float64(record.Ranks), job)
	gauge(epoch, float64(state.Epoch()), job)
	for _, event := range []string{"stall", "move"} {
		counter(events, float64(state.Counted[event]), job, event)
	}
	collectRanks(state.Ranks, counted, job, gauge, counter)
	collectHosts(state.Hosts, record.Silent, job, gauge, counter)
}

// emit sends one sample.
type emit func(d *prometheus.Desc, v float64, labels ...string)

func to(ch chan<- prometheus.Metric, kind prometheus.ValueType) emit {
	return func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
}

func collectRanks(ranks []jobs.RankStatus, counted map[process]counts, job string, gauge, counter emit) {
	for _, r := range ranks {
		host, rank := r.Host, strconv.Itoa(r.Rank)
		gauge(up, one(r.PID != 0 && !r.Ended()), job, host, rank)
		counter(cpu, float64(r.CPUMS)/1e3, job, host, rank)
		gauge(memory, float64(r.RSS), job, host, rank)
		gauge(processes, float64(r.Processes), job, host, rank)
		gauge(arena, float64(r.Arena), job, host, rank)
		n, ok := counted[process{r.Host, r.Rank, r.PID}]
		if !ok {
			continue
		}
		gauge(step, float64(r.Split.Step)/1e6, job, host, rank)
		for i, g := range grown {
			counter(g.desc, float64(n[i])/g.unit, append([]string{job, host, rank}, g.labels...)...)
		}
	}
}

func collectHosts(hosts []jobs.HostStatus, silence map[string]time.Time, job string, gauge, counter emit) {
	for _, h := range hosts {
		host := h.Name
		counter(sent, float64(h.SentBytes), job, host)
		counter(overRDMA, float64(h.RDMABytes), job, host)
		counter(failures, float64(h.RDMAFailures), job, host)
		counter(resent, float64(h.ResentBytes), job, host)
		counter(segments, float64(h.ResentSegments), job, host)
		counter(renewed, float64(h.Renewed), job, host)
		counter(busy, float64(h.BusyUS)/1e6, job, host)
		counter(damaged, float64(h.Damaged), job, host)
		quiet := 0.0
		if since, ok := silence[h.Name]; ok {
			quiet = time.Since(since).Seconds()
		}
		gauge(silent, quiet, job, host)
		gauge(open, float64(h.Open), job, host)
		gauge(results, float64(h.Results), job, host)
		collectLinks(h.Each, host, job, gauge, counter)
		collectOperations(h.Operations, host, job, counter)
	}
}

// collectLinks sends what the links of a host have carried.
func collectLinks(links []jobs.LinkStatus, host, job string, gauge, counter emit) {
	for _, l := range links {
		counter(linkSent, float64(l.SentBytes-min(l.RDMABytes, l.SentBytes)), job, host, l.To, "tcp")
		if l.RDMABytes > 0 {
			counter(linkSent, float64(l.RDMABytes), job, host, l.To, "rdma")
		}
		counter(linkSegments, float64(l.ResentSegments), job, host, l.To)
		counter(linkBusy, float64(l.BusyUS)/1e6, job, host, l.To)
		gauge(linkQueued, float64(l.Queued), job, host, l.To)
	}
}

// collectOperations sends what the operations of a host have done.
func collectOperations(all []wire.OperationUsage, host, job string, counter emit) {
	bad := uint64(0)
	for _, o := range all {
		bad += o.Failed
		counter(ended, float64(o.Ended), job, host, o.Kind)
		counter(volume, float64(o.Bytes), job, host, o.Kind)
		counter(waited, float64(o.Waiting)/1e6, job, host, o.Kind)
		counter(ran, float64(o.Running)/1e6, job, host, o.Kind)
	}
	counter(failed, float64(bad), job, host)
}
