package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	core "k8s.io/api/core/v1"
)

func parsed(t *testing.T, args ...string) *request {
	t.Helper()
	q, err := parse(args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return &q
}

// parts returns the JobSet of a command line and what its parts' pods are.
func parts(t *testing.T, q *request) (set *jobSet, launcher, worker *core.PodSpec) {
	t.Helper()
	all, err := q.objects()
	if err != nil {
		t.Fatal(err)
	}
	set = all[0].value.(*jobSet)
	return set, &set.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec, &set.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec
}

func amounts(list core.ResourceList, names ...core.ResourceName) (amounts []string) {
	for _, name := range names {
		amount := list[name]
		amounts = append(amounts, amount.String())
	}
	return amounts
}

// TestObjects: a command line becomes the launcher's arguments, and its ranks pods with the options' amounts.
func TestObjects(t *testing.T) {
	q := parsed(t, "-image", "reg/i:1", "-ranks", "5", "-slots", "2", "-options",
		"name=train,cpu=3,memory=6Gi,gpu=1,volume=data:/data,service-account=sa,pull-secret=login,queue=night,deadline=2h,ttl=1m", "--",
		"-np", "5", "python3", "train.py", "$(HOME)")
	set, launcher, worker := parts(t, q)
	want := []string{"--cluster=$(JOBSET)", "--cluster-key-file=/etc/gorun/key", "--connect-retry=11m0s", "-np", "5", "python3", "train.py", "$$(HOME)"}
	if c := launcher.Containers[0]; !slices.Equal(c.Args, want) || !slices.Equal(c.Command, []string{"gorun"}) || c.EnvFrom != nil {
		t.Errorf("the launcher runs %q %q", c.Command, c.Args)
	}
	job := set.Spec.ReplicatedJobs[1].Template.Spec
	if *job.Completions != 3 || *job.Parallelism != 3 {
		t.Errorf("%d workers, want 3 for 5 ranks", *job.Completions)
	}
	c := worker.Containers[0]
	want = []string{"3", "6Gi", "1"}
	for _, list := range []core.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		if got := amounts(list, "cpu", "memory", "nvidia.com/gpu"); !slices.Equal(got, want) {
			t.Errorf("a worker has %q, want %q", got, want)
		}
	}
	if i := slices.IndexFunc(c.Env, func(v core.EnvVar) bool { return v.Name == "SLOTS" }); i < 0 || c.Env[i].Value != "2" || c.Env[i].ValueFrom != nil {
		t.Errorf("variables of a worker: %v", c.Env)
	}
	for _, spec := range []*core.PodSpec{launcher, worker} {
		if spec.ServiceAccountName != "sa" || spec.ImagePullSecrets[0].Name != "login" || spec.Containers[0].Image != "reg/i:1" {
			t.Errorf("a pod is %+v", spec)
		}
		if v := spec.Volumes[len(spec.Volumes)-1]; v.PersistentVolumeClaim.ClaimName != "data" || spec.Containers[0].VolumeMounts[len(spec.Containers[0].VolumeMounts)-1].MountPath != "/data" {
			t.Errorf("the volume is %+v", v)
		}
		if s := spec.Containers[0].SecurityContext; !*spec.SecurityContext.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || *spec.AutomountServiceAccountToken {
			t.Errorf("a pod may do more than it has to: %+v", spec)
		}
	}
	if *set.Spec.TTL != 60 || *set.Spec.ReplicatedJobs[0].Template.Spec.ActiveDeadlineSeconds != 7200 || set.Metadata.Labels["kueue.x-k8s.io/queue-name"] != "night" {
		t.Errorf("the JobSet is %+v", set)
	}
}

// variables returns what readVariables reads of a variable whose value is hush.
func variables(t *testing.T, name string) (map[string]string, error) {
	t.Helper()
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	syscall.Write(pipe[1], fmt.Appendf(nil, `{%q:"hush"}`, name))
	syscall.Close(pipe[1])
	return readVariables(pipe[0])
}

