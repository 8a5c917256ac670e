// Package kubernetes has the manifests of this directory. Its tests check them against the types of Kubernetes' API.
package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// TestClusterManifest: each field of cluster.yaml is one of the API, and its parts fit each other.
func TestClusterManifest(t *testing.T) {
	text, err := os.ReadFile("cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var (
		service core.Service
		set     apps.StatefulSet
		budget  policy.PodDisruptionBudget
		network networking.NetworkPolicy
		account core.ServiceAccount
	)
	into := map[string]any{"Service": &service, "StatefulSet": &set, "PodDisruptionBudget": &budget, "NetworkPolicy": &network,
		"ServiceAccount": &account}
	for parts := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		part, err := parts.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind struct{ Kind string }
		if err := strict.Unmarshal(part, &kind); err != nil {
			t.Fatal(err)
		}
		object, ok := into[kind.Kind]
		if !ok {
			t.Errorf("%q is there twice, or is unknown to this test", kind.Kind)
			continue
		}
		delete(into, kind.Kind)
		if err := strict.UnmarshalStrict(part, object); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
	}
	if len(into) > 0 {
		t.Errorf("not there: %v", into)
	}
	labels := set.Spec.Template.Labels
	for what, selects := range map[string]map[string]string{"the service": service.Spec.Selector, "the set": set.Spec.Selector.MatchLabels,
		"the budget": budget.Spec.Selector.MatchLabels, "the policy": network.Spec.PodSelector.MatchLabels} {
		if len(selects) == 0 || slices.ContainsFunc(slices.Collect(maps.Keys(selects)), func(k string) bool { return selects[k] != labels[k] }) {
			t.Errorf("%s selects %v, and pods have %v", what, selects, labels)
		}
	}
	if service.Spec.ClusterIP != core.ClusterIPNone || set.Spec.ServiceName != service.Name || !service.Spec.PublishNotReadyAddresses {
		t.Error("pods do not find each other: the service is not headless, has another name, or waits until they are ready")
	}
	pod := set.Spec.Template.Spec
	if pod.ServiceAccountName != account.Name || *account.AutomountServiceAccountToken || *pod.AutomountServiceAccountToken {
		t.Error("the pods have another account, or a token of it")
	}
	daemon := pod.Containers[0]
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range daemon.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("no volume %s is there to mount at %s", m.Name, m.MountPath)
		}
	}
	if s := daemon.SecurityContext; !*pod.SecurityContext.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation {
		t.Error("the pod may do more than it has to")
	}
}
