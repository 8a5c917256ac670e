// Command gorun-otlp pushes the metrics of gorun to a receiver of OpenTelemetry.
//
//	gorun --metrics :9400 … & gorun-otlp http://localhost:9400/metrics http://collector:4318/v1/metrics
//
// It reads what gorun serves for Prometheus and sends it by OTLP over HTTP, until FROM is gone. On TERM it pushes once
// more, within four seconds, and ends. gorun --otlp TO starts it for a job. It reads OpenTelemetry's variables, such as
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

const (
	usage = "usage: gorun-otlp [-interval 10s] FROM TO\n\n" +
		"  FROM   where gorun serves metrics, as in http://localhost:9400/metrics\n" +
		"  TO     where OpenTelemetry takes them, as in http://collector:4318/v1/metrics\n"
	// maxText bounds what is read from gorun.
	maxText = 64 << 20
	// maxFailures is after how many failures in a row FROM counts as gone.
	maxFailures = 3
	readTimeout = 10 * time.Second
	// lastPush bounds the push after TERM. gorun waits for a little longer.
	lastPush = 4 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "gorun-otlp: error: %v\n", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("see gorun-otlp -help")

// run is the program.
func run(ctx context.Context, args []string, errs io.Writer) error {
	flags := flag.NewFlagSet("gorun-otlp", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() { fmt.Fprint(errs, usage) }
	interval := flags.Duration("interval", 10*time.Second, "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return errUsage
	}
	if flags.NArg() != 2 || *interval <= 0 {
		return errUsage
	}
	to, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(flags.Arg(1)))
	if err != nil {
		return fmt.Errorf("send to %s: %w", flags.Arg(1), err)
	}
	defer to.Shutdown(context.WithoutCancel(ctx))
	return push(ctx, &source{url: flags.Arg(0)}, to, *interval, errs)
}

// push sends the metrics of a source at intervals, until the source is gone. The receiver may be away for a while.
func push(ctx context.Context, from *source, to metric.Exporter, interval time.Duration, errs io.Writer) error {
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "gorun")), resource.WithFromEnv())
	if err != nil {
		return fmt.Errorf("describe the source: %w", err)
	}
	reader := metric.NewManualReader(metric.WithProducer(prometheus.NewMetricProducer(prometheus.WithGatherer(from))))
	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(about))
	defer provider.Shutdown(context.WithoutCancel(ctx))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastPush, cancel) })()
	failures := 0
	for last := false; ; {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(work, &all); err != nil || from.failed() != nil {
			if failures++; failures == maxFailures {
				return errors.Join(err, from.failed())
			}
		} else {
			failures = 0
			if err := to.Export(work, &all); err != nil {
				fmt.Fprintf(errs, "gorun-otlp: warning: %v\n", err)
			}
		}
		if last {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done(): // what has changed since then is pushed, too
			last = true
		}
	}
}

// source is what gorun serves for Prometheus.
type source struct {
	url string

	mu  sync.Mutex
	err error // of the last Gather
}

func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Gather implements prometheus.Gatherer.
func (s *source) Gather() ([]*dto.MetricFamily, error) {
	all, err := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return all, err
}

func (s *source) read() ([]*dto.MetricFamily, error) {
	client := http.Client{Timeout: readTimeout, Transport: &http.Transport{DisableKeepAlives: true}} // not by a proxy: gorun is near
	answer, err := client.Get(s.url)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: %s answers %s", s.url, answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(answer.Body, maxText))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	var all []*dto.MetricFamily
	for _, f := range families {
		all = append(all, f)
	}
	return all, nil
}
