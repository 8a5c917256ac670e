package grafana

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const evaluation = 15 * time.Second

var indent = regexp.MustCompile(`\n\s+`)

type alertTest struct {
	alert       string
	series      string
	quiet       []time.Duration // it does not fire
	fires       []time.Duration
	summary     string // of the alert that fires
	description string // "": any
}

// alertTests are series, in the notation of promtool, a sample each 15 s; and when alerts fire because of them.
var alertTests = []alertTest{
	{
		alert: "GorunHostSilent",
		// Silent from 1 min to 2 min.
		series: `gorun_host_silent_seconds{instance="l",job="1",host="host1"} 0x3 10 25 40 55 0x20
		         gorun_host_silent_seconds{instance="l",job="1",host="host2"} 0x30`,
		quiet: []time.Duration{0, 75 * time.Second, 2 * time.Minute, 5 * time.Minute}, fires: []time.Duration{90 * time.Second},
		summary: "host1 is silent for 40s",
	},
	{
		alert: "GorunNoStep",
		// A step each 15 s for 10 min, none for 20 min, then steps again; another job never counts.
		series: `gorun_rank_steps_total{instance="l",job="1",host="host1",rank="0"} 1+1x40 41x80 42+1x40
		         gorun_rank_steps_total{instance="l",job="1",host="host2",rank="1"} 1+1x40 41x80 42+1x40
		         gorun_rank_steps_total{instance="k",job="1",host="host3",rank="0"} 0x160`,
		quiet: []time.Duration{0, 10 * time.Minute, 19 * time.Minute, 31 * time.Minute, 40 * time.Minute}, fires: []time.Duration{21 * time.Minute, 29 * time.Minute},
		summary: "job 1 has made no step for 10 minutes",
	},
	{
		alert: "GorunStalled",
		// Reported at 5 min and at 6 min; a move does not count.
		series: `gorun_job_events_total{instance="l",job="1",event="stall"} 0x19 1x3 2x100
		         gorun_job_events_total{instance="l",job="1",event="move"} 0x19 1x100`,
		quiet: []time.Duration{0, 4 * time.Minute, 12 * time.Minute, 20 * time.Minute}, fires: []time.Duration{6 * time.Minute, 10 * time.Minute},
		summary: "ranks of job 1 wait in an operation that others have not called",
	},
	{
		alert: "GorunWaitsForData",
		// 6 s of 15 s for half an hour, then 3 s; the other rank always 4 s.
		series: `gorun_rank_time_seconds_total{instance="l",job="1",host="host1",rank="0",activity="data"} 0+6x120 723+3x80
		         gorun_rank_time_seconds_total{instance="l",job="1",host="host2",rank="1",activity="data"} 0+4x200
		         gorun_rank_time_seconds_total{instance="l",job="1",host="host2",rank="1",activity="computing"} 0+11x200`,
		quiet: []time.Duration{0, 9 * time.Minute, 36 * time.Minute, 45 * time.Minute}, fires: []time.Duration{15 * time.Minute, 30 * time.Minute},
		summary: "ranks on host1 wait for data, up to 40% of their time",
	},
	{
		alert: "GorunStraggler",
		series: `gorun_rank_time_seconds_total{instance="l",job="1",host="host1",rank="0",activity="others"} 0+9x120 1083+3x80
		         gorun_rank_time_seconds_total{instance="l",job="1",host="host2",rank="1",activity="others"} 0+1x200
		         gorun_rank_time_seconds_total{instance="k",job="1",host="host9",rank="0",activity="others"} 0+0x200`,
		quiet: []time.Duration{0, 9 * time.Minute, 36 * time.Minute, 45 * time.Minute}, fires: []time.Duration{15 * time.Minute, 30 * time.Minute},
		summary:     "ranks of job 1 wait for others, up to 60% of their time",
		description: "They wait for rank 1 on host2, which is slower or has more to do.",
	},
	{
		alert: "GorunSendsAgain",
		// 2 % from 5 min to 15 min; the other host sends nothing, as on one machine.
		series: `gorun_host_sent_bytes_total{instance="l",job="1",host="host1"} 0+1000x120
		         gorun_host_resent_bytes_total{instance="l",job="1",host="host1"} 0x20 20+20x40 800x60
		         gorun_host_sent_bytes_total{instance="l",job="1",host="host2"} 0x120
		         gorun_host_resent_bytes_total{instance="l",job="1",host="host2"} 0x120
		         gorun_link_resent_segments_total{instance="l",job="1",host="host1",to="host2"} 0+1x120
		         gorun_link_resent_segments_total{instance="l",job="1",host="host1",to="host3"} 0+2x120
		         gorun_link_resent_segments_total{instance="l",job="1",host="host2",to="host1"} 0+9x120`,
		quiet: []time.Duration{0, 5 * time.Minute, 9 * time.Minute, 21 * time.Minute, 30 * time.Minute}, fires: []time.Duration{14 * time.Minute, 15 * time.Minute},
		summary:     "host1 sends 2% of its data again",
		description: "Its connections fail or lose data, most on the way to host3: look at cables, NICs and switches.",
	},
	{
		alert: "GorunConnectionsRenewed",
		// One of host1 is renewed each 2 min for half an hour; all of host2 once.
		series: `gorun_host_renewed_streams_total{instance="l",job="1",host="host1"} 0x7 1x7 2x7 3x7 4x7 5x7 6x7 7x7 8x7 9x7 10x7 11x7 12x7 13x7 14x7 15x80
		         gorun_host_renewed_streams_total{instance="l",job="1",host="host2"} 0x7 4x200`,
		quiet: []time.Duration{0, 10 * time.Minute, 40 * time.Minute, 48 * time.Minute}, fires: []time.Duration{20 * time.Minute, 30 * time.Minute},
		summary: "host1 renews connections to other hosts again and again",
	},
}

