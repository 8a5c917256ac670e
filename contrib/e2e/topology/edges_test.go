package topology

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// A job measures by its own traffic how fast the edges of its ring are; it reports what it found, and saves it for the
// next one, whose ring avoids a slow edge.
func TestJobMeasuresItsWays(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	const fast, slow = 600e6, 200e6
	for _, h := range c.Hosts() {
		must.Do(t, h.SetLink(lab.Link{Rate: fast}))
	}
	must.Do(t, c.SetPath(c.Host(2), c.Host(3), slow))
	dir := c.Shared("ways")
	old, file := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "measured.yaml")
	const hosts = "host1,host2,host3,host4"
	// What was right yesterday.
	text := "hosts:\n"
	for name := range strings.SplitSeq(hosts, ",") {
		text += "  " + name + ": {nics: {eth0: {speed_mbit: 600}}}\n"
	}
	text += "edges:\n- {from: host1, to: host2, mbit: 600}\n- {from: host2, to: host3, mbit: 600}\n"
	must.Do(t, os.WriteFile(old, []byte(text), 0o600))
	r := c.Gorun("bench", "-v", "--ring-order", "measured", "--topology", old, "--save-topology", file, "--algorithm", "ring", "-H", hosts, "-b", "8M", "-e", "8M", "--iters", "26")
	r.Good(t)
	for _, want := range []string{`epoch 1, ring: host1 → host2 → host3 → host4 → `, `(?s)edges of the ring, at the end of the job:\n.* Mbit/s measured in the job, [0-9.]+ [µm]s`} {
		if !regexp.MustCompile(want).MatchString(r.Stderr) {
			t.Errorf("no match for %s in\n%s", want, r.Stderr)
		}
	}

	type edge struct {
		From, To string
		Speed    float64 `json:"speed_mbit"`
		Source   string  `json:"speed_source"`
	}
	ring := func(by string) []edge {
		r := c.Gorun("topo", "-H", hosts, "--topology", file, "--ring-order", by, "--json")
		var found struct{ Ring []edge }
		if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil || len(found.Ring) != 4 {
			t.Fatalf("%v, exit code %d\n%s\n%s", err, r.Code, r.Stdout, r.Stderr)
		}
		return found.Ring
	}
	e := ring("host")[1]
	t.Logf("a way of %g Mbit/s was found to have %g", slow/1e6, e.Speed)
	if e.From != "host2" || e.To != "host3" || e.Source != "job" || math.Abs(e.Speed*1e6/slow-1) > 0.15 {
		t.Errorf("of the way from host2 to host3 with %g Mbit/s: %+v", slow/1e6, e)
	}
	for _, e := range ring("measured") {
		if e.From == "host2" && e.To == "host3" || e.From == "host3" && e.To == "host2" {
			t.Errorf("the next ring goes over the slow way: %+v", e)
		}
	}
	if r := c.Gorun("topo", "-H", hosts, "--topology", file, "--ascii"); !strings.Contains(r.Stdout, "measured in the job") {
		t.Errorf("the picture does not tell who measured:\n%s", r.Stdout)
	}

	r = c.Gorun("--json", "-np", "2", "-H", "host1,host2", "sleep", "1")
	if !regexp.MustCompile(`"event":"edge","from":"host1","to":"host2","speed_mbit":-1,"speed_source":"unknown","rtt_us":[0-9]`).MatchString(r.Stdout) {
		t.Errorf("no event of an edge in\n%s", r.Stdout)
	}
}
