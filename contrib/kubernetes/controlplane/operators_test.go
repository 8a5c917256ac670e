package controlplane

import (
	"fmt"
	"path/filepath"
	"strings"
)

// mpiJobs starts the controller of MPIJobs.
func (e *engine) mpiJobs() {
	e.Helper()
	start(e.T, filepath.Join(e.programs, "mpi-operator"), "-kubeConfig="+e.kubeconfig(), "-lock-namespace=default", "-kube-api-qps=50", "-kube-api-burst=100")
}

// follow returns the output of the only container of a pod, which may not be there yet.
func (e *engine) follow(selector, container string) *training {
	e.Helper()
	e.await("pod of "+selector, func() bool { return len(e.pods(selector)) > 0 })
	return &training{engine: e, log: filepath.Join(e.logs, e.namespace+"_"+e.pods(selector)[0].Metadata.Name+"_"+container+".log")}
}

// testMPIJob: gorun is the launcher of an MPIJob, and reaches its workers by ssh with the keys of the operator.
func testMPIJob(e *engine) {
	e.create("mpijob.yaml", `"python3", "/opt/train/train.py"`, `"`+strings.Join(program(20), `", "`)+`"`)
	j := e.follow("training.kubeflow.org/job-role%3Dlauncher", "launcher")
	j.wait = func() error { return e.awaitCondition("kubeflow.org/v2beta1", "MPIJob", "gorun-digits", "Succeeded") }
	j.end(2)
}

// awaitCondition waits until an object is in a condition that ends it, and returns an error if it has failed instead.
func (e *engine) awaitCondition(version, kind, name, condition string) (err error) {
	e.Helper()
	path := e.path(version, kind) + "/" + name
	e.await(kind+" that is "+condition, func() bool {
		text := e.must("GET", path, "")
		if strings.Contains(text, `"type":"Failed"`) {
			err = fmt.Errorf("the %s has failed: %s", kind, text)
		}
		return err != nil || strings.Contains(text, `"type":"`+condition+`"`)
	})
	return err
}
