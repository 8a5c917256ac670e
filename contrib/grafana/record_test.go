package grafana

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
)

const (
	scrapes        = 20
	scrapeInterval = 500 * time.Millisecond
	patience       = 30 * time.Second // until the job serves what is asked for
)

// train is a program whose ranks load, compute, wait for each other, and count.
const train = `
import time

import gorun
from gorun import basics
from gorun.constants import BARRIER

basics.init()
world = basics.world()


def batches():
    for i in range(100000):
        time.sleep(0.01)
        yield i


for batch in gorun.loading(batches()):
    time.sleep(0.01 * (1 + basics.rank()))
    world.session.wait(world.session.submit(BARRIER, f"barrier {batch % 8}", 0, (), None, None))
    gorun.step()
`

// recording is what Prometheus knows of a job after some scrapes.
type recording struct {
	db       *teststorage.TestStorage
	from, to time.Time
	names    map[string]bool // of metrics
}

// recordJob runs a job of two ranks until it has been scraped many times.
func recordJob(t *testing.T) *recording {
	t.Helper()
	binary := os.Getenv("GORUN_E2E_BINARY")
	if binary == "" {
		binary = "../../bin/gorun"
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-np", "2", "--metrics", ":0", "python3", "-c", train)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its ranks
	cmd.WaitDelay = 10 * time.Second
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; make build makes it", err)
	}
	var reader sync.WaitGroup
	defer func() { cancel(); reader.Wait(); cmd.Wait() }()
	address := make(chan string, 1)
	reader.Go(func() { findAddress(said, address) })
	var url string
	select {
	case url = <-address:
	case <-time.After(patience):
	}
	if url == "" {
		t.Fatal("gorun did not report where its metrics are")
	}
	r := &recording{db: teststorage.New(t), names: map[string]bool{}}
	r.awaitSteps(t, url)
	for i := range scrapes {
		if i > 0 {
			time.Sleep(scrapeInterval)
		}
		r.to = time.Now()
		if i == 0 {
			r.from = r.to
		}
		if err := r.scrape(url); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// findAddress reads what gorun says, all of it, and sends the address of its metrics.
func findAddress(from io.Reader, address chan<- string) {
	line := regexp.MustCompile(`^gorun: metrics are at (http://\S+)$`)
	for s := bufio.NewScanner(from); s.Scan(); {
		if m := line.FindStringSubmatch(s.Text()); m != nil {
			address <- m[1]
		}
	}
}

// awaitSteps waits until both ranks count steps.
func (r *recording) awaitSteps(t *testing.T, url string) {
	t.Helper()
	counts := regexp.MustCompile(`(?m)^gorun_rank_steps_total\{.*rank="1"\} [1-9]`)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if body, _, err := get(url); err == nil && counts.Match(body) {
			return
		}
	}
	t.Fatal("the ranks count no steps")
}

func get(url string) (body []byte, contentType string, err error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("get %s: %s", url, answer.Status)
	}
	body, err = io.ReadAll(answer.Body)
	return body, answer.Header.Get("Content-Type"), err
}

// scrape stores one answer under its time, with the labels that Prometheus gives it by prometheus.yaml.
func (r *recording) scrape(url string) error {
	body, contentType, err := get(url)
	if err != nil {
		return err
	}
	p, err := textparse.New(body, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return fmt.Errorf("parse metrics: %w", err)
	}
	app := r.db.AppenderV2(context.Background())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return app.Commit()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("parse metrics: %w", err), app.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		p.Labels(&series)
		r.names[series.Get(labels.MetricName)] = true
		_, _, value := p.Series()
		series = labels.NewBuilder(series).Set(model.InstanceLabel, "login1:9400").Labels()
		if _, err := app.Append(0, series, 0, r.to.UnixMilli(), value, nil, nil, storage.AppendV2Options{}); err != nil {
			return errors.Join(fmt.Errorf("store %s: %w", series, err), app.Rollback())
		}
	}
}
