package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// job is a job as the command line describes it.
type job struct {
	name      string
	image     string
	ranks     int
	least     int // fewest ranks with which an elastic job goes on; equal to ranks for other jobs
	most      int // ranks
	slots     int // ranks in a pod
	wait      time.Duration
	words     []string          // flags and program of gorun in the launcher's pod
	variables map[string]string // of the program
	options   options
	template  []byte // of pods, a strategic merge patch in JSON; empty for none
	gorun     string // its path here, for a job that brings its program or environment; "" for others
	key       string // of the workers, once there are objects
}

// pods returns how many pods have room for ranks.
func (j *job) pods(ranks int) int { return (ranks + j.slots - 1) / j.slots }

// patience is how long a launcher waits for workers. This program knows better why pods are missing.
func (j *job) patience() string { return (j.wait + time.Minute).String() }

func (j *job) keySecret() string       { return j.name + "-key" }
func (j *job) variablesSecret() string { return j.name + "-variables" }

// literal keeps Kubernetes from replacing $(NAME) in a word.
func literal(word string) string { return strings.ReplaceAll(word, "$", "$$") }

// launcher fills in the part that runs gorun.
func (j *job) launcher(spec *batch.JobSpec) {
	c := &spec.Template.Spec.Containers[0]
	c.Args = slices.DeleteFunc(c.Args, func(arg string) bool { return !strings.HasPrefix(arg, "--cluster") })
	if j.gorun != "" {
		c.Args = slices.Concat([]string{"attach"}, c.Args, []string{"--wait=" + (j.wait + bringLimit).String()})
	} else {
		c.Args = append(c.Args, "--connect-retry="+j.patience())
		for _, word := range j.words {
			c.Args = append(c.Args, literal(word))
		}
	}
	if len(j.variables) > 0 && j.gorun == "" {
		c.EnvFrom = []core.EnvFromSource{{SecretRef: &core.SecretEnvSource{LocalObjectReference: core.LocalObjectReference{Name: j.variablesSecret()}}}}
	}
	if j.options.deadline > 0 {
		seconds := int64(j.options.deadline.Seconds())
		spec.ActiveDeadlineSeconds = &seconds
	}
}

// worker fills in the part whose pods run the ranks.
func (j *job) worker(spec *batch.JobSpec) {
	pods := int32(j.pods(j.most))
	spec.Completions, spec.Parallelism = &pods, &pods
	c := &spec.Template.Spec.Containers[0]
	for i := range c.Env {
		if c.Env[i].Name == "SLOTS" {
			c.Env[i] = core.EnvVar{Name: "SLOTS", Value: strconv.Itoa(j.slots)}
		}
	}
	amount := core.ResourceList{core.ResourceCPU: j.options.cpu, core.ResourceMemory: j.options.memory}
	if j.options.gpu > 0 {
		amount["nvidia.com/gpu"] = *resource.NewQuantity(int64(j.options.gpu), resource.DecimalSI)
	}
	c.Resources = core.ResourceRequirements{Requests: amount, Limits: amount.DeepCopy()}
}

// merge puts what --pod-template says into the pods of a part. Nulls delete.
func (j *job) merge(part string, pods *core.PodTemplateSpec) error {
	patch, own := map[string]any{}, []any{}
	if err := json.Unmarshal(j.template, &patch); err != nil {
		return err
	}
	if spec, ok := patch["spec"].(map[string]any); ok {
		all, _ := spec["containers"].([]any)
		for _, c := range all {
			if c.(map[string]any)["name"] == part {
				own = append(own, c)
			}
		}
		spec["containers"] = own
	}
	before, err := json.Marshal(pods)
	if err != nil {
		return err
	}
	text, err := json.Marshal(patch)
	if err == nil {
		text, err = strategicpatch.StrategicMergePatch(before, text, core.PodTemplateSpec{})
	}
	if err != nil {
		return err
	}
	*pods = core.PodTemplateSpec{}
	return json.Unmarshal(text, pods)
}

// checkSizes finds shared memory that a pod cannot have.
func checkSizes(spec *core.PodSpec) error {
	memory, limited := spec.Containers[0].Resources.Limits[core.ResourceMemory]
	for _, v := range spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.Medium == core.StorageMediumMemory && limited && v.EmptyDir.SizeLimit.Cmp(memory) > 0 {
			return &mistake{fmt.Errorf("a pod has %s of shared memory, and %s of memory for it and all else", v.EmptyDir.SizeLimit, &memory), "--kubernetes-options memory=…, or a smaller shm=…"}
		}
	}
	return nil
}

// pod fills in what both parts have in common.
func (j *job) pod(spec *core.PodSpec) error {
	spec.ServiceAccountName = j.options.account
	if j.options.pullSecret != "" {
		spec.ImagePullSecrets = []core.LocalObjectReference{{Name: j.options.pullSecret}}
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; v.Name {
		case "key":
			v.Secret.SecretName = j.keySecret()
		case "shm":
			v.EmptyDir.SizeLimit = &j.options.shm
		}
	}
	if len(spec.Containers) != 1 {
		return fmt.Errorf("read jobset.yaml: a pod has %d containers", len(spec.Containers))
	}
	c := &spec.Containers[0]
	c.Image = j.image
	for i, m := range j.options.mounts {
		name := "volume-" + strconv.Itoa(i)
		spec.Volumes = append(spec.Volumes, core.Volume{Name: name,
			VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: m.claim}}})
		c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: name, MountPath: m.path})
	}
	return nil
}
