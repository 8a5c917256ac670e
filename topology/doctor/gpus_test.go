package doctor_test

import (
	"testing"

	"gorun/topology/doctor"
)

// TestGPUs: doctor shows which path --gpu-path auto would take, and why.
func TestGPUs(t *testing.T) {
	for _, tt := range []struct {
		found  doctor.GPULibraries
		status doctor.Status
		text   string
	}{
		{doctor.GPULibraries{Driver: "12.8", NCCL: "2.27.5", Pairs: 2, Reached: 2}, doctor.Pass,
			"nccl, with --gpu-path auto: CUDA 12.8, NCCL 2.27.5; ipc where ranks share a GPU"},
		{doctor.GPULibraries{Driver: "12.8", NCCL: "2.27.5", Alone: "cuIpcGetMemHandle: operation not supported (801)"}, doctor.Pass,
			"nccl, with --gpu-path auto: CUDA 12.8, NCCL 2.27.5; host where ranks share a GPU: cuIpcGetMemHandle: operation not supported (801)"},
		{doctor.GPULibraries{Driver: "12.8", NCCL: "2.27.5", Parts: true}, doctor.Pass,
			"host: GPUs are cut into parts (MIG); CUDA 12.8, NCCL 2.27.5"},
		{doctor.GPULibraries{Driver: "13.0", Lacks: "no NCCL: cannot open"}, doctor.Pass,
			"host: python3 has no NCCL: cannot open; pip install nvidia-nccl-cu13 brings it; ipc where ranks share a GPU"},
		{doctor.GPULibraries{Lacks: "CUDA's driver: cannot open"}, doctor.Warn, "host: CUDA's driver: cannot open"},
	} {
		f := healthy()
		f.GPULibraries = &tt.found
		if got := finding(t, f, "GPU path"); got.Status != tt.status || got.Text != tt.text {
			t.Errorf("%+v: %s %q, want %s %q", tt.found, got.Status, got.Text, tt.status, tt.text)
		}
	}
	f := healthy()
	f.Host.GPUs[0].Licence = "Unlicensed (Restricted)"
	if got := finding(t, f, "GPU licence"); got.Status != doctor.Warn || got.Text != "A40 is slow without one: Unlicensed (Restricted)" {
		t.Errorf("a vGPU without a licence: %+v", got)
	}
}

// finding returns the only finding of a check.
func finding(t *testing.T, f doctor.Facts, check string) doctor.Finding {
	t.Helper()
	var found []doctor.Finding
	for _, one := range doctor.Judge(f) {
		if one.Check == check {
			found = append(found, one)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s: %d findings", check, len(found))
	}
	return found[0]
}
