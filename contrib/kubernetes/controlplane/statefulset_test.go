package controlplane

import "testing"

// TestPods: the manifests train on Kubernetes' own controllers and scheduler.
func TestPods(t *testing.T) {
	e := newEngine(t)
	e.within("statefulset", testStatefulSet)
	e.define()
	e.jobSets()
	e.within("jobset", testJobSet)
}

// testStatefulSet: daemons of a StatefulSet find each other and become ready, and a job trains in all pods.
func testStatefulSet(e *engine) {
	e.create("cluster.yaml")
	e.awaitReady("app=gorun", 2)
	job := e.gorun("gorun-0", append([]string{"-np", "4"}, program(20)...)...)
	job.end(4)
}
