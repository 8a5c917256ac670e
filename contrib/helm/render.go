// Package helm renders the chart of a cluster of resident daemons, in gorun, by Helm's own library.
package helm

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

// render returns what helm template writes for a release of the chart, and its notes. Lookups find what the provider has.
func render(name string, values map[string]any, lookups engine.ClientProvider) (manifest, notes string, err error) {
	chart, err := loader.LoadDir("gorun")
	if err != nil {
		return "", "", fmt.Errorf("load the chart: %w", err)
	}
	options := common.ReleaseOptions{Name: name, Namespace: "default", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, nil)
	if err != nil {
		return "", "", err
	}
	var files map[string]string
	if lookups == nil {
		files, err = engine.Render(chart, all)
	} else {
		files, err = engine.RenderWithClientProvider(chart, all, lookups)
	}
	if err != nil {
		return "", "", err
	}
	var parts []string
	for _, path := range slices.Sorted(maps.Keys(files)) {
		text := strings.TrimSpace(files[path])
		switch {
		case strings.HasSuffix(path, "NOTES.txt"):
			notes = text
		case text != "":
			parts = append(parts, strings.TrimPrefix(text, "---\n")+"\n")
		}
	}
	return strings.Join(parts, "---\n"), notes, nil
}

// Helm finds the objects of a release by these labels.
var helmLabels = regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`)

// plain returns the manifest for users without Helm: a release called gorun, with a Secret that they make.
func plain() (string, error) {
	text, _, err := render("gorun", map[string]any{
		"image":     map[string]any{"repository": "registry.example/train"},
		"key":       map[string]any{"existingSecret": "gorun-key"},
		"podLabels": map[string]any{"app": "gorun"},
	}, nil)
	return plainHeader + helmLabels.ReplaceAllString(text, ""), err
}

const plainHeader = `# A cluster of resident daemons as pods: jobs start in them without ssh and without an image of their own.
#
#   head -c 32 /dev/urandom | base64 | kubectl create secret generic gorun-key --from-file=key=/dev/stdin
#   kubectl apply -f cluster.yaml
#   kubectl exec gorun-0 -- gorun ps --cluster 127.0.0.1 --cluster-key-file /etc/gorun/key
#   kubectl exec gorun-0 -- gorun --cluster 127.0.0.1 --cluster-key-file /etc/gorun/key -np 8 python3 train.py
#
# The image needs the gorun binary and Python with your program. The daemons find each other by the name of the headless
# service, which has the addresses of all pods, ready or not, and they follow it when the StatefulSet is scaled.
#
# make modules MODULES=helm UPDATE=1 writes this file from the Helm chart in contrib/helm.

`
