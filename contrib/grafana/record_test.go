package grafana

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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

// train is a program whose ranks load, compute, reduce a gradient, wait for each other, and count.
const train = `
import time

import gorun
from gorun import basics
from gorun.constants import ALLREDUCE, BARRIER, FLOAT32

basics.init()
world = basics.world()
gradient = world.session.alloc(1 << 20)


def batches():
    for i in range(100000):
        time.sleep(0.01)
        yield i


for batch in gorun.loading(batches()):
    time.sleep(0.01 * (1 + basics.rank()))
    world.session.wait(world.session.submit(ALLREDUCE, f"gradient {batch % 8}", FLOAT32, (1 << 18,), gradient, gradient))
    world.session.wait(world.session.submit(BARRIER, f"barrier {batch % 8}", 0, (), None, None))
    gorun.step()
`

// recording is what Prometheus knows of a job after some scrapes.
type recording struct {
	db       *teststorage.TestStorage
	from, to time.Time
	names    map[string]bool // of metrics
}

// recordJob records a job of two ranks that count steps, each on a host of its own: both are this machine.
func recordJob(t *testing.T) *recording {
	return record(t, `^gorun: metrics are at (http://\S+)$`, `(?m)^gorun_rank_steps_total\{.*rank="1"\} [1-9]`, nil,
		"-H", "host1:1,host2:1", "--launcher", "env AT={host} {program}", "-np", "2", "--metrics", ":0", "python3", "-c", train)
}

// recordCluster records a resident daemon with a job that has its slots, and one that waits for them.
func recordCluster(t *testing.T) *recording {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("6f1f900a73197ef609d212fdad3ab7c39b97936695744f2c1a23f3475c85a0c7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := freeAddress(t)
	job := []string{"--cluster", at, "--cluster-key-file", key, "-np", "2", "sleep", "1000"}
	return record(t, `msg="serves metrics" at=(\S+)`, `(?m)^gorun_cluster_waiting_jobs 1`, [][]string{job, job},
		"worker", "--cluster-key-file", key, "--listen", at, "--name", "host1", "--slots", "2", "--metrics", "127.0.0.1:0", "--allow-root")
}

// freeAddress returns an address whose port is free, as is the next one, at which the daemon gossips.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		next, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1)))
		l.Close()
		if err == nil {
			next.Close()
			return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
	}
	t.Fatal("no two ports are free")
	return ""
}

// record runs gorun and scrapes it many times. It begins once gorun has printed its address, the commands beside it run, and the
// metrics contain a line that says they are ready.
func record(t *testing.T, told, ready string, beside [][]string, args ...string) *recording {
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
	state := t.TempDir()
	run := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its ranks
		cmd.WaitDelay = 10 * time.Second
		return cmd
	}
	cmd := run(args...)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; make build makes it", err)
	}
	var others sync.WaitGroup
	defer func() { cancel(); others.Wait(); cmd.Wait() }()
	address := make(chan string, 1)
	others.Go(func() { // reads all that gorun says
		for s := bufio.NewScanner(said); s.Scan(); {
			if m := regexp.MustCompile(told).FindStringSubmatch(s.Text()); m != nil {
				address <- m[1]
			}
		}
	})
	var url string
	select {
	case url = <-address:
	case <-time.After(patience):
	}
	if url == "" {
		t.Fatal("gorun did not report where its metrics are")
	}
	if !strings.HasPrefix(url, "http://") {
		url = "http://" + url + "/metrics"
	}
	for _, args := range beside {
		others.Go(func() { run(args...).Run() }) // is ended
	}
	r := &recording{db: teststorage.New(t), names: map[string]bool{}}
	await(t, url, regexp.MustCompile(ready))
	for i := range scrapes {
		if i > 0 {
			time.Sleep(scrapeInterval)
		}
		r.to = time.Now()
		if i == 0 {
			r.from = r.to
		}
		body, contentType, err := get(url)
		if err == nil {
			err = r.store(body, contentType)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// await waits until what is served has a line.
func await(t *testing.T, url string, line *regexp.Regexp) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if body, _, err := get(url); err == nil && line.Match(body) {
			return
		}
	}
	t.Fatalf("%s serves no %v", url, line)
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

// store stores what was served at time to, with the labels that Prometheus gives it by prometheus.yaml.
func (r *recording) store(body []byte, contentType string) error {
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
		with := labels.NewBuilder(series).Set(model.InstanceLabel, "login1:9400")
		if series.Get(model.JobLabel) == "" {
			with.Set(model.JobLabel, "gorun-daemons")
		}
		series = with.Labels()
		if _, err := app.Append(0, series, 0, r.to.UnixMilli(), value, nil, nil, storage.AppendV2Options{}); err != nil {
			return errors.Join(fmt.Errorf("store %s: %w", series, err), app.Rollback())
		}
	}
}
