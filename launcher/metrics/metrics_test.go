package metrics_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/launcher/metrics"
	"gorun/rendezvous/wire"
)

type job struct{ hosts int }

func (j job) Record() jobs.Record {
	r := jobs.Record{ID: 7, Program: "python3 train.py\x1b[2J", Ranks: j.hosts, Started: time.Unix(1700000000, 0),
		Silent: map[string]time.Time{"host1": time.Now().Add(-3 * time.Second)}}
	for i := range j.hosts {
		r.Hosts = append(r.Hosts, fmt.Sprint("host", i))
	}
	return r
}

func (j job) Ranks() (ranks []jobs.RankStatus) {
	for i := range j.hosts {
		ranks = append(ranks, jobs.RankStatus{Rank: i, Host: fmt.Sprint("host", i), PID: 100 + i, State: "runs", CPUMS: 1500, RSS: 4096, Processes: 2, Arena: 64,
			Split: &wire.Split{Elapsed: 10e6, Steps: 4, Step: 2e6, Data: 3e6, Others: 1e6, Communication: 2e6, Hidden: 5e5, Operations: 40}})
	}
	return ranks
}

// Hosts have as many links as are reported at most, and the operations of a training.
func (j job) Hosts() (all []jobs.HostStatus) {
	for i := range j.hosts {
		h := jobs.HostStatus{Name: fmt.Sprint("host", i), Epoch: 3, Open: 2, Results: 8192, Links: wire.Links{SentBytes: 1 << 30, RDMABytes: 1 << 29, RDMAFailures: 3, ResentBytes: 5, ResentSegments: 1, Renewed: 2, Damaged: 1}}
		for to := range min(j.hosts-1, 3) {
			h.Each = append(h.Each, jobs.LinkStatus{To: fmt.Sprint("host", (i+1+to)%j.hosts), Queued: 8, Links: wire.Links{SentBytes: 1 << 20, RDMABytes: 1 << 19, ResentSegments: 6, BusyUS: 5e5}})
		}
		for _, kind := range []string{"allreduce", "broadcast", "barrier"} {
			h.Operations = append(h.Operations, wire.OperationUsage{Kind: kind, Ended: 9, Failed: 1, Bytes: 10, Waiting: 2e6, Running: 3e6})
		}
		all = append(all, h)
	}
	return all
}

func (j job) State() jobs.State {
	return jobs.State{Record: j.Record(), Ranks: j.Ranks(), Hosts: j.Hosts(), Counted: map[string]int{"stall": 4, "moved": 1}}
}

func serve(t *testing.T, j job) string {
	t.Helper()
	s, err := metrics.Serve(":0", "1.2.3", j.State)
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, s.Close()) })
	if !strings.HasPrefix(s.Address(), "127.0.0.1:") && !strings.HasPrefix(s.Address(), "[::1]:") {
		t.Errorf("without a host it listens at %s", s.Address())
	}
	return "http://" + s.Address()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	must.Do(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	must.Do(t, err)
	return r.StatusCode, string(b)
}

func TestScrape(t *testing.T) {
	at := serve(t, job{2})
	code, text := get(t, at+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d\n%s", code, text)
	}
	for _, want := range []string{
		`gorun_info{job="7",program="python3 train.py`,
		`gorun_job_epoch{job="7"} 3`,
		`gorun_rank_steps_total{host="host1",job="7",rank="1"} 4`,
		`gorun_rank_time_seconds_total{activity="computing",host="host0",job="7",rank="0"} 4`,
		`gorun_rank_time_seconds_total{activity="data",host="host0",job="7",rank="0"} 3`,
		`gorun_rank_time_seconds_total{activity="communication",host="host0",job="7",rank="0"} 2`,
		`gorun_rank_time_seconds_total{activity="others",host="host0",job="7",rank="0"} 1`,
		`gorun_rank_hidden_communication_seconds_total{host="host0",job="7",rank="0"} 0.5`,
		`gorun_host_sent_bytes_total{host="host0",job="7"} 1.073741824e+09`,
		`gorun_host_rdma_bytes_total{host="host0",job="7"} 5.36870912e+08`,
		`gorun_host_rdma_failures_total{host="host0",job="7"} 3`,
		`gorun_host_silent_seconds{host="host0",job="7"} 0`,
		`gorun_job_events_total{event="stall",job="7"} 4`,
		`gorun_job_events_total{event="move",job="7"} 0`,
		`gorun_rank_arena_bytes{host="host1",job="7",rank="1"} 64`,
		`gorun_host_result_bytes{host="host0",job="7"} 8192`,
		`gorun_host_open_operations{host="host0",job="7"} 2`,
		`gorun_host_failed_operations_total{host="host0",job="7"} 3`,
		`gorun_host_operations_total{host="host0",job="7",kind="allreduce"} 9`,
		`gorun_host_operation_bytes_total{host="host0",job="7",kind="allreduce"} 10`,
		`gorun_host_operation_wait_seconds_total{host="host0",job="7",kind="barrier"} 2`,
		`gorun_host_operation_run_seconds_total{host="host0",job="7",kind="barrier"} 3`,
		`gorun_link_sent_bytes_total{host="host0",job="7",to="host1",transport="tcp"} 524288`,
		`gorun_link_sent_bytes_total{host="host0",job="7",to="host1",transport="rdma"} 524288`,
		`gorun_link_resent_segments_total{host="host1",job="7",to="host0"} 6`,
		`gorun_link_network_busy_seconds_total{host="host0",job="7",to="host1"} 0.5`,
		`gorun_link_queued_segments{host="host0",job="7",to="host1"} 8`,
		`gorun_host_silent_seconds{host="host1",job="7"} 3.`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("an escape sequence passes")
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	must.Do(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if code, _ := get(t, at+"/"); code != http.StatusNotFound {
		t.Errorf("the root has status %d", code)
	}
}

func TestMistakes(t *testing.T) {
	for _, address := range []string{"9400", "host:port:port", "127.0.0.1:99999"} {
		if s, err := metrics.Serve(address, "1", job{1}.State); err == nil {
			s.Close()
			t.Errorf("%s was taken", address)
		}
	}
}

// TestHostileName: a page of another site, whose name leads here, reads nothing.
func TestHostileName(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), "GET", serve(t, job{1})+"/metrics", nil)
	must.Do(t, err)
	r.Host = "evil.example"
	answer, err := http.DefaultClient.Do(r)
	must.Do(t, err)
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); answer.StatusCode != http.StatusMisdirectedRequest || err != nil || strings.Contains(string(text), "gorun_") {
		t.Errorf("%s, %v\n%s", answer.Status, err, text)
	}
}
