package main

import (
	"slices"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestManifest: the operator takes the manifest, and gorun its command.
func TestManifest(t *testing.T) {
	job := e2etest.Manifest(t)
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
	err := parse(t, launcher.Template.Spec.Containers[0].Command, func(o *jobFlags) {
		if o.given(&o.np) || o.given(&o.hosts) || len(o.args) == 0 {
			t.Errorf("hosts are the operator's to give: -np %d -H %q, program %q", o.np, o.hosts, o.args)
		}
	})
	if err != nil || launcher.Template.Spec.Containers[0].Command[0] != "gorun" {
		t.Errorf("%q: %v", launcher.Template.Spec.Containers[0].Command, err)
	}
}
