package controlplane

import (
	"fmt"
	"testing"
)

// TestPods: the manifests train on Kubernetes' own controllers and scheduler.
func TestPods(t *testing.T) {
	e := newEngine(t)
	e.within("statefulset", testStatefulSet)
	e.within("limits", testLimits)
	e.within("scaling", testScaling)
	e.within("lost-pods", testLostPods)
	e.define()
	e.jobSets("jobset", jobsetModule)
	e.within("jobset", testJobSet)
	e.within("lost-workers", testLostWorkers)
	testBadInput(e)
	e.mpiJobs()
	e.within("mpijob", testMPIJob)
}

// testStatefulSet: daemons of a StatefulSet find each other and become ready, and a job trains in all pods.
func testStatefulSet(e *engine) {
	e.create("cluster.yaml")
	e.awaitReady("app=gorun", 2)
	job := e.gorun("gorun-0", append([]string{"-np", "4"}, program(20)...)...)
	job.end(4)
}

// testLimits: a pod has a slot for each CPU of its limit.
func testLimits(e *engine) {
	e.create("cluster.yaml", `cpu: "4"`, `cpu: "1"`)
	e.awaitReady("app=gorun", 2)
	if job := e.gorun("gorun-0", "-np", "3", "true"); job.wait() == nil || len(job.find(`slots`)) == 0 {
		e.Errorf("three ranks in two pods with a CPU each:\n%s", job.text())
	}
	job := e.gorun("gorun-0", append([]string{"-np", "2"}, program(20)...)...)
	job.end(2)
}

// daemons applies cluster.yaml with a slot in each pod, which a pod that is to go keeps for some seconds.
func (e *engine) daemons() {
	e.Helper()
	e.create("cluster.yaml", "- --join=dns:gorun\n", "- --join=dns:gorun\n            - --slots=1\n",
		"terminationGracePeriodSeconds: 3600", "terminationGracePeriodSeconds: 5")
	e.awaitReady("app=gorun", 2)
}

// scale sets the number of replicas, as kubectl scale does.
func (e *engine) scale(replicas int) {
	e.Helper()
	path := "/apis/apps/v1/namespaces/" + e.namespace + "/statefulsets/gorun/scale"
	e.must("PUT", path, fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"gorun","namespace":%q},"spec":{"replicas":%d}}`,
		e.namespace, replicas))
}

// testScaling scales a StatefulSet while an elastic job trains: the job takes new pods in, and goes on without lost ones.
func testScaling(e *engine) {
	e.daemons()
	job := e.gorun("gorun-0", append([]string{"-np", "2", "--min-np", "1", "--max-np", "4"}, unending()...)...)
	for _, replicas := range []int{2, 4, 3} {
		e.scale(replicas)
		job.awaitWorld(replicas)
		e.awaitReady("app=gorun", replicas)
	}
	job.enough("app=gorun")
	job.end(3)
}

// testLostPods: an elastic job goes on without a pod whose process is killed or that is evicted, and with it again once it
// is back.
func testLostPods(e *engine) {
	e.daemons()
	job := e.gorun("gorun-0", append([]string{"-np", "2", "--min-np", "1", "--max-np", "2"}, unending()...)...)
	job.awaitWorld(2)
	for name, lose := range map[string]func(){
		"killed":  func() { e.kill(e.pod("gorun-1")) },
		"evicted": func() { e.evict("gorun-1") },
	} {
		worlds := len(job.find(`is rank 0 of 1 from`))
		lose()
		e.await("world without the pod that was "+name, func() bool { return len(job.find(`is rank 0 of 1 from`)) > worlds })
		job.awaitWorld(2)
		e.awaitReady("app=gorun", 2)
	}
	job.enough("app=gorun")
	job.end(2)
}
