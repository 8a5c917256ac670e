//go:build linux

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
)

// files holds the contents of a volume by name, with their modes.
type files struct {
	text map[string][]byte
	mode map[string]int32
}

// add adds the items of values, or all of them.
func (f *files) add(values map[string][]byte, items []core.KeyToPath, mode int32) error {
	if items == nil {
		for key := range values {
			items = append(items, core.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		text, found := values[item.Key]
		if !found && values != nil {
			return fmt.Errorf("references non-existent key: %s", item.Key)
		}
		if !found { // of something that may be missing
			continue
		}
		f.text[item.Path], f.mode[item.Path] = text, mode
		if item.Mode != nil {
			f.mode[item.Path] = *item.Mode
		}
	}
	return nil
}

// filesOf returns the files of a volume that has some from the start.
func (k *kubelet) filesOf(ctx context.Context, pod *core.Pod, volume *core.Volume) (*files, error) {
	f := &files{map[string][]byte{}, map[string]int32{}}
	take := func(kind, name string, optional *bool, items []core.KeyToPath, mode int32) error {
		values, err := k.values(ctx, pod.Namespace, kind, name, optional)
		if err != nil {
			return err
		}
		return f.add(values, items, mode)
	}
	downward := func(items []core.DownwardAPIVolumeFile, mode int32) error {
		for _, item := range items {
			if item.FieldRef == nil {
				return fmt.Errorf("unsupported item %s", item.Path)
			}
			text, err := field(pod, item.FieldRef.FieldPath)
			if err != nil {
				return err
			}
			f.text[item.Path], f.mode[item.Path] = []byte(text), mode
		}
		return nil
	}
	switch {
	case volume.EmptyDir != nil:
		return f, nil
	case volume.Secret != nil:
		s := volume.Secret
		return f, take("secrets", s.SecretName, s.Optional, s.Items, *s.DefaultMode)
	case volume.ConfigMap != nil:
		c := volume.ConfigMap
		return f, take("configmaps", c.Name, c.Optional, c.Items, *c.DefaultMode)
	case volume.DownwardAPI != nil:
		return f, downward(volume.DownwardAPI.Items, *volume.DownwardAPI.DefaultMode)
	case volume.Projected != nil:
		mode := *volume.Projected.DefaultMode
		for _, source := range volume.Projected.Sources {
			var err error
			switch {
			case source.Secret != nil:
				err = take("secrets", source.Secret.Name, source.Secret.Optional, source.Secret.Items, mode)
			case source.ConfigMap != nil:
				err = take("configmaps", source.ConfigMap.Name, source.ConfigMap.Optional, source.ConfigMap.Items, mode)
			case source.DownwardAPI != nil:
				err = downward(source.DownwardAPI.Items, mode)
			case source.ServiceAccountToken != nil:
				var token authentication.TokenRequest
				token.Spec.ExpirationSeconds = source.ServiceAccountToken.ExpirationSeconds
				err = k.api.call(ctx, "POST", "/api/v1/namespaces/"+pod.Namespace+"/serviceaccounts/"+
					url.PathEscape(pod.Spec.ServiceAccountName)+"/token", token, &token)
				f.text[source.ServiceAccountToken.Path], f.mode[source.ServiceAccountToken.Path] = []byte(token.Status.Token), mode
			default:
				err = fmt.Errorf("unsupported source")
			}
			if err != nil {
				return nil, err
			}
		}
		return f, nil
	}
	return nil, fmt.Errorf("unsupported kind of volume")
}

// writeVolumes makes the directories of all volumes below dir.
func (k *kubelet) writeVolumes(ctx context.Context, pod *core.Pod, dir string) error {
	group := int64(-1)
	if s := pod.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		group = *s.FSGroup
	}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		f, err := k.filesOf(ctx, pod, volume)
		if err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", volume.Name, err)
		}
		if err := f.write(filepath.Join(dir, volume.Name), int(group), volume.EmptyDir != nil); err != nil {
			return fmt.Errorf("write volume %s: %w", volume.Name, err)
		}
	}
	return nil
}

// write writes the files into a directory. The group that a pod names may read them.
func (f *files) write(dir string, group int, empty bool) error {
	mode, more := os.FileMode(0o755), os.FileMode(0)
	if empty {
		mode = 0o777
	}
	if group >= 0 {
		more = 0o440
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	if err := os.Chown(dir, 0, group); err != nil {
		return err
	}
	if err := os.Chmod(dir, mode); err != nil { // whatever the umask
		return err
	}
	for name, text := range f.text {
		path := filepath.Join(dir, name)
		if !strings.HasPrefix(path, dir+"/") {
			return fmt.Errorf("%s is outside of the volume", name)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		if err := os.Chown(path, 0, group); err != nil {
			return err
		}
		if err := os.Chmod(path, os.FileMode(f.mode[name])|more); err != nil {
			return err
		}
	}
	return nil
}
