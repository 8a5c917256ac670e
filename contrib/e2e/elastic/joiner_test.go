package elastic

import (
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestJoinerCutOff: a host that discovery adds answers the launcher, and a firewall keeps it from hosts that train. It is named
// and lost, and they go on from where they are.
func TestJoinerCutOff(t *testing.T) {
	t.Parallel()
	for name, muted := range map[string][]int{"from all": {1, 2}, "from one": {2}} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 3)
			list := c.HostFile("host1:1", "host2:1")
			j := c.TrainOn("--lease", "5", "--min-np", "2", "--host-discovery-script", "cat "+list.Name)
			j.Await(`is rank 1 of 2`)
			j.Await(`batch 20$`)
			for _, other := range muted {
				j.Must(c.Host(3).Mute(c.Host(other)))
			}
			list.Say("host1:1", "host2:1", "host3:1")
			j.Await(`^gorun: epoch \d+ has waited for host3 for [4-9] s: it and host[12] do not reach each other$`)
			j.Await(`^gorun: host3 is lost: (host[12] has not reached it for 6s: check firewalls between hosts|cut off from \d hosts?: host\d.*)$`)
			j.Await(`is rank \d of 2 from batch [1-9]`) // the world before began with both
			joined, out := j.Out.Find(`^gorun: epoch \d+: 3 ranks on 3 hosts, because host3 joined$`)
			_, again := j.Out.Find(`is rank \d of 2 from batch [1-9]`)
			if len(joined) != 1 {
				t.Fatalf("it was taken into %d worlds\n%s", len(joined), j.Out)
			}
			stood := again[0].Sub(out[0])
			t.Logf("the others stood still for %v", stood.Round(time.Millisecond))
			if stood > 16*time.Second { // some 6 s, or 5 s more for a host that only one does not reach
				t.Errorf("the others stood still for %v\n%s", stood, j.Out)
			}
			j.EndNow(2)
			if j.Out.Has(`gorun: host[12] is lost: `) || strings.Join(worlds(j), " ") != "3 2" {
				t.Errorf("worlds of %v\n%s", worlds(j), j.Out)
			}
		})
	}
}
