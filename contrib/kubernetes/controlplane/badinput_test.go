package controlplane

import (
	"fmt"
	"regexp"
	"strings"
)

// testBadInput: what is wrong with a JobSet or its namespace ends it with one line and a hint in the launcher's output.
func testBadInput(e *engine) {
	const launcher, workers = "jobset.sigs.k8s.io/replicatedjob-name%3Dlauncher", "jobset.sigs.k8s.io/replicatedjob-name%3Dworker"
	post := func(e *engine, kind, object string) {
		e.must("POST", "/api/v1/namespaces/"+e.namespace+"/"+kind, object)
	}
	for name, tc := range map[string]struct {
		replace []string
		before  func(e *engine)
		workers func(pods []pod) bool // what becomes of them
		want    string
	}{
		"no-image": {
			replace: []string{"name: worker\n                  image: " + image, "name: worker\n                  image: registry.example/other:1"},
			workers: func(pods []pod) bool {
				return len(pods) == 2 && len(pods[0].Status.ContainerStatuses) == 1 && strings.Contains(pods[0].Status.ContainerStatuses[0].State.Waiting.Reason, "ImagePull")
			},
			want: `error: train:7575: .*\ngorun: hint: is there a daemon\? .*`,
		},
		"wrong-key": {
			replace: []string{"gorun-key, defaultMode: 0440}\n                - name: shm", "other-key, defaultMode: 0440}\n                - name: shm"},
			before: func(e *engine) {
				post(e, "secrets", fmt.Sprintf(`{"metadata":{"name":"other-key"},"stringData":{"key":%q}}`, "c2b03d14f5e1977ea08d6b52194cf83e70a5de926b4d1783fc09e5a8613b72d4"))
			},
			want: `error: train:7575: authenticate: .* does not hold the key .*\ngorun: hint: the key file must be the same everywhere`,
		},
		"no-permission": {
			replace: []string{"                fsGroup: 1000 # may read the key\n", ""},
			want:    `error: .*key.*permission.*\ngorun: hint: .*`,
		},
	} {
		e.within(name, func(e *engine) {
			if tc.before != nil {
				tc.before(e)
			}
			j := e.jobSet("2", append([]string{"--connect-retry=10m", "--connect-retry=4s"}, tc.replace...), program(5)...)
			if tc.workers != nil {
				e.await("state of the workers", func() bool { return tc.workers(e.pods(workers)) })
			}
			e.await("end of the launcher", func() bool {
				for _, p := range e.pods(launcher) {
					if p.Status.Phase != "Failed" {
						return false
					}
				}
				return true
			})
			if text := j.text(); !regexp.MustCompile("(?m)^gorun: "+tc.want+"$").MatchString(text) || strings.Count(text, "gorun: error: ") != 1 {
				e.Errorf("the launcher says:\n%s", text)
			}
		})
	}
}
