package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/launcher/elastic"
)

// elasticOf parses a launch as a user writes it.
func elasticOf(t *testing.T, flags string) (p *elasticPlan, err error) {
	t.Helper()
	args := append([]string{"gorun"}, strings.Fields(flags)...)
	if parseErr := parse(t, append(args, "python", "train.py"), func(o *jobFlags) {
		if o.args[0] != "python" {
			err = fmt.Errorf("the program is %v", o.args)
			return
		}
		p, err = readElastic(o)
	}); parseErr != nil {
		return nil, parseErr
	}
	return p, err
}

func TestElasticFlags(t *testing.T) {
	base := elastic.Policy{NP: 4, MinNP: 4, ResetLimit: -1, LossLimit: elastic.DefaultLossLimit, Timeout: 10 * time.Minute, Listed: true}
	with := func(change func(*elastic.Policy)) elastic.Policy { p := base; change(&p); return p }
	for _, tt := range []struct {
		flags string
		want  elastic.Policy
	}{
		{"-np 4 --min-np 4", base},
		{"--min-num-proc 4", base},
		{"-np 4 --min-np 2 --max-num-proc 8", with(func(p *elastic.Policy) { p.MinNP, p.MaxNP = 2, 8 })},
		{"-np 4 --host-discovery-script ./hosts.sh --slots 2", with(func(p *elastic.Policy) { p.Listed = false })},
		{"-np 4 --min-np 4 --on-failure wait --reset-limit 0", with(func(p *elastic.Policy) { p.OnFailure, p.ResetLimit = elastic.Wait, 0 })},
		{"--blacklist-cooldown-range 10 100 --elastic-timeout 5 --min-np 4", with(func(p *elastic.Policy) {
			p.CooldownMin, p.CooldownMax, p.Timeout = 10*time.Second, 100*time.Second, 5*time.Second
		})},
		{"--min-np 4 --loss-limit 1 --blacklist host", with(func(p *elastic.Policy) { p.LossLimit, p.Blacklist = 1, elastic.BlacklistHost })},
		{"--min-np 4 --blacklist slot", base},
		{"--blacklist-cooldown-range=0.5,1m --min-np 4", with(func(p *elastic.Policy) {
			p.CooldownMin, p.CooldownMax = 500*time.Millisecond, time.Minute
		})},
	} {
		p, err := elasticOf(t, tt.flags)
		if err != nil || p.Policy != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", tt.flags, p, err, tt.want)
		}
	}
	p, err := elasticOf(t, "-np 4 --host-discovery-script ./hosts.sh --slots-per-host 2")
	if err != nil || p.Script.Command != "./hosts.sh" || p.Script.Slots != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := elasticOf(t, "-np 4"); p != nil || err != nil {
		t.Errorf("a fixed job: %+v, %v", p, err)
	}
}

func TestElasticMistakes(t *testing.T) {
	for flags, want := range map[string]string{
		"--max-np 4":                                    "--max-np is for elastic jobs",
		"-np 2 --min-np 3":                              "--min-np 3 exceeds -np 2",
		"-np 4 --min-np 2 --max-np 3":                   "--max-np 3 is less than -np 4",
		"--min-np 0":                                    "--min-np 0: must be at least 1",
		"--host-discovery-script x":                     "needs -np or --min-np",
		"-np 1 -H a --host-discovery-script x":          "excludes -H",
		"--min-np 1 --on-failure end":                   "not replace, shrink or wait",
		"--min-np 1 --reset-limit -1":                   "must not be negative",
		"--min-np 1 --loss-limit 0":                     "--loss-limit 0: must be at least 1",
		"--loss-limit 2":                                "--loss-limit is for elastic jobs",
		"--min-np 1 --blacklist rank":                   `--blacklist: "rank" is not slot or host`,
		"--blacklist host":                              "--blacklist is for elastic jobs",
		"--min-np 1 --elastic-timeout 0":                "must be positive",
		"--min-np 1 --slots-per-host 0":                 "must be at least 1",
		"--min-np 1 --blacklist-cooldown-range 5":       "not two times",
		"--min-np 1 --blacklist-cooldown-range 9 5":     "not a range",
		"--min-np 1 --blacklist-cooldown-range=9":       "not two times",
		"--min-np 1 --blacklist-cooldown-range 0 5":     "not a range",
		"--min-np 1 --blacklist-cooldown-range soon 50": "not two times",
	} {
		if _, err := elasticOf(t, flags); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flags, err, want)
		}
	}
}
