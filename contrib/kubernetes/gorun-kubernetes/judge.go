package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// seen is the state of a job at one moment.
type seen struct {
	set    *jobSet // nil once it is deleted
	pods   []core.Pod
	events []core.Event // of the namespace's Jobs
}

// trouble is why a pod is not there, or does not run.
type trouble struct {
	what, why string
	hint      string
	final     bool // waiting does not help
}

// launcher returns the pod that runs gorun, the last one if there were several; nil while there is none.
func (s *seen) launcher() *core.Pod {
	var last *core.Pod
	for i := range s.pods {
		p := &s.pods[i]
		if p.Labels[partLabel] == launcherPart && !disrupted(p) && (last == nil || last.CreationTimestamp.Before(&p.CreationTimestamp)) {
			last = p
		}
	}
	return last
}

// disrupted reports whether Kubernetes has taken a pod away. The Job starts another one.
func disrupted(p *core.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool {
		return c.Type == core.DisruptionTarget && c.Status == core.ConditionTrue
	})
}

// started reports whether the pod's container has started, and so has a log.
func started(p *core.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.ContainerStatuses, func(c core.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil
	})
}

// ended returns how the pod's container has ended, nil while it has not.
func ended(p *core.Pod) *core.ContainerStateTerminated {
	if p != nil {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated != nil {
				return c.State.Terminated
			}
		}
	}
	return nil
}

// running counts the pods whose containers run.
func (s *seen) running() (n int) {
	for i := range s.pods {
		if started(&s.pods[i]) && ended(&s.pods[i]) == nil {
			n++
		}
	}
	return n
}

// failed returns why the JobSet has failed, "" if it has not.
func (s *seen) failed() string {
	if s.set == nil || s.set.Status == nil {
		return ""
	}
	for _, c := range s.set.Status.Conditions {
		if c.Type == "Failed" && c.Status == meta.ConditionTrue {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// suspended reports whether a queue has not admitted the JobSet.
func (s *seen) suspended() bool {
	return s.set != nil && s.set.Spec.Suspend != nil && *s.set.Spec.Suspend
}

// lastWords names a pod that has failed.
func (s *seen) lastWords() string {
	for i := range s.pods {
		if t := ended(&s.pods[i]); t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("%s ended with status %d", s.pods[i].Name, t.ExitCode)
		}
	}
	return "kubectl get events shows why"
}

// troubles returns why pods are not there or do not run, each cause once.
func (s *seen) troubles() (all []trouble) {
	add := func(t *trouble) {
		if t != nil && !slices.ContainsFunc(all, func(other trouble) bool { return other.why == t.why }) {
			all = append(all, *t)
		}
	}
	if s.suspended() {
		add(&trouble{"JobSet " + s.set.Metadata.Name, "it is suspended", "its queue admits it; kubectl get workloads shows how far it is", false})
	}
	for _, e := range s.events {
		add(ofEvent(&e))
	}
	for i := range s.pods {
		add(ofPod(&s.pods[i]))
	}
	return all
}

// concerned returns the events of the JobSet's own Jobs. Events outlive a JobSet, and the next one may have its name.
// Events of the second in which this JobSet was made are left out, because they may be of the former one: what hinders
// this one happens again.
func (set *jobSet) concerned(all []core.Event) (own []core.Event) {
	for _, e := range all {
		of := e.InvolvedObject.Name
		if (of == set.Metadata.Name+"-"+launcherPart+"-0" || of == set.Metadata.Name+"-"+workerPart+"-0") &&
			last(&e).After(set.Metadata.CreationTimestamp.Time) {
			own = append(own, e)
		}
	}
	return own
}

// last returns when an event was seen last.
func last(e *core.Event) time.Time {
	at := e.LastTimestamp.Time
	if e.EventTime.After(at) {
		at = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at.Truncate(time.Second) // as the JobSet's own time is
}

// ofEvent returns why a Job makes no pods.
func ofEvent(e *core.Event) *trouble {
	if e.Reason != "FailedCreate" {
		return nil
	}
	t := &trouble{what: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name, why: e.Message}
	if _, after, found := strings.Cut(e.Message, " is forbidden: "); found { // without the pod's random name
		t.why = after
	}
	switch {
	case strings.Contains(e.Message, "exceeded quota"):
		t.hint = "kubectl describe quota shows what is used; ask for less by --kubernetes-options cpu=…,memory=…, or wait for others"
	case strings.Contains(e.Message, "must specify"): // limits that a quota demands
		t.hint, t.final = "the namespace's quota wants more limits: gorun --kubernetes --dry-run prints the objects to edit", true
	case strings.Contains(e.Message, "violates PodSecurity"):
		t.hint, t.final = "the namespace allows less than this pod wants: see its labels pod-security.kubernetes.io", true
	case strings.Contains(e.Message, "serviceaccount"):
		t.hint, t.final = "--kubernetes-options service-account=NAME names one that is there", true
	default:
		t.hint = "kubectl describe job " + e.InvolvedObject.Name + " shows all of it"
	}
	return t
}

// ofPod returns why a pod does not run.
func ofPod(p *core.Pod) *trouble {
	if p.DeletionTimestamp != nil || disrupted(p) {
		return nil
	}
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse && c.Reason == core.PodReasonUnschedulable {
			return &trouble{p.Name, "no node takes it: " + c.Message, "free some, or ask for less by --kubernetes-options cpu=…,memory=…,gpu=…", false}
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := ofContainer(p.Name, &c); t != nil {
			return t
		}
	}
	return nil
}

// absent are words in messages about images that will not come later either.
var absent = []string{"not found", "manifest unknown", "does not exist", "denied", "unauthorized", "no basic auth"}

// ofContainer returns why a container does not run.
func ofContainer(name string, c *core.ContainerStatus) *trouble {
	image := "push it, or name another one by --image; --kubernetes-options pull-secret=NAME if the registry wants a login"
	if w := c.State.Waiting; w != nil {
		why := strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff":
			final := slices.ContainsFunc(absent, func(word string) bool { return strings.Contains(w.Message, word) })
			return &trouble{name, fmt.Sprintf("no image %s: %s", c.Image, cmp.Or(w.Message, w.Reason)), image, final}
		case "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable":
			return &trouble{name, fmt.Sprintf("no image %s: %s", c.Image, why), image, w.Reason != "RegistryUnavailable"}
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return &trouble{name, why, starting(w.Message), !strings.Contains(w.Message, "secret")}
		}
	}
	if t := c.State.Terminated; t != nil && (t.Reason == "StartError" || t.Reason == "ContainerCannotRun") {
		return &trouble{name, fmt.Sprintf("%s: %s", t.Reason, t.Message), starting(t.Message), true}
	}
	return nil
}

// starting is the hint for a container that the node cannot start.
func starting(message string) string {
	switch {
	case strings.Contains(message, "runAsNonRoot"), strings.Contains(message, "non-root"):
		return "pods run as user 1000: the image must not insist on root"
	case strings.Contains(message, "executable file not found"), strings.Contains(message, "no such file"):
		return "the image needs gorun in its PATH, such as /usr/local/bin/gorun"
	}
	return "kubectl describe pod shows all of it"
}
