package metrics_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/launcher/metrics"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

func TestDaemon(t *testing.T) {
	stats := standing.Stats{Started: time.Unix(1700000000, 0), Slots: 8, Used: 3, Jobs: 2, Holds: true, Running: 2, Waiting: 1, Longest: 90 * time.Second,
		Members:  []wire.MemberState{{Host: "host1", Slots: 8, Used: 3}, {Host: "host2", Slots: 4, Draining: true}},
		Requests: map[standing.Request]uint64{{What: "start", Result: "done"}: 5, {What: "start", Result: "refused"}: 1}, Refused: 7}
	var holds, asked atomic.Bool
	holds.Store(true)
	s, err := metrics.ServeDaemon(":0", metrics.Daemon{Name: "host1", Version: "1.2.3",
		Stats: func() standing.Stats {
			now := stats
			now.Holds = holds.Load()
			return now
		},
		Jobs: func(context.Context) []jobs.State {
			defer asked.Store(true)
			return []jobs.State{
				{Record: job{2}.Record(), Ranks: job{2}.Ranks(), Hosts: []jobs.HostStatus{{Name: "host0", Epoch: 3, Links: wire.Links{SentBytes: 1 << 30, RDMABytes: 1 << 29, RDMAFailures: 3, BusyUS: 5e5}}}},
				{Record: jobs.Record{ID: 8, Ranks: 1, Hosts: []string{"host0"}}},
			}
		}})
	must.Do(t, err)
	defer s.Close()
	for !asked.Load() {
		time.Sleep(time.Millisecond)
	}
	var text string
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var code int
		if code, text = get(t, "http://"+s.Address()+"/metrics"); code != http.StatusOK {
			t.Fatalf("%d\n%s", code, text)
		}
		if strings.Contains(text, "gorun_info") || time.Now().After(deadline) {
			break
		}
	}
	for _, want := range []string{
		`gorun_daemon_info{daemon="host1",version="1.2.3"} 1`,
		`gorun_daemon_slots{daemon="host1"} 8`,
		`gorun_daemon_used_slots{daemon="host1"} 3`,
		`gorun_daemon_jobs{daemon="host1"} 2`,
		`gorun_daemon_requests_total{daemon="host1",request="start",result="refused"} 1`,
		`gorun_daemon_refused_connections_total{daemon="host1"} 7`,
		`gorun_cluster_host_slots{host="host2"} 4`,
		`gorun_cluster_host_draining{host="host2"} 1`,
		`gorun_cluster_waiting_jobs 1`,
		`gorun_cluster_longest_wait_seconds 90`,
		`gorun_rank_steps_total{host="host1",job="7",rank="1"} 4`,
		`gorun_host_sent_bytes_total{host="host0",job="7"} 1.073741824e+09`,
		`gorun_host_rdma_bytes_total{host="host0",job="7"} 5.36870912e+08`,
		`gorun_host_rdma_failures_total{host="host0",job="7"} 3`,
		`gorun_host_network_busy_seconds_total{host="host0",job="7"} 0.5`,
		`gorun_job_ranks{job="8"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	must.Do(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	holds.Store(false) // another daemon says it of the cluster
	if _, text = get(t, "http://"+s.Address()+"/metrics"); strings.Contains(text, "gorun_cluster_") || !strings.Contains(text, `gorun_daemon_holds_queue{daemon="host1"} 0`) {
		t.Errorf("a daemon without the queue serves\n%s", text)
	}
}
