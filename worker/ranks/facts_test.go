package ranks

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/rankenv"
)

// TestServers: where rank 0 of JAX and the workers of TensorFlow listen is in the roster.
func TestServers(t *testing.T) {
	r := &wire.Roster{MasterAddr: "10.0.0.1", Peers: []wire.Peer{
		{Data: []string{"10.0.0.1:7"}, Ranks: []int{0, 2}, Ports: []int{5000, 5001, 5002}},
		{Data: []string{"[fd00::2]:7"}, Ranks: []int{1}, Ports: []int{6000, 6001}},
	}}
	if got := coordinator(r); got != "10.0.0.1:5000" {
		t.Errorf("coordinator at %q", got)
	}
	at := workers(r)
	if want := []string{"10.0.0.1:5001", "[fd00::2]:6001", "10.0.0.1:5002"}; !slices.Equal(at, want) {
		t.Errorf("workers at %q, want %q", at, want)
	}
	config, _ := rankenv.Lookup(rankenv.Environment(rankenv.Facts{Rank: 2, Workers: at}, nil, nil), "TF_CONFIG")
	if want := `{"cluster":{"worker":["10.0.0.1:5001","[fd00::2]:6001","10.0.0.1:5002"]},"task":{"type":"worker","index":2}}`; config != want {
		t.Errorf("TF_CONFIG is %s", config)
	}
	r.Peers = append([]wire.Peer{{ID: 7}}, r.Peers...)
	r.Peers[2].ID = 3
	if group, groups := groupOf(r, 3); group != 1 || groups != 2 {
		t.Errorf("host %d of %d, although a host without ranks is none of them", group, groups)
	}
	r.Peers = r.Peers[1:]
	r.Peers[1].Ports = nil
	if got := workers(r); got != nil {
		t.Errorf("workers at %q with too few ports", got)
	}
}

func TestAccelerators(t *testing.T) {
	for _, tt := range []struct {
		files []string
		want  bool
	}{
		{nil, false},
		{[]string{"dev/null", "dev/tty0", "dev/dri/card0", "dev/dri/renderD128", "dev/nvme0", "dev/vfio/vfio"}, false},
		{[]string{"dev/nvidiactl"}, true},
		{[]string{"dev/kfd"}, true},
		{[]string{"dev/accel/accel0"}, true},
		{[]string{"dev/hl0"}, true},
		{[]string{"dev/hlx"}, false},
	} {
		root := fstest.MapFS{}
		for _, file := range tt.files {
			root[file] = &fstest.MapFile{}
		}
		if got := hasAccelerator(root); got != tt.want {
			t.Errorf("%q: got %v", tt.files, got)
		}
	}
	for vendor, want := range map[string]bool{"0x8086": true, "0x15ad": false, "0x1af4": false} { // Intel, VMware, virtio
		root := fstest.MapFS{"sys/class/drm/renderD128/device/vendor": {Data: []byte(vendor + "\n")}}
		if got := hasAccelerator(root); got != want {
			t.Errorf("card of %s: got %v", vendor, got)
		}
	}
}

func TestGPUs(t *testing.T) {
	cut := []topology.GPU{{UUID: "GPU-1", MIG: []topology.MIG{{UUID: "MIG-a"}, {UUID: "MIG-b"}}}, {UUID: "GPU-2"}, {Index: 7}}
	if got, want := devicesOf(cut), []string{"MIG-a", "MIG-b", "GPU-2", "7"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	gpus := []string{"GPU-a", "MIG-b"}
	for _, tt := range []struct {
		env, gpus []string
		want      string
	}{
		{nil, gpus, "MIG-b"},
		{[]string{"CUDA_VISIBLE_DEVICES=5"}, gpus, "5"},
		{nil, nil, "1"},
		{[]string{"CUDA_VISIBLE_DEVICES=5"}, nil, "1"},
	} {
		if got := deviceOf(tt.env, tt.gpus, 1); got != tt.want {
			t.Errorf("%q %q: got %s, want %s", tt.env, tt.gpus, got, tt.want)
		}
	}
	if _, err := chooseGPUs([]string{"0"}, topology.Host{}, 2); err == nil || err.Error() != "2 ranks, but 1 GPU" {
		t.Errorf("got %v", err)
	}
}

// TestGPUsByNVLink: ranks that follow one another get GPUs with a bridge between them.
func TestGPUsByNVLink(t *testing.T) {
	host := topology.Host{GPUs: []topology.GPU{{UUID: "GPU-0", Links: []string{"X", "SYS", "NV4"}}, {UUID: "GPU-1", Links: []string{"SYS", "X", "SYS"}}, {UUID: "GPU-2", Links: []string{"NV4", "SYS", "X"}}}}
	for list, want := range map[string]string{"auto": "GPU-0 GPU-2 GPU-1", "GPU-0 GPU-1": "GPU-0 GPU-1"} {
		got, err := chooseGPUs(strings.Fields(list), host, 2)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("--gpus %s: %q, %v, want %q", list, got, err, want)
		}
	}
}
