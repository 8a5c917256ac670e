package controlplane

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// mpiJobs starts the controller of MPIJobs.
func (e *engine) mpiJobs() {
	e.Helper()
	start(e.T, filepath.Join(e.programs, "mpi-operator"), "-kubeConfig="+e.kubeconfig(), "-lock-namespace=default", "-kube-api-qps=50", "-kube-api-burst=100")
}

// trainJobs starts the controller of TrainJobs, which makes JobSets of them.
func (e *engine) trainJobs() {
	e.Helper()
	e.controller("trainer-controller-manager", "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\ncertManagement: {enable: false}",
		filepath.Join(e.moduleDir(trainerModule), "manifests/base/webhook/manifests.yaml"))
}

// follow returns the output of the only container of a pod, which may not be there yet.
func (e *engine) follow(selector string) *training {
	e.Helper()
	e.await("pod of "+selector, func() bool { return len(e.pods(selector)) > 0 })
	return &training{engine: e, log: e.pods(selector)[0].log(e.namespace)}
}

// testMPIJob: gorun is the launcher of an MPIJob, and reaches its workers by ssh with the keys of the operator.
func testMPIJob(e *engine) {
	e.create("mpijob.yaml", `"python3", "/opt/train/train.py"`, `"`+strings.Join(program(20), `", "`)+`"`)
	j := e.follow("training.kubeflow.org/job-role%3Dlauncher")
	j.wait = func() error { return e.awaitCondition("kubeflow.org/v2beta1", "MPIJob", "gorun-digits", "Succeeded") }
	j.end(2)
}

// TestTrainJob trains in a TrainJob of Kubeflow Trainer, with the JobSets that it needs.
func TestTrainJob(t *testing.T) {
	e := newEngine(t)
	e.define()
	e.defineFrom(newJobsetModule, definitions[jobsetModule])
	e.jobSets("jobset-0.10.1", newJobsetModule)
	e.trainJobs()
	e.within("trainjob", testTrainJob)
}

// testTrainJob: the runtime's nodes are daemons, and its first one trains on all of them.
func testTrainJob(e *engine) {
	words := append([]string{"-np", "2", "--min-np", "1", "--max-np", "2"}, program(20)...)
	e.create("trainjob.yaml", `[-np, "16", --min-np, "4", python3, /opt/train/train.py]`, `["`+strings.Join(words, `", "`)+`"]`,
		"numNodes: 4", "numNodes: 2", `requests: {cpu: "4"`, `requests: {cpu: "1"`)
	j := e.follow("batch.kubernetes.io/job-completion-index%3D0")
	j.wait = func() error {
		return e.awaitCondition("trainer.kubeflow.org/v1alpha1", "TrainJob", "train", "Complete")
	}
	j.end(2)
}

// awaitCondition waits until an object is in a condition that ends it, and returns an error if it has failed instead.
func (e *engine) awaitCondition(version, kind, name, condition string) (err error) {
	e.Helper()
	path := e.path(version, kind) + "/" + name
	e.await(kind+" that is "+condition, func() bool {
		text := e.must("GET", path, "")
		var object struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		check(e, json.Unmarshal([]byte(text), &object))
		met := false
		for _, c := range object.Status.Conditions {
			if c.Status == "True" && c.Type == "Failed" {
				err = fmt.Errorf("the %s has failed: %s", kind, text)
			}
			met = met || c.Status == "True" && c.Type == condition
		}
		return err != nil || met
	})
	return err
}
