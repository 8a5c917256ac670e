package helm

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

// check ends the test if there is an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the values of a file.
func read(t *testing.T, path string) (values map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, yaml.Unmarshal(text, &values))
	return values
}

// same compares a text with a file, which it writes instead if UPDATE is set.
func same(t *testing.T, path, text string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		check(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	if old, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	} else if string(old) != text {
		t.Errorf("%s differs from what the chart renders now: make modules MODULES=helm UPDATE=1, and look at the difference", path)
	}
}

// TestRendered: the chart renders what testdata holds for the values beside it, and has no complaint of Helm's linter. Its pods may do no
// more than they have to.
func TestRendered(t *testing.T) {
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("values: %q, %v", files, err)
	}
	for _, file := range files {
		values := read(t, file)
		for _, m := range lint.RunAll("gorun", values, "default").Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", file, m)
			}
		}
		text, notes, err := render("night", values, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !strings.Contains(notes, "kubectl exec -n default ") {
			t.Errorf("%s: notes: %s", file, notes)
		}
		_, set, _ := strings.Cut(text, "\nkind: StatefulSet\n")
		for _, guard := range []string{"runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false", "automountServiceAccountToken: false"} {
			if !strings.Contains(set, " "+guard+"\n") {
				t.Errorf("%s: the pods of the StatefulSet lack %s", file, guard)
			}
		}
		same(t, strings.Replace(file, ".values.", ".rendered.", 1), text)
	}
}

// TestNotes: the notes say what is missing.
func TestNotes(t *testing.T) {
	for _, tt := range []struct {
		values map[string]any
		want   string
	}{
		{map[string]any{}, "may read the Secret night-gorun-key may run programs"},
		{map[string]any{"key": map[string]any{"existingSecret": "mine"}}, "One cluster is for one tenant"},
		{map[string]any{"networkPolicy": map[string]any{"enabled": false}}, "No NetworkPolicy protects"},
		{map[string]any{"metrics": map[string]any{"enabled": true}}, "Prometheus does not reach port 9401"},
	} {
		tt.values["image"] = map[string]any{"repository": "r/train"}
		if _, notes, err := render("night", tt.values, nil); err != nil || !strings.Contains(notes, tt.want) {
			t.Errorf("%v: %v: %s, want %s", tt.values, err, notes, tt.want)
		}
	}
}

// TestPlainManifest: the manifest for users without Helm is what the chart renders.
func TestPlainManifest(t *testing.T) {
	text, err := plain()
	check(t, err)
	same(t, "../kubernetes/cluster.yaml", text)
}

// objects finds what lookups ask for.
type objects struct{ dynamic.Interface }

func (o objects) GetClientFor(version, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return o.Resource(schema.FromAPIVersionAndKind(version, kind).GroupVersion().WithResource("secrets")), true, nil
}

func lookups(t *testing.T, secrets ...runtime.Object) objects {
	t.Helper()
	types := runtime.NewScheme()
	check(t, core.AddToScheme(types))
	return objects{fake.NewSimpleDynamicClient(types, secrets...)}
}

// keyOf returns the key of the Secret that a release has.
func keyOf(t *testing.T, lookups objects) string {
	t.Helper()
	text, _, err := render("night", map[string]any{"image": map[string]any{"repository": "r/train"}}, lookups)
	check(t, err)
	for part := range strings.SplitSeq(text, "---\n") {
		var secret core.Secret
		if err := yaml.Unmarshal([]byte(part), &secret); err == nil && secret.Kind == "Secret" {
			return string(secret.Data["key"])
		}
	}
	t.Fatalf("no Secret in %s", text)
	return ""
}

// TestKey: the chart makes a key of 32 random bytes at the first installation, and keeps it at the next.
func TestKey(t *testing.T) {
	first := keyOf(t, lookups(t))
	if bytes, err := base64.StdEncoding.DecodeString(first); err != nil || len(bytes) != 32 {
		t.Errorf("%d bytes, %v", len(bytes), err)
	}
	if again := keyOf(t, lookups(t)); again == first {
		t.Error("two releases have the same key")
	}
	there := &core.Secret{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta.ObjectMeta{Namespace: "default", Name: "night-gorun-key"}, Data: map[string][]byte{"key": []byte(first)}}
	if kept := keyOf(t, lookups(t, there)); kept != first {
		t.Error("the key changed")
	}
	there.Data = map[string][]byte{"other": []byte("x")}
	_, _, err := render("night", map[string]any{"image": map[string]any{"repository": "r/train"}}, lookups(t, there))
	if err == nil || !strings.Contains(err.Error(), "has no key") {
		t.Errorf("a Secret without a key: %v", err)
	}
}

// TestWrongValues: what a user writes wrong gets a message with its name.
func TestWrongValues(t *testing.T) {
	image := map[string]any{"repository": "r/train"}
	for _, tt := range []struct {
		values map[string]any
		want   string
	}{
		{nil, "image.repository is not set"},
		{map[string]any{"image": image, "replicsa": 2}, "'replicsa'"},
		{map[string]any{"image": image, "port": 70000}, "/port"},
		{map[string]any{"image": image, "slots": "four"}, "/slots"},
		{map[string]any{"image": map[string]any{"repository": "r", "digest": "abc"}}, "/image/digest"},
		{map[string]any{"image": image, "metrics": map[string]any{"podMonitor": map[string]any{"enabled": true}}}, "metrics.enabled=true"},
	} {
		if _, _, err := render("night", tt.values, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.values, err, tt.want)
		}
	}
}
