package controlplane

import (
	"fmt"
	"strings"
	"time"
)

// yamlList is the arguments of a manifest, one a line.
func yamlList(indent string, words []string) string {
	var b strings.Builder
	for _, word := range words {
		fmt.Fprintf(&b, "%s- %q\n", indent, word)
	}
	return b.String()
}

// jobSet makes the JobSet of jobset.yaml train with a command, and returns its launcher's output.
func (e *engine) jobSet(ranks string, replace []string, command ...string) *training {
	e.Helper()
	const indent = "                    "
	e.create("jobset.yaml", append([]string{
		indent + "- python3\n" + indent + "- /opt/train/train.py\n", yamlList(indent, command),
		"-np=8", "-np=" + ranks, "--min-np=4", "--min-np=1", "--max-np=8", "--max-np=" + ranks,
		`requests: {cpu: "4", memory: 8Gi}`, `requests: {cpu: "1", memory: 8Gi}`}, replace...)...)
	selector := "jobset.sigs.k8s.io/replicatedjob-name%3Dlauncher"
	e.await("launcher", func() bool { return len(e.pods(selector)) == 1 })
	j := &training{engine: e, log: e.pods(selector)[0].log(e.namespace)}
	j.wait = func() error { return e.awaitJobSet("train") }
	return j
}

// awaitJobSet waits until a JobSet has ended, and none of its pods runs any more.
func (e *engine) awaitJobSet(name string) error {
	e.Helper()
	path := e.path("jobset.x-k8s.io/v1alpha2", "JobSet") + "/" + name
	var text string
	e.await("end of the JobSet", func() bool {
		text = e.must("GET", path, "")
		return strings.Contains(text, `"terminalState"`)
	})
	if !strings.Contains(text, `"terminalState":"Completed"`) {
		return fmt.Errorf("the JobSet has failed: %s", text)
	}
	e.await("end of the workers", func() bool {
		for _, p := range e.pods("jobset.sigs.k8s.io/replicatedjob-name%3Dworker") {
			if p.Status.Phase == "Running" {
				return false
			}
		}
		return true
	})
	return nil
}

// testJobSet: the launcher waits for its workers, trains on them and ends the JobSet.
func testJobSet(e *engine) {
	j := e.jobSet("2", nil, program(30)...)
	j.end(2)
}

// testLostWorkers: the elastic job of a JobSet goes on without a worker that is evicted or whose process is killed, and
// with the pod that the Job starts in its place.
func testLostWorkers(e *engine) {
	const workers = "jobset.sigs.k8s.io/replicatedjob-name%3Dworker"
	j := e.jobSet("2", nil, unending()...)
	j.awaitWorld(2)
	running := func() (list []pod) {
		for _, p := range e.pods(workers) {
			if p.ready() {
				list = append(list, p)
			}
		}
		return list
	}
	for name, lose := range map[string]func(p pod){"evicted": func(p pod) { e.evict(p.Metadata.Name) }, "killed": e.kill} {
		e.await("two workers", func() bool { return len(running()) == 2 })
		worlds := len(j.find(`is rank 0 of 1 from`))
		lost := time.Now()
		lose(running()[1])
		e.await("world without the worker that was "+name, func() bool { return len(j.find(`is rank 0 of 1 from`)) > worlds })
		without := time.Since(lost)
		if again := j.again(); name == "evicted" && again != 0 {
			e.Errorf("an eviction costs %d batches, want none", again)
		}
		j.awaitWorld(2)
		e.Logf("a worker is %s: the others train after %.1f s, and with one in its place after %.1f s", name, without.Seconds(), time.Since(lost).Seconds())
	}
	j.enough(workers)
	j.end(2)
}
