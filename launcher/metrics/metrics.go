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

	"gorun/launcher"
	"gorun/launcher/httpserve"
	"gorun/launcher/jobs"
)

const (
	askInterval = time.Second
	// ioTimeout bounds a client's request, and its reading of the answer.
	ioTimeout = 10 * time.Second
)

// Job is what is served.
type Job interface {
	Record() jobs.Record
	// Ranks returns the states of the ranks, and has their daemons report newer ones.
	Ranks() []jobs.RankStatus
	// Carried returns what the links of each host have carried, by the host's name.
	Carried() map[string]launcher.HostUsage
}

// Serve serves the metrics of a job at HOST:PORT, on the loopback interface where HOST is empty, until Close.
func Serve(address, version string, job Job) (*httpserve.Server, error) {
	c := &collector{job: job, version: version}
	c.take(job.Ranks())
	return serve(address, c, c.look)
}

// serve serves what a collector knows, and runs look, which keeps that new, until Close.
func serve(address string, c prometheus.Collector, look func(ctx context.Context)) (*httpserve.Server, error) {
	l, _, err := httpserve.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4}))
	return httpserve.Start(l, &http.Server{Handler: mux, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout}, look), nil
}

// collector makes metrics of what the launcher knows.
type collector struct {
	job     Job
	version string

	mu      sync.Mutex
	ranks   []jobs.RankStatus
	counted map[process]counts // replaced as a whole
}

// look keeps what is known of the ranks new.
func (c *collector) look(ctx context.Context) {
	tick := time.NewTicker(askInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		ranks := c.job.Ranks()
		c.mu.Lock()
		c.take(ranks)
		c.mu.Unlock()
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gorun_"+name, help, labels, nil)
}

var (
	info    = describe("info", "The job: its program and gorun's version. Always 1.", "job", "program", "version")
	started = describe("job_start_time_seconds", "When the job started, in seconds since 1970.", "job")
	world   = describe("job_ranks", "Ranks of the job's world.", "job")
	epoch   = describe("job_epoch", "Number of the job's world, which grows by every change of an elastic job.", "job")

	up         = describe("rank_running", "1 while the process of the rank runs.", "job", "host", "rank")
	cpu        = describe("rank_cpu_seconds_total", "CPU time of the rank and what it started.", "job", "host", "rank")
	memory     = describe("rank_resident_memory_bytes", "Memory of the rank and what it started; shared memory counts for each.", "job", "host", "rank")
	processes  = describe("rank_processes", "Processes of the rank.", "job", "host", "rank")
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
)

var all = []*prometheus.Desc{info, started, world, epoch, up, cpu, memory, processes, steps, step, spent, hidden, operations,
	sent, overRDMA, failures, resent, segments, renewed, busy, damaged, silent}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	record := c.job.Record()
	job := strconv.Itoa(record.ID)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{job}, labels...)...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{job}, labels...)...)
	}
	gauge(info, 1, jobs.Clean(record.Program), c.version)
	gauge(started, float64(record.Started.UnixMilli())/1e3)
	gauge(world, float64(record.Ranks))
	c.collectRanks(gauge, counter)
	c.collectHosts(record, gauge, counter)
}

// emit sends one sample; its labels follow the job's.
type emit func(d *prometheus.Desc, v float64, labels ...string)

func (c *collector) collectRanks(gauge, counter emit) {
	c.mu.Lock()
	ranks, counted := c.ranks, c.counted
	c.mu.Unlock()
	for _, r := range ranks {
		at := []string{r.Host, strconv.Itoa(r.Rank)}
		running := 0.0
		if r.PID != 0 && !r.Ended() {
			running = 1
		}
		gauge(up, running, at...)
		counter(cpu, float64(r.CPUMS)/1e3, at...)
		gauge(memory, float64(r.RSS), at...)
		gauge(processes, float64(r.Processes), at...)
		n, ok := counted[process{r.Host, r.Rank, r.PID}]
		if !ok {
			continue
		}
		counter(steps, float64(n.steps), at...)
		gauge(step, float64(r.Split.Step)/1e6, at...)
		counter(hidden, float64(n.hidden)/1e6, at...)
		counter(operations, float64(n.operations), at...)
		for _, part := range []struct {
			activity string
			us       int64
		}{{"computing", n.computing}, {"data", n.data}, {"communication", n.communication}, {"others", n.others}} {
			counter(spent, float64(part.us)/1e6, append(at[:2:2], part.activity)...)
		}
	}
}

func (c *collector) collectHosts(record jobs.Record, gauge, counter emit) {
	latest := uint32(0)
	carried := c.job.Carried()
	for _, host := range record.Hosts {
		u := carried[host]
		latest = max(latest, u.Epoch)
		counter(sent, float64(u.Links.SentBytes), host)
		counter(overRDMA, float64(u.Links.RDMABytes), host)
		counter(failures, float64(u.Links.RDMAFailures), host)
		counter(resent, float64(u.Links.ResentBytes), host)
		counter(segments, float64(u.Links.ResentSegments), host)
		counter(renewed, float64(u.Links.Renewed), host)
		counter(busy, float64(u.Links.BusyUS)/1e6, host)
		counter(damaged, float64(u.Links.Damaged), host)
		quiet := 0.0
		if since, ok := record.Silent[host]; ok {
			quiet = time.Since(since).Seconds()
		}
		gauge(silent, quiet, host)
	}
	gauge(epoch, float64(latest))
}
