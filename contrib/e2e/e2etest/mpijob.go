package e2etest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v4"

	"gorun/contrib/must"
)

// mpiJob has the fields of an MPIJob of kubeflow.org/v2beta1 that manifests use on any cluster, from mpi-operator's
// documentation of the resource. Any other field is a mistake in a manifest.
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

// Manifest reads the manifest that users start from.
func Manifest(t *testing.T) (job mpiJob) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), "contrib/kubernetes/mpijob.yaml"))
	must.Do(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	must.Do(t, decoder.Decode(&job))
	return job
}
