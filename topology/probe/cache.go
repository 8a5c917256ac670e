package probe

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gorun/topology"
)

func cpuDir(cpu int) string { return fmt.Sprintf("sys/devices/system/cpu/cpu%d", cpu) }

// layouts caches the layouts of this machine by their list of CPUs. They do not change while a machine runs, and
// reading them takes a dozen files for each CPU.
var layouts sync.Map

// layoutOf returns a node with what its CPUs are: cores, socket and caches.
func layoutOf(t tree, list string) topology.Node {
	if t != "/" {
		return readLayout(t, list)
	}
	known, ok := layouts.Load(list)
	if !ok {
		known, _ = layouts.LoadOrStore(list, readLayout(t, list))
	}
	n := known.(topology.Node) // a copy, because callers may write to it
	n.CPUs, n.Caches, n.Cores = slices.Clone(n.CPUs), slices.Clone(n.Caches), slices.Clone(n.Cores)
	return n
}

func readLayout(t tree, list string) topology.Node {
	cpus := parseList(list)
	return topology.Node{CPUs: cpus, Socket: socket(t, cpus), Caches: caches(t, cpus), Cores: cores(t, cpus)}
}

// socket returns the CPU package of the first of these CPUs.
func socket(t tree, cpus []int) int {
	if len(cpus) == 0 {
		return -1
	}
	return max(t.number(path.Join(cpuDir(cpus[0]), "topology/physical_package_id")), -1)
}

// cores returns the CPUs by core, none if the core of one of them is unknown.
func cores(t tree, cpus []int) [][]int {
	var cores [][]int
	seen := map[int]bool{}
	for _, cpu := range cpus {
		if seen[cpu] {
			continue
		}
		var core []int
		for _, sibling := range parseList(t.text(path.Join(cpuDir(cpu), "topology/thread_siblings_list"))) {
			if slices.Contains(cpus, sibling) && !seen[sibling] {
				core, seen[sibling] = append(core, sibling), true
			}
		}
		if !slices.Contains(core, cpu) {
			return nil
		}
		cores = append(cores, core)
	}
	return cores
}

// caches returns the caches of the CPUs, nearest first. CPUs that share a cache name the same list of CPUs.
func caches(t tree, cpus []int) []topology.Cache {
	type kind struct {
		level int
		class string
		bytes int64
	}
	found := map[kind]map[string]bool{}
	for _, cpu := range cpus {
		dir := path.Join(cpuDir(cpu), "cache")
		for _, index := range t.names(dir) {
			if !strings.HasPrefix(index, "index") {
				continue
			}
			at := path.Join(dir, index)
			k := kind{t.number(path.Join(at, "level")), t.text(path.Join(at, "type")), cacheSize(t.text(path.Join(at, "size")))}
			if k.level < 1 || k.bytes < 1 {
				continue
			}
			if found[k] == nil {
				found[k] = map[string]bool{}
			}
			found[k][t.text(path.Join(at, "shared_cpu_list"))] = true
		}
	}
	var out []topology.Cache
	for k, shared := range found {
		out = append(out, topology.Cache{Level: k.level, Type: k.class, Bytes: k.bytes, Count: len(shared)})
	}
	slices.SortFunc(out, func(a, b topology.Cache) int {
		return cmp.Or(a.Level-b.Level, strings.Compare(a.Type, b.Type), cmp.Compare(a.Bytes, b.Bytes))
	})
	return out
}

// cacheSize parses "32768K".
func cacheSize(text string) int64 {
	digits, shift := strings.TrimSuffix(text, "K"), 10
	if digits == text {
		digits, shift = strings.TrimSuffix(text, "M"), 20
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return n << shift
}
