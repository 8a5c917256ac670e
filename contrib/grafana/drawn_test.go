//go:build picture

package grafana

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/teststorage"
)

// TestDraw draws the board of a job whose metrics lie in files of a directory, GORUN_SCRAPES, each named by its time in
// milliseconds, into the file GORUN_PICTURE.
func TestDraw(t *testing.T) {
	dir := os.Getenv("GORUN_SCRAPES")
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scrapes in %q: %v", dir, err)
	}
	slices.Sort(files)
	r := &recording{db: teststorage.New(t), names: map[string]bool{}}
	for _, file := range files {
		ms, err := strconv.ParseInt(filepath.Base(file), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if r.to = time.UnixMilli(ms); r.from.IsZero() {
			r.from = r.to
		}
		if err := r.store(body, "text/plain"); err != nil {
			t.Fatal(err)
		}
	}
	b, _ := readBoard(t, "gorun.json")
	ask := r.asker(t)
	job := ask("gorun_info", true)[0].Metric.Get("job")
	fill := strings.NewReplacer("$instance", "login1:9400", "$job", job, "$__rate_interval", "5s")
	svg := b.draw(r.from, r.to, func(target target) promql.Matrix { return ask(fill.Replace(target.Expr), target.Instant) })
	if err := os.WriteFile(os.Getenv("GORUN_PICTURE"), []byte(svg), 0o644); err != nil {
		t.Fatal(err)
	}
}
