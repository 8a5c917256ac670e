//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// expand replaces $(NAME) by the variable, if there is one, and $$ by $.
func expand(text string, variables map[string]string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			return b.String() + text
		}
		b.WriteString(text[:i])
		text = text[i:]
		name, rest, closed := strings.Cut(strings.TrimPrefix(text, "$("), ")")
		value, known := variables[name]
		switch {
		case text[1] == '$':
			b.WriteByte('$')
			text = text[2:]
		case text[1] == '(' && closed && known:
			b.WriteString(value)
			text = rest
		default:
			b.WriteByte('$')
			text = text[1:]
		}
	}
}

// field returns a field of a pod, as fieldRef names it.
func field(pod *core.Pod, path string) (string, error) {
	for prefix, values := range map[string]map[string]string{"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations} {
		if key, found := strings.CutPrefix(path, prefix+"['"); found {
			return values[strings.TrimSuffix(key, "']")], nil
		}
		if path == prefix {
			var lines []string
			for _, key := range slices.Sorted(maps.Keys(values)) {
				lines = append(lines, key+"="+strconv.Quote(values[key]))
			}
			return strings.Join(lines, "\n"), nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return pod.Status.PodIP, nil
	case "status.hostIP", "status.hostIPs":
		return pod.Status.HostIP, nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

// amount returns a container's request or limit, as resourceFieldRef names it.
func amount(container *core.Container, node core.ResourceList, name string, divisor resource.Quantity) (string, error) {
	kind, what, _ := strings.Cut(name, ".")
	from := map[string]core.ResourceList{"limits": container.Resources.Limits, "requests": container.Resources.Requests}[kind]
	value, found := from[core.ResourceName(what)]
	if !found && kind == "limits" {
		value, found = node[core.ResourceName(what)]
	}
	if !found && kind == "requests" {
		value, found = resource.Quantity{}, true
	}
	if from == nil && !found {
		return "", fmt.Errorf("unsupported resource: %s", name)
	}
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	of, by := value.MilliValue(), divisor.MilliValue()
	return strconv.FormatInt((of+by-1)/by, 10), nil
}

// values returns the values of a Secret or a ConfigMap; none if an optional one is missing.
func (k *kubelet) values(ctx context.Context, namespace, kind, name string, optional *bool) (map[string][]byte, error) {
	path := "/api/v1/namespaces/" + namespace + "/" + kind + "/" + url.PathEscape(name)
	var secret core.Secret
	var config core.ConfigMap
	var err error
	if kind == "secrets" {
		err = k.api.get(ctx, path, &secret)
	} else if err = k.api.get(ctx, path, &config); err == nil {
		secret.Data = map[string][]byte{}
		maps.Copy(secret.Data, config.BinaryData)
		for key, value := range config.Data {
			secret.Data[key] = []byte(value)
		}
	}
	if err != nil && optional != nil && *optional {
		return nil, nil
	}
	return secret.Data, err
}

// environment returns the variables of a container.
func (k *kubelet) environment(ctx context.Context, pod *core.Pod, container *core.Container) (map[string]string, error) {
	variables := map[string]string{"PATH": searchPath, "HOSTNAME": hostname(pod)}
	for _, from := range container.EnvFrom {
		var values map[string][]byte
		var err error
		switch {
		case from.SecretRef != nil:
			values, err = k.values(ctx, pod.Namespace, "secrets", from.SecretRef.Name, from.SecretRef.Optional)
		case from.ConfigMapRef != nil:
			values, err = k.values(ctx, pod.Namespace, "configmaps", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for key, value := range values {
			variables[from.Prefix+key] = string(value)
		}
	}
	for _, v := range container.Env {
		value, err := expand(v.Value, variables), error(nil)
		if from := v.ValueFrom; from != nil {
			value, err = k.valueFrom(ctx, pod, container, from)
		}
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		variables[v.Name] = value
	}
	return variables, nil
}

func (k *kubelet) valueFrom(ctx context.Context, pod *core.Pod, container *core.Container, from *core.EnvVarSource) (string, error) {
	var values map[string][]byte
	var key string
	var optional *bool
	var err error
	switch {
	case from.FieldRef != nil:
		return field(pod, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return amount(container, k.node.status().Allocatable, from.ResourceFieldRef.Resource, from.ResourceFieldRef.Divisor)
	case from.SecretKeyRef != nil:
		key, optional = from.SecretKeyRef.Key, from.SecretKeyRef.Optional
		values, err = k.values(ctx, pod.Namespace, "secrets", from.SecretKeyRef.Name, optional)
	case from.ConfigMapKeyRef != nil:
		key, optional = from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional
		values, err = k.values(ctx, pod.Namespace, "configmaps", from.ConfigMapKeyRef.Name, optional)
	}
	if err != nil {
		return "", err
	}
	value, found := values[key]
	if !found && (optional == nil || !*optional) {
		return "", fmt.Errorf("couldn't find key %s", key)
	}
	return string(value), nil
}

// hostname is the host name of a pod.
func hostname(pod *core.Pod) string {
	if pod.Spec.Hostname != "" {
		return pod.Spec.Hostname
	}
	return pod.Name
}