// TestVariablesOfPods: a variable that the launcher itself uses in its pod is a mistake.
func TestVariablesOfPods(t *testing.T) {
	for name, refused := range map[string]bool{"PATH": true, "HOME": true, "JOBSET": true, "GORUN_ENCRYPT": true, "a b": true, "PATHS": false, "MY_HOME": false} {
		if _, err := variables(t, name); (err != nil) != refused {
			t.Errorf("-x %s: %v", name, err)
		}
	}
}

// TestVariables: values of variables are in a Secret that the launcher's environment comes from, and nowhere else.
func TestVariables(t *testing.T) {
	q := parsed(t, "-image", "i", "-ranks", "1", "--", "true")
	var err error
	if q.variables, err = variables(t, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	set, launcher, _ := parts(t, q)
	text, _ := json.Marshal(set)
	if from := launcher.Containers[0].EnvFrom; len(from) != 1 || from[0].SecretRef.Name != q.name+"-variables" || bytes.Contains(text, []byte("hush")) {
		t.Errorf("variables come from %+v; the JobSet is %s", from, text)
	}
	var out bytes.Buffer
	if err := q.print(&out); err != nil || strings.Count(out.String(), "hush") != 1 || strings.Count(out.String(), "\nkind: ") != 6 {
		t.Errorf("%v:\n%s", err, &out)
	}
}

// TestBring: the launcher's pod is attached to a job that this machine brings, whose words and variables are in no object.
func TestBring(t *testing.T) {
	q := parsed(t, "-image", "i", "-ranks", "1", "-bring", "/bin/gorun", "--", "--ship", "python3", "train.py")
	q.variables = map[string]string{"TOKEN": "hush"}
	_, launcher, _ := parts(t, q)
	if c := launcher.Containers[0]; !slices.Equal(c.Args, []string{"attach", "--cluster=$(JOBSET)", "--cluster-key-file=/etc/gorun/key", "--wait=1h10m0s"}) || c.EnvFrom != nil {
		t.Errorf("the launcher's pod runs %q with %+v", c.Args, c.EnvFrom)
	}
	var out bytes.Buffer
	if err := q.print(&out); err != nil || strings.Contains(out.String(), "hush") || strings.Contains(out.String(), "train.py") {
		t.Errorf("%v:\n%s", err, &out)
	}
}

// TestElastic: pods are as many as the largest world needs, and as many as the smallest needs are kept from evictions.
func TestElastic(t *testing.T) {
	q := parsed(t, "-image", "i", "-ranks", "4", "-least", "2", "-most", "7", "-slots", "2", "--", "true")
	if q.pods(q.most) != 4 || q.pods(q.least) != 1 {
		t.Errorf("%d and %d pods", q.pods(q.most), q.pods(q.least))
	}
	if q := parsed(t, "-image", "i", "-ranks", "4", "--", "true"); q.pods(q.most) != 4 || q.pods(q.least) != 4 || !strings.HasPrefix(q.name, "gorun-") {
		t.Errorf("%+v", q.job)
	}
}

// TestMistakes: each mistake in options is named.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"cpu":             "want KEY=VALUE",
		"cpu=":            "want KEY=VALUE",
		"cpus=2":          "no such option",
		"cpu=many":        "not an amount",
		"cpu=0":           "not an amount",
		"gpu=-1":          "not a number",
		"ttl=0s":          "not a time",
		"deadline=1":      "not a time",
		"volume=data":     "want CLAIM:/PATH",
		"volume=data:rel": "want CLAIM:/PATH",
		"name=Train":      "small letters",
		"name=-a":         "small letters",
		"cpu=2Gi":         "not an amount of that",
		"memory=32":       "not an amount of that",
		"shm=500m":        "not an amount of that",
	} {
		if _, err := parse([]string{"-image", "i", "-ranks", "1", "-options", text, "--", "true"}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--kubernetes-options ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, args := range [][]string{{}, {"-image", "i", "--", "true"}, {"-ranks", "1", "--", "true"}, {"-image", "i", "-ranks", "1"}, {"-nothing"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// TestSharedMemory: more shared memory than memory is a mistake, whichever of them an option or a template sets.
func TestSharedMemory(t *testing.T) {
	small := file(t, "spec: {containers: [{name: worker, resources: {limits: {memory: 2Gi}}}]}")
	for _, args := range [][]string{{"-options", "shm=8Gi,memory=4Gi"}, {"-options", "memory=16Gi", "-pod-template", small}} {
		q := parsed(t, append(append([]string{"-image", "i", "-ranks", "1"}, args...), "--", "true")...)
		if _, err := q.objects(); err == nil || !strings.Contains(err.Error(), "8Gi of shared memory, and ") || explain(err, 0, t.Logf) != 2 {
			t.Errorf("%q: %v", args, err)
		}
	}
	q := parsed(t, "-image", "i", "-ranks", "1", "-options", "shm=4Gi,memory=4Gi", "--", "true")
	if _, err := q.objects(); err != nil {
		t.Error(err)
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPodTemplate: what a file says of pods is merged into those of both parts, nulls delete, and the rest stays.
func TestPodTemplate(t *testing.T) {
	path := file(t, `
metadata: {annotations: {sidecar.istio.io/inject: "false"}}
spec:
  nodeSelector: {pool: gpu}
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  priorityClassName: high
  securityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
  containers:
    - name: worker
      resources: {limits: {amd.com/gpu: 8, rdma/hca: 1}}
      securityContext: {capabilities: {add: [IPC_LOCK]}}
`)
	q := parsed(t, "-image", "i", "-ranks", "2", "-options", "volume=data:/data", "-pod-template", path, "--", "true")
	set, launcher, worker := parts(t, q)
	for _, spec := range []*core.PodSpec{launcher, worker} {
		if s := spec.SecurityContext; spec.NodeSelector["pool"] != "gpu" || spec.Tolerations[0].Key != "nvidia.com/gpu" || spec.PriorityClassName != "high" || len(spec.Containers) != 1 ||
			s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || !*s.RunAsNonRoot || s.SeccompProfile == nil {
			t.Errorf("a pod is %+v", spec)
		}
		if c := spec.Containers[0]; c.Image != "i" || len(c.VolumeMounts) < 3 || c.Command[0] != "gorun" {
			t.Errorf("a container is %+v", c)
		}
	}
	c := worker.Containers[0]
	if got, want := amounts(c.Resources.Limits, "amd.com/gpu", "rdma/hca", "cpu", "memory"), []string{"8", "1", "1", "2Gi"}; !slices.Equal(got, want) {
		t.Errorf("a worker has %q, want %q", got, want)
	}
	if s := c.SecurityContext.Capabilities; s.Add[0] != "IPC_LOCK" || s.Drop[0] != "ALL" || launcher.Containers[0].SecurityContext.Capabilities.Add != nil {
		t.Errorf("capabilities are %+v", s)
	}
	if set.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations["sidecar.istio.io/inject"] != "false" {
		t.Error("the launcher's pod lacks the annotation")
	}
	for text, want := range map[string]string{"spec: {nodeselector: {a: b}}": "unknown field", "kind: Pod": "unknown field",
		"spec: {containers: [{name: main}]}": `container "main": they are launcher and worker`, "spec: [": "yaml"} {
		if _, err := parse([]string{"-image", "i", "-ranks", "1", "-pod-template", file(t, text), "--", "true"}); err == nil || !strings.Contains(err.Error(), want) || explain(err, 0, t.Logf) != 2 {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestNamespaceOfDryRun: objects that are printed are of the namespace that was named.
func TestNamespaceOfDryRun(t *testing.T) {
	var out bytes.Buffer
	q := parsed(t, "-image", "i", "-ranks", "1", "-namespace", "team-a", "-dry-run", "--", "true")
	if err := q.print(&out); err != nil || strings.Count(out.String(), "\n  namespace: team-a\n") != strings.Count(out.String(), "\nkind: ") {
		t.Errorf("%v:\n%s", err, &out)
	}
}