// TestAlerts: each rule fires for what it is there for, once, with its text, and ends with it.
func TestAlerts(t *testing.T) {
	tested := map[string]bool{}
	for _, test := range alertTests {
		tested[test.alert] = true
		t.Run(test.alert, func(t *testing.T) {
			db := promqltest.LoadedStorage(t, "load 15s\n  "+indent.ReplaceAllString(test.series, "\n  "))
			engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1e6)
			groups := load(t, rules.NewManager(&rules.ManagerOptions{
				Context: t.Context(), Logger: promslog.NewNopLogger(), Parser: parser.NewParser(parser.Options{}),
				QueryFunc: rules.EngineQueryFunc(engine, db), AppendableV2: db, Queryable: db,
				NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
			}))
			end := slices.Max(slices.Concat(test.quiet, test.fires))
			for after := time.Duration(0); after <= end; after += evaluation {
				var firing []*rules.Alert
				for _, g := range groups {
					g.Eval(t.Context(), time.Unix(0, 0).Add(after))
					firing = append(firing, firingIn(t, g)...)
				}
				switch {
				case slices.Contains(test.quiet, after) && len(firing) > 0:
					t.Errorf("%v: %v fires", after, firing[0].Labels)
				case slices.Contains(test.fires, after):
					test.check(t, after, firing)
				}
			}
		})
	}
	for _, g := range load(t, rules.NewManager(&rules.ManagerOptions{Context: t.Context(), Logger: promslog.NewNopLogger(),
		Parser: parser.NewParser(parser.Options{})})) {
		for _, r := range g.Rules() {
			if !tested[r.Name()] {
				t.Errorf("no test of %s", r.Name())
			}
		}
	}
}

// check compares what fires with what the test expects.
func (a *alertTest) check(t *testing.T, after time.Duration, firing []*rules.Alert) {
	t.Helper()
	if len(firing) != 1 {
		t.Fatalf("%v: %d alerts fire, want 1", after, len(firing))
	}
	got := firing[0]
	if name := got.Labels.Get(labels.AlertName); name != a.alert || got.Labels.Get("severity") == "" {
		t.Errorf("%v: %s fires, want %s with a severity", after, got.Labels, a.alert)
	}
	if summary := got.Annotations.Get("summary"); summary != a.summary {
		t.Errorf("%v: summary %q, want %q", after, summary, a.summary)
	}
	if description := got.Annotations.Get("description"); description == "" || a.description != "" && description != a.description {
		t.Errorf("%v: description %q, want %q", after, description, a.description)
	}
}

// load reads the rules as a server does.
func load(t *testing.T, m *rules.Manager) []*rules.Group {
	t.Helper()
	groups, errs := m.LoadGroups(evaluation, labels.EmptyLabels(), "", nil, false, "alerts.yaml")
	for _, err := range errs {
		t.Error(err)
	}
	if len(groups) == 0 {
		t.Fatal("no rules")
	}
	return slices.Collect(maps.Values(groups))
}

func firingIn(t *testing.T, g *rules.Group) (firing []*rules.Alert) {
	t.Helper()
	for _, r := range g.AlertingRules() {
		r.SetRestored(true) // it has no history to wait for
		if err := r.LastError(); err != nil {
			t.Fatalf("%s: %v", r.Name(), err)
		}
		for _, a := range r.ActiveAlerts() {
			if a.State == rules.StateFiring {
				firing = append(firing, a)
			}
		}
	}
	return firing
}

// TestConfiguration: Prometheus takes the configuration that users copy, and keeps the numbers of jobs.
func TestConfiguration(t *testing.T) {
	c, err := config.LoadFile("prometheus.yaml", false, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.ScrapeConfigs) != 2 || !c.ScrapeConfigs[0].HonorLabels || !c.ScrapeConfigs[1].HonorLabels {
		t.Error("without honor_labels each metric has the name of the configuration in place of its job")
	}
	if len(c.RuleFiles) != 1 || !strings.HasSuffix(c.RuleFiles[0], "alerts.yaml") {
		t.Errorf("it has the rules %q", c.RuleFiles)
	}
}
