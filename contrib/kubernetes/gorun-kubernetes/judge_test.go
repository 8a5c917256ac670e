package main

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod is one with a container in a state.
func pod(name, part string, state core.ContainerState, conditions ...core.PodCondition) core.Pod {
	return core.Pod{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{partLabel: part}},
		Status: core.PodStatus{Conditions: conditions, ContainerStatuses: []core.ContainerStatus{{Image: "i:1", State: state}}}}
}

func waits(reason, message string) core.ContainerState {
	return core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason, Message: message}}
}

func exited(code int32, reason, message string) core.ContainerState {
	return core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

var running = core.ContainerState{Running: new(core.ContainerStateRunning)}

func condition(kind core.PodConditionType, status core.ConditionStatus, reason, message string) core.PodCondition {
	return core.PodCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

func event(reason, message string) core.Event {
	return core.Event{Reason: reason, Message: message, InvolvedObject: core.ObjectReference{Kind: "Job", Name: "train-worker-0"}}
}

// TestEventsOfOthers: events of a JobSet with a longer name, or of one before with the same name, do not count.
func TestEventsOfOthers(t *testing.T) {
	set := new(jobSet)
	set.Metadata.Name, set.Metadata.CreationTimestamp = "train", meta.Unix(100, 0)
	at := func(name string, seconds int64) core.Event {
		return core.Event{InvolvedObject: core.ObjectReference{Name: name}, LastTimestamp: meta.Unix(seconds, 0)}
	}
	again := at("train-worker-0", 90)
	again.Series = &core.EventSeries{LastObservedTime: meta.NewMicroTime(meta.Unix(101, 0).Time)}
	got := set.concerned([]core.Event{at("train-worker-0", 99), at("train-big-worker-0", 101), at("train-launcher-0", 100), at("train-launcher-0", 101), again, {}})
	if len(got) != 2 || got[0].InvolvedObject.Name != "train-launcher-0" || got[1].Series == nil {
		t.Errorf("%+v", got)
	}
}

// TestTroubles: each cause why a pod does not run is one line with a hint, and final where waiting does not help.
func TestTroubles(t *testing.T) {
	suspended := new(jobSet)
	yes := true
	suspended.Metadata.Name, suspended.Spec.Suspend = "train", &yes
	for name, c := range map[string]struct {
		seen       seen
		want, hint string
		final      bool
	}{
		"nothing":      {seen: seen{pods: []core.Pod{pod("a", workerPart, running), pod("b", workerPart, waits("ContainerCreating", ""))}}},
		"absent image": {seen{pods: []core.Pod{pod("a", workerPart, waits("ImagePullBackOff", "i:1: not found"))}}, "a: no image i:1: i:1: not found", "push it", true},
		"slow registry": {seen{pods: []core.Pod{pod("a", workerPart, waits("ErrImagePull", "i/o timeout"))}}, "a: no image i:1: i/o timeout",
			"push it", false},
		"name of an image": {seen{pods: []core.Pod{pod("a", workerPart, waits("InvalidImageName", "couldn't parse"))}}, "a: no image i:1: InvalidImageName: couldn't parse",
			"push it", true},
		"root": {seen{pods: []core.Pod{pod("a", workerPart, waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"))}},
			"a: CreateContainerConfigError: container has runAsNonRoot and image will run as root", "user 1000", true},
		"key that comes": {seen{pods: []core.Pod{pod("a", workerPart, waits("CreateContainerConfigError", `secret "train-key" not found`))}},
			`a: CreateContainerConfigError: secret "train-key" not found`, "describe pod", false},
		"image without gorun": {seen{pods: []core.Pod{pod("a", workerPart, exited(128, "StartError", `exec: "gorun": executable file not found in $PATH`))}},
			`a: StartError: exec: "gorun": executable file not found in $PATH`, "needs gorun in its PATH", true},
		"no room": {seen{pods: []core.Pod{pod("a", workerPart, core.ContainerState{}, condition(core.PodScheduled, core.ConditionFalse, "Unschedulable", "0/1 nodes"))}},
			"a: no node takes it: 0/1 nodes", "ask for less", false},
		"quota": {seen{events: []core.Event{event("FailedCreate", `Error creating: pods "train-worker-0-0-x7" is forbidden: exceeded quota: q, used: pods=1`)}},
			"Job train-worker-0: exceeded quota: q, used: pods=1", "describe quota", false},
		"quota that wants limits": {seen{events: []core.Event{event("FailedCreate", `pods "x" is forbidden: failed quota: q: must specify limits.cpu for: launcher`)}},
			"Job train-worker-0: failed quota: q: must specify limits.cpu for: launcher", "--dry-run", true},
		"security": {seen{events: []core.Event{event("FailedCreate", `pods "x" is forbidden: violates PodSecurity "restricted:latest"`)}},
			`Job train-worker-0: violates PodSecurity "restricted:latest"`, "pod-security.kubernetes.io", true},
		"account":     {seen{events: []core.Event{event("FailedCreate", `pods "x" is forbidden: error looking up service account: serviceaccount "a" not found`)}}, `Job train-worker-0: error looking up service account: serviceaccount "a" not found`, "service-account=NAME", true},
		"other event": {seen{events: []core.Event{event("SuccessfulCreate", "")}}, "", "", false},
		"queue":       {seen{set: suspended}, "JobSet train: it is suspended", "queue admits it", false},
	} {
		all := c.seen.troubles()
		if c.want == "" {
			if len(all) != 0 {
				t.Errorf("%s: %+v", name, all)
			}
			continue
		}
		if len(all) != 1 || all[0].what+": "+all[0].why != c.want || all[0].final != c.final || !strings.Contains(all[0].hint, c.hint) {
			t.Errorf("%s: %+v, want %q with %q, final %v", name, all, c.want, c.hint, c.final)
		}
	}
}

// TestTroublesAreNamedOnce: one line names a cause that several pods share, and pods that Kubernetes takes away need none.
func TestTroublesAreNamedOnce(t *testing.T) {
	gone := pod("c", workerPart, waits("ImagePullBackOff", "not found"), condition(core.DisruptionTarget, core.ConditionTrue, "EvictionByEvictionAPI", ""))
	s := seen{pods: []core.Pod{pod("a", workerPart, waits("ErrImagePull", "x")), pod("b", workerPart, waits("ErrImagePull", "x")), gone}}
	if all := s.troubles(); len(all) != 1 || all[0].what != "a" {
		t.Errorf("%+v", all)
	}
}

// TestLauncher: the launcher is the newest one that was not taken away.
func TestLauncher(t *testing.T) {
	old, taken, now := pod("old", launcherPart, exited(143, "", "")), pod("taken", launcherPart, running), pod("now", launcherPart, running)
	taken.Status.Conditions = []core.PodCondition{condition(core.DisruptionTarget, core.ConditionTrue, "", "")}
	now.CreationTimestamp = meta.Unix(20, 0)
	taken.CreationTimestamp = meta.Unix(30, 0)
	s := seen{pods: []core.Pod{pod("w", workerPart, running), now, old, taken}}
	if p := s.launcher(); p == nil || p.Name != "now" {
		t.Errorf("it is %v", p)
	}
	if s.running() != 3 {
		t.Errorf("%d run", s.running())
	}
	if s := (seen{}); s.launcher() != nil || started(nil) || ended(nil) != nil {
		t.Error("no pod is one")
	}
}

// TestFailed: a JobSet has failed when its condition says so.
func TestFailed(t *testing.T) {
	set := &jobSet{Status: &jobSetStatus{Conditions: []meta.Condition{{Type: "Completed", Status: meta.ConditionTrue, Message: "done"}}}}
	if why := (&seen{set: set}).failed(); why != "" {
		t.Errorf("failed: %s", why)
	}
	set.Status.Conditions = slices.Insert(set.Status.Conditions, 0, meta.Condition{Type: "Failed", Status: meta.ConditionTrue, Reason: "FailedJobs"})
	s := seen{set: set, pods: []core.Pod{pod("a", workerPart, exited(1, "Error", ""))}}
	if s.failed() != "FailedJobs" || s.lastWords() != "a ended with status 1" {
		t.Errorf("%q, %q", s.failed(), s.lastWords())
	}
}
