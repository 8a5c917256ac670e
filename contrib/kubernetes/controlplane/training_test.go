package controlplane

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// training is a job of testdata/elastic/train.py, and what it prints.
type training struct {
	*engine
	log  string // the file, or in the API server the path of a container's
	wait func() error
}

func (j *training) text() string {
	if !strings.HasPrefix(j.log, "/api/") {
		text, _ := os.ReadFile(j.log)
		return string(text)
	}
	text, status := j.call("GET", j.log, "")
	if status != http.StatusOK { // it has not begun
		return ""
	}
	return text
}

// find returns the lines that match, with the matches of their groups.
func (j *training) find(pattern string) [][]string {
	return regexp.MustCompile(`(?m)`+pattern).FindAllStringSubmatch(j.text(), -1)
}

// awaitLine waits for a line that matches.
func (j *training) awaitLine(pattern string) {
	j.Helper()
	j.await("line that matches "+pattern, func() bool { return len(j.find(pattern)) > 0 })
}

// awaitMore waits until a number of batches has been committed that were not yet.
func (j *training) awaitMore(batches int) {
	j.Helper()
	before := len(j.find(`batch \d+$`))
	j.await("more batches", func() bool { return len(j.find(`batch \d+$`)) >= before+batches })
}

// awaitWorld waits until as many ranks train, from now on.
func (j *training) awaitWorld(ranks int) {
	j.Helper()
	began := regexp.MustCompile(`is rank \d+ of (\d+) from batch`)
	j.await(fmt.Sprintf("world of %d", ranks), func() bool {
		all := began.FindAllStringSubmatch(j.text(), -1)
		return len(all) > 0 && all[len(all)-1][1] == strconv.Itoa(ranks)
	})
	j.awaitMore(5)
}

// end waits for the end of the job and checks that all ranks have the weights of an undisturbed job, and that no world
// began before the last commit.
func (j *training) end(ranks int) {
	j.Helper()
	if err := j.wait(); err != nil {
		j.Fatalf("%v\n%s", err, tail([]byte(j.text()), 6000))
	}
	ends := j.find(`process \d+ ends as rank \d+ of (\d+) after (\d+) batches, \d+ worlds: ([0-9.]+) (\w+)`)
	if len(ends) != ranks {
		j.Fatalf("%d ranks have ended well, want %d\n%s", len(ends), ranks, tail([]byte(j.text()), 6000))
	}
	last := 0
	for _, m := range j.find(`(?:batch (\d+)$|is rank 0 of \d+ from batch (\d+)$)`) {
		if m[2] == "" {
			last, _ = strconv.Atoi(m[1])
		} else if from, _ := strconv.Atoi(m[2]); from < last-1 { // a batch is printed just before it is committed
			j.Errorf("a world goes on from batch %d, although %d was reported", from, last)
		}
	}
	want := j.undisturbed(ends[0][2])
	for _, end := range ends {
		// An average of three ranks is rounded differently than one of two.
		if norm, _ := strconv.ParseFloat(end[3], 64); end[2] != ends[0][2] || end[4] != ends[0][4] || math.Abs(norm-want) > 1e-6*want {
			j.Errorf("%s; undisturbed the norm is %.9f", end[0], want)
		}
	}
}

// again returns how many batches the last world of one rank begins before the last that was reported.
func (j *training) again() int {
	last, again := 0, 0
	for _, m := range j.find(`(?:batch (\d+)$|is rank 0 of 1 from batch (\d+)$)`) {
		if m[1] != "" {
			last, _ = strconv.Atoi(m[1])
		} else {
			from, _ := strconv.Atoi(m[2])
			again = last - from
		}
	}
	return again
}

// undisturbed trains on one rank without faults, and returns the norm of the weights.
func (j *training) undisturbed(batches string) float64 {
	j.Helper()
	cmd := exec.CommandContext(j.Context(), os.Getenv("GORUN_E2E_BINARY"), "-np", "1", "/usr/bin/python3", "../../../testdata/elastic/train.py", "--numpy", "--batches", batches)
	out, err := cmd.CombinedOutput()
	m := regexp.MustCompile(`worlds: ([0-9.]+) `).FindSubmatch(out)
	if err != nil || m == nil {
		j.Fatalf("undisturbed: %v\n%s", err, out)
	}
	norm, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil || norm < 1 {
		j.Fatalf("undisturbed: the norm is %v, too small to compare (%v)", norm, err)
	}
	return norm
}

// program is the command line of a training for that many batches.
func program(batches int, flags ...string) []string {
	return append([]string{"python3", "/opt/train/train.py", "--numpy", "--pause", "0.03", "--batches", strconv.Itoa(batches)}, flags...)
}

// unending is the command line of a training that goes on until enough is called.
func unending() []string { return program(0, "--until", "/tmp/enough") }

// enough makes the training end at its next commit, wherever its rank 0 is.
func (j *training) enough(selector string) {
	j.Helper()
	for _, p := range j.pods(selector) {
		if p.ready() {
			if err := j.exec(p.Metadata.Name, io.Discard, "touch", "/tmp/enough"); err != nil {
				j.Fatalf("touch in %s: %v", p.Metadata.Name, err)
			}
		}
	}
}

// evict asks Kubernetes to evict a pod, as kubectl drain does.
func (e *engine) evict(name string) {
	e.Helper()
	e.must("POST", "/api/v1/namespaces/"+e.namespace+"/pods/"+name+"/eviction",
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+name+`"}}`)
}
