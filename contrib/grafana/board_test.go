package grafana

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	source "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// board is the part of a board that these tests read.
type board struct {
	Panels []struct {
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Targets     []target
		Options     struct{ TextMode string }
		FieldConfig struct {
			Defaults struct {
				Unit   string
				Custom struct{ Stacking struct{ Mode string } }
			}
		}
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Annotations struct{ List []struct{ Expr string } }
}

// target is a query of a panel.
type target struct {
	Expr, LegendFormat string
	Instant            bool
}

func readBoard(t *testing.T, name string) (b board, text []byte) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if len(b.Panels) == 0 {
		t.Fatal("a board without panels")
	}
	return b, text
}

// TestSchema: Grafana's schema has every field of the boards, and panels do not lie on each other.
func TestSchema(t *testing.T) {
	for _, name := range []string{"gorun.json", "cluster.json"} {
		t.Run(name, func(t *testing.T) { checkSchema(t, name) })
	}
}

func checkSchema(t *testing.T, name string) {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterPanelcfgVariant(barchart.VariantConfig())
	runtime.RegisterDataqueryVariant(source.VariantConfig())
	b, text := readBoard(t, name)
	var d dashboard.Dashboard
	var refused cog.BuildErrors // is empty where there is none
	if err := d.UnmarshalJSONStrict(text); err != nil && (!errors.As(err, &refused) || len(refused) > 0) {
		t.Errorf("the schema refuses it: %v", err)
	}
	if err := d.Validate(); err != nil {
		t.Errorf("not valid: %v", err)
	}
	if d.Uid == nil || *d.Uid == "" || d.Id != nil || d.SchemaVersion < 36 {
		t.Errorf("uid %v, id %v, schema %d: an import needs the first, no second, and data sources by uid", d.Uid, d.Id, d.SchemaVersion)
	}
	if n := strings.Count(string(text), `"uid":`); n != 1+strings.Count(string(text), `"uid": "${datasource}"`) {
		t.Error("a data source is not the variable's")
	}
	for i, p := range b.Panels {
		at := p.GridPos
		if at.X+at.W > 24 {
			t.Errorf("%s is wider than the board", p.Title)
		}
		for _, q := range b.Panels[:i] {
			if o := q.GridPos; at.X < o.X+o.W && o.X < at.X+at.W && at.Y < o.Y+o.H && o.Y < at.Y+at.H {
				t.Errorf("%s lies on %s", p.Title, q.Title)
			}
		}
	}
}

// TestBoard: on what a job serves, each query has an answer of numbers, and each metric of gorun is shown.
func TestBoard(t *testing.T) {
	job := recordJob(t)
	ask := checkBoard(t, "gorun.json", job, "$instance", "login1:9400", "$job", "1")
	job.checkShares(t, ask)
}

// TestClusterBoard does the same with what a resident daemon serves.
func TestClusterBoard(t *testing.T) {
	daemon := recordCluster(t)
	ask := checkBoard(t, "cluster.json", daemon, "$cluster", "gorun-daemons")
	if got := last(ask("gorun_cluster_running_jobs", true)); got != 1.0 {
		t.Errorf("%v jobs have slots, want 1", got)
	}
}

type asker func(expr string, instant bool) promql.Matrix

// checkBoard checks a board by a recording, and returns what asks that.
func checkBoard(t *testing.T, name string, job *recording, variables ...string) asker {
	t.Helper()
	b, text := readBoard(t, name)
	fill := strings.NewReplacer(append(variables, "$__rate_interval", "5s")...)
	ask := job.asker(t)
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			expr := fill.Replace(target.Expr)
			answer := ask(expr, target.Instant)
			if len(answer) == 0 {
				t.Errorf("%s has no data: %s", p.Title, expr)
			}
			for _, series := range answer {
				if i := slices.IndexFunc(series.Floats, func(p promql.FPoint) bool { return math.IsNaN(p.F) || math.IsInf(p.F, 0) }); i >= 0 {
					t.Errorf("%s: %s is %v", p.Title, series.Metric, series.Floats[i].F)
				}
			}
			t.Logf("%s: %d series, the first ends with %v", p.Title, len(answer), last(answer))
		}
	}
	variable := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range b.Templating.List {
		if v.Name == "datasource" {
			continue
		}
		m := variable.FindStringSubmatch(fill.Replace(v.Definition))
		if m == nil {
			t.Fatalf("variable %s is %q", v.Name, v.Definition)
		}
		if got := ask("group by ("+m[2]+") ("+m[1]+")", true); len(got) != 1 || got[0].Metric.Get(m[2]) == "" {
			t.Errorf("variable %s has the values %v", v.Name, got)
		}
	}
	for _, a := range b.Annotations.List {
		ask(fill.Replace(a.Expr), true)
	}
	for name := range job.names {
		if !regexp.MustCompile(`\b` + name + `\b`).Match(text) {
			t.Errorf("no panel shows %s", name)
		}
	}
	return ask
}

// asker returns what asks a recording.
func (r *recording) asker(t *testing.T) asker {
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1e6)
	return func(expr string, instant bool) promql.Matrix {
		t.Helper()
		from := r.from.Add(2 * time.Second)
		if instant {
			from = r.to
		}
		q, err := engine.NewRangeQuery(t.Context(), r.db, nil, expr, from, r.to, time.Second)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		defer q.Close()
		m, err := q.Exec(t.Context()).Matrix()
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		for i := range m { // the answer outlives its query
			m[i].Floats = slices.Clone(m[i].Floats)
		}
		return slices.Clone(m)
	}
}

// checkShares holds the time of each rank against the clock: its parts are all of it, and no counter went back.
func (r *recording) checkShares(t *testing.T, ask asker) {
	t.Helper()
	whole := ask(`sum by (rank) (rate(gorun_rank_time_seconds_total[5s]))`, true)
	if len(whole) != 2 {
		t.Fatalf("%d ranks have times, want 2", len(whole))
	}
	for _, rank := range whole {
		if got := rank.Floats[0].F; got < 0.8 || got > 1.2 {
			t.Errorf("rank %s spends %.2f s of a second", rank.Metric.Get("rank"), got)
		}
	}
	for _, back := range ask(`{__name__=~"gorun_.*_total"} and resets({__name__=~"gorun_.*_total"}[1m]) > 0`, true) {
		t.Errorf("%s went back", back.Metric)
	}
}

func last(m promql.Matrix) any {
	if len(m) == 0 || len(m[0].Floats) == 0 {
		return "nothing"
	}
	return m[0].Floats[len(m[0].Floats)-1].F
}
