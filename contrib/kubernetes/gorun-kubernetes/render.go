package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
}

// pods returns how many pods have room for ranks.
func (j *job) pods(ranks int) int { return (ranks + j.slots - 1) / j.slots }

func (j *job) keySecret() string       { return j.name + "-key" }
func (j *job) variablesSecret() string { return j.name + "-variables" }

// literal keeps Kubernetes from replacing $(NAME) in a word.
func literal(word string) string { return strings.ReplaceAll(word, "$", "$$") }

// launcher fills in the part that runs gorun.
func (j *job) launcher(spec *batch.JobSpec) {
	c := &spec.Template.Spec.Containers[0]
	c.Args = slices.DeleteFunc(c.Args, func(arg string) bool { return !strings.HasPrefix(arg, "--cluster") })
	c.Args = append(c.Args, "--connect-retry="+(j.wait+time.Minute).String()) // this program knows better why pods are missing
	for _, word := range j.words {
		c.Args = append(c.Args, literal(word))
	}
	if len(j.variables) > 0 {
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
