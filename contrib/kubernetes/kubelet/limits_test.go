//go:build linux

package main

import (
	"reflect"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestCgroupsOf(t *testing.T) {
	limits := core.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1Gi")}
	got := cgroupsOf("pod", limits, true)
	want := []cgroup{{"/sys/fs/cgroup/pod", "/sys/fs/cgroup", map[string]string{"cpu.max": "150000 100000", "memory.max": "1073741824"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("version 2: %v", got)
	}
	got = cgroupsOf("pod", limits, false)
	want = []cgroup{
		{"/sys/fs/cgroup/cpu/pod", "/sys/fs/cgroup/cpu", map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}},
		{"/sys/fs/cgroup/memory/pod", "/sys/fs/cgroup/memory", map[string]string{"memory.limit_in_bytes": "1073741824"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("version 1: %v", got)
	}
	delete(limits, "memory")
	if got := cgroupsOf("pod", limits, false); len(got) != 1 || got[0].inside != "/sys/fs/cgroup/cpu" {
		t.Errorf("without a limit of memory: %v", got)
	}
	for _, unified := range []bool{true, false} {
		if got := cgroupsOf("pod", nil, unified); len(got) != 0 {
			t.Errorf("without limits: %v", got)
		}
	}
}
