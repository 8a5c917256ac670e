package launcher

import "testing"

// TestToward: every host of an elastic job knows the name of another one, by which it finds out which of its addresses
// leads to the others: the first one, too, if there will be another, and before a spare one is in any world.
func TestToward(t *testing.T) {
	for name, tc := range map[string]struct {
		started    []string
		discovered []string
		host, want string
	}{
		"the first":              {nil, []string{"host2", "host1", "host3"}, "host1", "host2"},
		"one later":              {[]string{"host2", "host1"}, []string{"host1", "host2", "host3"}, "host3", "host2"},
		"one started once more":  {[]string{"host1", "host2"}, []string{"host1", "host2"}, "host1", "host2"},
		"one by its user's name": {nil, []string{"host1", "me@host2"}, "host1", "host2"},
		"the only one":           {nil, []string{"host1"}, "host1", ""},
	} {
		j := &job{state: state{membership: &membership{slots: map[string]int{}}}}
		for _, n := range tc.started {
			j.hosts = append(j.hosts, &host{name: n})
		}
		for _, n := range tc.discovered {
			j.membership.names, j.membership.slots[n] = append(j.membership.names, n), 1
		}
		if got := j.membership.toward(tc.host, j.hosts); got != tc.want {
			t.Errorf("%s: %s finds its way to %q, want %q", name, tc.host, got, tc.want)
		}
	}
}
