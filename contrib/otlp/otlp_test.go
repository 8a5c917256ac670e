package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// served is what a job serves, shortened.
const served = `# HELP gorun_job_ranks Ranks of the job's world.
# TYPE gorun_job_ranks gauge
gorun_job_ranks{job="7"} 2
# HELP gorun_host_sent_bytes_total Bytes that the host has sent to others, without what was sent again.
# TYPE gorun_host_sent_bytes_total counter
gorun_host_sent_bytes_total{host="host1",job="7"} 1.073741824e+09
gorun_host_sent_bytes_total{host="host2",job="7"} 5
`

// receiver is a receiver of OTLP that delivers what it was sent.
func receiver(t *testing.T, status *atomic.Int32) (url string, received <-chan *collector.ExportMetricsServiceRequest) {
	t.Helper()
	all := make(chan *collector.ExportMetricsServiceRequest, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/metrics" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s, %s, %v", r.URL, r.Header, err)
		}
		if code := status.Load(); code != 0 {
			w.WriteHeader(int(code))
			return
		}
		request := new(collector.ExportMetricsServiceRequest)
		if err := proto.Unmarshal(body, request); err != nil {
			t.Error(err)
		}
		select {
		case all <- request:
		default:
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1/metrics", all
}

// described returns the points of a request, one a line.
func described(r *collector.ExportMetricsServiceRequest) string {
	var b strings.Builder
	for _, of := range r.ResourceMetrics {
		for _, a := range of.Resource.Attributes {
			fmt.Fprintf(&b, "%s=%s\n", a.Key, a.Value.GetStringValue())
		}
		for _, scope := range of.ScopeMetrics {
			for _, m := range scope.Metrics {
				points, kind := m.GetGauge().GetDataPoints(), "gauge"
				if s := m.GetSum(); s != nil {
					points, kind = s.DataPoints, fmt.Sprintf("sum %v %v", s.IsMonotonic, s.AggregationTemporality == metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE)
				}
				for _, p := range points {
					fmt.Fprintf(&b, "%s %s", m.Name, kind)
					for _, a := range p.Attributes {
						fmt.Fprintf(&b, " %s=%s", a.Key, a.Value.GetStringValue())
					}
					fmt.Fprintf(&b, " %v\n", p.GetAsDouble())
				}
			}
		}
	}
	return b.String()
}

func TestPush(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=vision")
	job := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		io.WriteString(w, served)
	}))
	defer job.Close()
	var status atomic.Int32
	status.Store(http.StatusBadRequest) // a receiver that refuses is asked again
	to, received := receiver(t, &status)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	var errs safe
	go func() { ended <- run(ctx, []string{"-interval", "10ms", job.URL, to}, &errs) }()
	for !strings.Contains(errs.String(), "warning") {
	}
	status.Store(0)
	got := described(<-received)
	for _, want := range []string{
		"service.name=gorun\n", "team=vision\n", "gorun_job_ranks gauge job=7 2\n",
		"gorun_host_sent_bytes_total sum true true host=host1 job=7 1.073741824e+09\n", "gorun_host_sent_bytes_total sum true true host=host2 job=7 5\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestEnd: what has changed when it is to end is pushed.
func TestEnd(t *testing.T) {
	var ranks atomic.Int32
	job := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintf(w, "# TYPE gorun_job_ranks gauge\ngorun_job_ranks %d\n", ranks.Load())
	}))
	defer job.Close()
	to, received := receiver(t, new(atomic.Int32))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-interval", "1h", job.URL, to}, io.Discard) }()
	<-received
	ranks.Store(5)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := described(<-received); !strings.Contains(got, "gorun_job_ranks gauge 5\n") {
		t.Errorf("the last push has\n%s", got)
	}
}

// TestGone: it ends when what it reads from has ended.
func TestGone(t *testing.T) {
	var status atomic.Int32
	to, _ := receiver(t, &status)
	for name, handler := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"no text":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") },
	} {
		s := httptest.NewServer(handler)
		if err := run(t.Context(), []string{"-interval", "1ms", s.URL, to}, io.Discard); err == nil || !strings.Contains(err.Error(), "read metrics: ") {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
		if err := run(t.Context(), []string{"-interval", "1ms", s.URL, to}, io.Discard); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("closed: %v", err)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range []string{"", "http://a", "http://a http://b c", "-interval 0s http://a http://b", "-x", "-interval x http://a http://b"} {
		if err := run(t.Context(), strings.Fields(args), io.Discard); err != errUsage {
			t.Errorf("%s: %v", args, err)
		}
	}
	var help bytes.Buffer
	if err := run(t.Context(), []string{"-help"}, &help); err != nil || help.String() != usage {
		t.Errorf("%v\n%s", err, &help)
	}
}
