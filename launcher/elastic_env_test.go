package launcher_test

import (
	"context"
	"slices"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher"
	"gorun/launcher/elastic"
	"gorun/launcher/plan"
	"gorun/rendezvous/wire"
)

// TestElasticVariables: what the user names for the ranks of an elastic job reaches those on other hosts, which hear
// nothing else of the launcher's devices.
func TestElasticVariables(t *testing.T) {
	var job *wire.Job
	var env []string
	s := &script{t: t, daemons: map[string]func(*conversation){"a": begun(func(c *conversation) {
		job, env = c.job, c.at.Ranks[0].Env
		c.say(&wire.Exited{Process: 0})
		c.end()
	})}}
	hosts := make(chan []elastic.DiscoveredHost, 1)
	hosts <- []elastic.DiscoveredHost{{Name: "a", Slots: 1}}
	policy, err := elastic.Policy{NP: 1, Listed: true, ResetLimit: -1}.Check()
	must.Do(t, err)
	_, _, err = start(t, context.Background(), s, func(spec *launcher.Spec) {
		spec.Placement = plan.Placement{}
		spec.Elastic = &launcher.ElasticSpec{Policy: policy, Hosts: hosts, Admit: func(int, string) error { return nil }}
		spec.Env = []string{"A=1", "CUDA_VISIBLE_DEVICES=3"}
		spec.Programs[0].Env = []string{"CUDA_VISIBLE_DEVICES=7"}
	})
	if err != nil || job == nil {
		t.Fatalf("the job has not run: %v", err)
	}
	if want := []string{"A=1"}; !slices.Equal(job.Env, want) {
		t.Errorf("the host got %q, want %q", job.Env, want)
	}
	if want := []string{"CUDA_VISIBLE_DEVICES=7"}; !slices.Equal(env, want) {
		t.Errorf("the rank got %q", env)
	}
}
