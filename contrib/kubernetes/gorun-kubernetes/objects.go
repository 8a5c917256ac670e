package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"

	"gorun/contrib/kubernetes"
)

const (
	setLabel  = "jobset.sigs.k8s.io/jobset-name"
	partLabel = "jobset.sigs.k8s.io/replicatedjob-name"
	// ownerKey is the annotation by which gorun knows a JobSet that it made.
	ownerKey = "gorun-owner"
	// The parts of the JobSet, and their containers.
	launcherPart = "launcher"
	workerPart   = "worker"
)

// jobSet has the fields of a JobSet that jobset.yaml sets, and its status.
type jobSet struct {
	meta.TypeMeta `json:",inline"`
	Metadata      meta.ObjectMeta `json:"metadata"`
	Spec          jobSetSpec      `json:"spec"`
	Status        *jobSetStatus   `json:"status,omitempty"`
}

type jobSetSpec struct {
	Network        map[string]any  `json:"network,omitempty"`
	SuccessPolicy  map[string]any  `json:"successPolicy,omitempty"`
	FailurePolicy  map[string]any  `json:"failurePolicy,omitempty"`
	ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
	Suspend        *bool           `json:"suspend,omitempty"`
	TTL            *int32          `json:"ttlSecondsAfterFinished,omitempty"`
}

type replicatedJob struct {
	Name     string                `json:"name"`
	Template batch.JobTemplateSpec `json:"template"`
}

type jobSetStatus struct {
	Conditions []meta.Condition `json:"conditions,omitempty"`
}

// object is one to create, and where.
type object struct {
	path  string // of its kind, behind the namespace's
	value any
	meta  *meta.ObjectMeta
	// spare says what the job lacks without this object; empty if the job cannot run without it.
	spare string
}

// objects returns what a job needs: the JobSet first, which owns the others.
func (j *job) objects() ([]object, error) {
	set, network, err := template()
	if err != nil {
		return nil, fmt.Errorf("read jobset.yaml: %w", err)
	}
	set.Metadata = meta.ObjectMeta{Name: j.name, Labels: map[string]string{"app.kubernetes.io/managed-by": "gorun"},
		Annotations: map[string]string{ownerKey: rand.Text()}}
	if j.options.queue != "" {
		set.Metadata.Labels["kueue.x-k8s.io/queue-name"] = j.options.queue
	}
	ttl := int32(j.options.ttl.Seconds())
	set.Spec.TTL = &ttl
	for i := range set.Spec.ReplicatedJobs {
		part := &set.Spec.ReplicatedJobs[i]
		if part.Name == launcherPart {
			j.launcher(&part.Template.Spec)
		} else {
			j.worker(&part.Template.Spec)
		}
		pods := &part.Template.Spec.Template
		err := j.pod(&pods.Spec)
		if err == nil && len(j.template) > 0 {
			err = j.merge(part.Name, pods)
		}
		if err == nil {
			err = checkSizes(&pods.Spec)
		}
		if err != nil {
			return nil, err
		}
	}
	selector := map[string]string{setLabel: j.name}
	network.ObjectMeta = meta.ObjectMeta{Name: j.name}
	network.Spec.PodSelector.MatchLabels = selector
	network.Spec.Ingress[0].From[0].PodSelector.MatchLabels = selector
	key := make([]byte, 32)
	rand.Read(key)
	j.key = fmt.Sprintf("%x\n", key)
	secret := newSecret(j.keySecret(), map[string]string{"key": j.key})
	all := []object{{setPath, set, &set.Metadata, ""},
		{"networking.k8s.io/v1 networkpolicies", network, &network.ObjectMeta, "other pods may reach its ports"},
		{secretPath, secret, &secret.ObjectMeta, ""}} // pods start once they have the key
	if len(j.variables) > 0 && j.gorun == "" {
		variables := newSecret(j.variablesSecret(), j.variables)
		all = append(all, object{secretPath, variables, &variables.ObjectMeta, ""})
	}
	for _, budget := range []*policy.PodDisruptionBudget{newBudget(j.name, launcherPart, 1), newBudget(j.name, workerPart, j.pods(j.least))} {
		all = append(all, object{"policy/v1 poddisruptionbudgets", budget, &budget.ObjectMeta, "pods may be evicted at any time"})
	}
	return all, nil
}

// template reads jobset.yaml.
func template() (*jobSet, *networking.NetworkPolicy, error) {
	set, network := new(jobSet), new(networking.NetworkPolicy)
	parts := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(kubernetes.JobSet)))
	for _, into := range []any{set, network} {
		text, err := parts.Read()
		if err == nil {
			err = strict.UnmarshalStrict(text, into)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if _, err := parts.Read(); !errors.Is(err, io.EOF) || len(set.Spec.ReplicatedJobs) != 2 {
		return nil, nil, errors.New("it has other parts")
	}
	return set, network, nil
}

func newSecret(name string, values map[string]string) *core.Secret {
	fixed := true
	return &core.Secret{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta.ObjectMeta{Name: name}, Immutable: &fixed, StringData: values}
}

// newBudget forbids evictions that would leave a part of the JobSet fewer pods than it needs.
func newBudget(set, part string, least int) *policy.PodDisruptionBudget {
	available := intstr.FromInt(least)
	return &policy.PodDisruptionBudget{TypeMeta: meta.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: meta.ObjectMeta{Name: set + "-" + part},
		Spec: policy.PodDisruptionBudgetSpec{MinAvailable: &available,
			Selector: &meta.LabelSelector{MatchLabels: map[string]string{setLabel: set, partLabel: part}}}}
}
