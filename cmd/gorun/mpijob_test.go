package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v4"
)

// mpiJob is what the API server takes for an MPIJob of kubeflow.org/v2beta1, as far as manifests without a cluster's
// peculiarities have it: mpi-operator's documentation of the resource. What is not here is a mistake in a manifest.
type mpiJob struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
	Spec       struct {
		SlotsPerWorker         int    `yaml:"slotsPerWorker"`
		RunLauncherAsWorker    bool   `yaml:"runLauncherAsWorker"`
		LauncherCreationPolicy string `yaml:"launcherCreationPolicy"`
		SSHAuthMountPath       string `yaml:"sshAuthMountPath"`
		MPIImplementation      string `yaml:"mpiImplementation"`
		RunPolicy              struct {
			CleanPodPolicy          string `yaml:"cleanPodPolicy"`
			TTLSecondsAfterFinished int    `yaml:"ttlSecondsAfterFinished"`
			ActiveDeadlineSeconds   int    `yaml:"activeDeadlineSeconds"`
			BackoffLimit            int    `yaml:"backoffLimit"`
			Suspend                 bool
		} `yaml:"runPolicy"`
		MPIReplicaSpecs map[string]struct {
			Replicas      int
			RestartPolicy string `yaml:"restartPolicy"`
			Template      struct {
				Spec struct{ Containers []container }
			}
		} `yaml:"mpiReplicaSpecs"`
	}
}

type container struct {
	Name, Image   string
	Command, Args []string
	Env           []struct{ Name, Value string }
	Resources     struct{ Limits, Requests map[string]string }
}

// manifest reads the one that users begin with.
func manifest(t *testing.T) (job mpiJob) {
	t.Helper()
	text, err := os.ReadFile("../../contrib/kubernetes/mpijob.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&job); err != nil {
		t.Fatal(err)
	}
	return job
}

// TestManifest: the operator takes the manifest, and gorun its command.
func TestManifest(t *testing.T) {
	job := manifest(t)
	if job.APIVersion != "kubeflow.org/v2beta1" || job.Kind != "MPIJob" || job.Metadata.Name == "" {
		t.Errorf("%s %s %q", job.APIVersion, job.Kind, job.Metadata.Name)
	}
	spec := job.Spec
	for value, of := range map[string][]string{
		spec.RunPolicy.CleanPodPolicy: {"None", "Running", "All"},
		spec.MPIImplementation:        {"OpenMPI", "Intel", "MPICH"},
		spec.LauncherCreationPolicy:   {"", "AtStartup", "WaitForWorkersReady"},
	} {
		if !slices.Contains(of, value) {
			t.Errorf("%q is none of %q", value, of)
		}
	}
	launcher, worker := spec.MPIReplicaSpecs["Launcher"], spec.MPIReplicaSpecs["Worker"]
	if len(spec.MPIReplicaSpecs) != 2 || launcher.Replicas != 1 || worker.Replicas < 1 || spec.SlotsPerWorker < 1 {
		t.Fatalf("replicas: %+v, slots %d", spec.MPIReplicaSpecs, spec.SlotsPerWorker)
	}
	if len(launcher.Template.Spec.Containers) != 1 || len(worker.Template.Spec.Containers) != 1 {
		t.Fatal("containers: want one of each kind")
	}
	if command := worker.Template.Spec.Containers[0].Command; !slices.Equal(command, []string{"/usr/sbin/sshd", "-De"}) {
		t.Errorf("workers run %q, not the operator's sshd", command)
	}
	err := parse(t, launcher.Template.Spec.Containers[0].Command, func(c *cli.Context) {
		if c.IsSet("np") || c.IsSet("hosts") || !c.Args().Present() {
			t.Errorf("hosts are the operator's to give: -np %d -H %q, program %q", c.Int("np"), c.String("hosts"), c.Args().Slice())
		}
	})
	if err != nil || launcher.Template.Spec.Containers[0].Command[0] != "gorun" {
		t.Errorf("%q: %v", launcher.Template.Spec.Containers[0].Command, err)
	}
}
