package controlplane

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// image is the name that the manifests give to the image with gorun and the program.
const image = "registry.example/train:latest"

// The addresses of the node and of the registry, which testdata/node has too.
const (
	nodeAddress     = "10.78.0.1"
	registryAddress = "127.0.0.1:5000"
)

// startNode starts the kubelet and containerd, and the registry that has the image. All end with the test.
func (e *engine) startNode(gorun string) {
	e.Helper()
	l, err := net.Listen("tcp", registryAddress)
	check(e, err)
	registry := httptest.NewUnstartedServer(e.registry(gorun))
	registry.Listener.Close()
	registry.Listener = l
	registry.Start()
	e.Cleanup(registry.Close)
	e.node = exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "/bin/sh", "testdata/node/start.sh",
		filepath.Join(e.programs, "kubelet"), e.kubeconfig(), image, "testdata/node", filepath.Join(e.dir, kubeletFiles))
	startWith(e.T, e.node)
}

// registry serves the image. Its first layer is empty: start.sh has it be this machine, for its programs. The second one has
// gorun, the program that all manifests name, and how ssh is set up for MPIJobs. Its own program waits, for the containers
// that hold the namespaces of pods.
func (e *engine) registry(gorun string) http.Handler {
	e.Helper()
	mux := http.NewServeMux()
	type descriptor struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	add := func(place, kind string, text []byte) descriptor {
		d := descriptor{"application/vnd.oci.image." + kind, fmt.Sprintf("sha256:%x", sha256.Sum256(text)), len(text)}
		serve := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", d.MediaType)
			w.Header().Set("Content-Length", strconv.Itoa(d.Size))
			w.Write(text)
		}
		mux.HandleFunc("GET /v2/train/"+place+"/"+d.Digest, serve)
		if place == "manifests" {
			mux.HandleFunc("GET /v2/train/manifests/latest", serve)
		}
		return d
	}
	layers := []descriptor{add("blobs", "layer.v1.tar", e.layer(nil)),
		add("blobs", "layer.v1.tar", e.layer(map[string]string{"usr/local/bin/gorun": gorun, "opt/train/train.py": "../../../testdata/elastic/train.py",
			"etc/ssh/ssh_config": "testdata/ssh_config", "etc/ssh/sshd_config": "testdata/sshd_config"}))}
	object := func(fields map[string]any) []byte {
		text, err := json.Marshal(fields)
		check(e, err)
		return text
	}
	config := add("blobs", "config.v1+json", object(map[string]any{"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{"Cmd": []string{"sleep", "infinity"}, "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layers[0].Digest, layers[1].Digest}}}))
	add("manifests", "manifest.v1+json", object(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config, "layers": layers}))
	return mux
}

// layer makes an archive of files.
func (e *engine) layer(files map[string]string) []byte {
	e.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, from := range files {
		text, err := os.ReadFile(from)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))})
		}
		if err == nil {
			_, err = w.Write(text)
		}
		check(e, err)
	}
	check(e, w.Close())
	return archive.Bytes()
}

// kill kills the first process of a pod's only container.
func (e *engine) kill(p pod) {
	e.Helper()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "//")
	if out, err := exec.Command("nsenter", "--target", strconv.Itoa(e.node.Process.Pid), "--mount", "ctr", "--namespace", "k8s.io",
		"tasks", "kill", "--signal", "SIGKILL", id).CombinedOutput(); err != nil {
		e.Fatalf("kill the container of %s: %v: %s", p.Metadata.Name, err, out)
	}
}
