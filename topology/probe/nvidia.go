package probe

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorun/topology"
)

// nvidiaSMI is the program that describes GPUs.
const nvidiaSMI = "nvidia-smi"

// nvidiaPatience bounds all calls of nvidia-smi together: they take seconds if it has to wake the GPUs, and do not end
// if the driver is stuck.
const nvidiaPatience = 8 * time.Second

// askNvidia returns the GPUs in the order of nvidia-smi, nil if it lists none. Facts that a later query does
// not return stay unknown.
func askNvidia(ctx context.Context, run runner) []topology.GPU {
	ctx, cancel := context.WithTimeout(ctx, nvidiaPatience)
	defer cancel()
	ask := func(args ...string) string {
		out, err := run(ctx, nvidiaSMI, args...)
		if err != nil {
			return ""
		}
		return string(out)
	}
	gpus := parseQuery([]byte(ask("--query-gpu=index,uuid,name,pci.bus_id,memory.total", "--format=csv,noheader,nounits")))
	if gpus == nil {
		return nil
	}
	parseMIG(ask("-L"), gpus)
	noteModes(ask("-q"), gpus)
	if len(gpus) > 1 {
		parseMatrix(ask("topo", "-m"), gpus)
	}
	return gpus
}

func parseQuery(out []byte) []topology.GPU {
	r := csv.NewReader(bytes.NewReader(out))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = 5
	records, err := r.ReadAll()
	if err != nil {
		return nil
	}
	var gpus []topology.GPU
	for _, f := range records {
		gpu := topology.GPU{Index: number(f[0]), UUID: f[1], Name: f[2], PCI: shortDomain(f[3]), Node: -1, MemBytes: -1,
			Profile: vgpuProfile(f[2])}
		if mebibytes := number(f[4]); mebibytes > 0 {
			gpu.MemBytes = int64(mebibytes) << 20
		}
		gpus = append(gpus, gpu)
	}
	return gpus
}

// vgpuProfile returns the profile that a vGPU's name ends with: 40C of "GRID A100-40C", 3-20C of
// "NVIDIA A100-3-20C".
func vgpuProfile(name string) string {
	if m := profile().FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

var profile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`-((?:\d+-)?\d+[ABCQ](?:ME)?)$`) })

// shortDomain turns "00000000:3B:00.0" into the kernel's "0000:3b:00.0", whose domains have four digits or as many as
// it takes.
func shortDomain(pci string) string {
	pci = strings.ToLower(pci)
	if domain, rest, ok := strings.Cut(pci, ":"); ok && len(domain) == 8 {
		if number, err := strconv.ParseUint(domain, 16, 32); err == nil {
			return fmt.Sprintf("%04x:%s", number, rest)
		}
	}
	return pci
}

var (
	gpuLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^GPU (\d+): .*\(UUID: ([^)]+)\)`) })
	migLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: ([^)]+)\)`) })
)

// parseMIG reads the list of GPUs, in which each is followed by its slices.
func parseMIG(list string, gpus []topology.GPU) {
	var gpu *topology.GPU
	for line := range strings.Lines(list) {
		if m := gpuLine().FindStringSubmatch(line); m != nil {
			gpu = nil
			for i := range gpus {
				if gpus[i].UUID == m[2] {
					gpu = &gpus[i]
				}
			}
		} else if m := migLine().FindStringSubmatch(line); m != nil && gpu != nil {
			gpu.MIG = append(gpu.MIG, topology.MIG{Profile: m[1], UUID: m[2]})
		}
	}
}

// Sections reads the long report of nvidia-smi (-q). For each GPU it returns the values by the names of the lines around
// them in lower case, as in "ecc mode/current", without those that the GPU lacks, and its address as "pci".
func Sections(report string) (gpus []map[string]string) {
	var section []string
	for line := range strings.Lines(report) {
		if pci, ok := strings.CutPrefix(line, "GPU "); ok {
			gpus = append(gpus, map[string]string{"pci": shortDomain(strings.TrimSpace(pci))})
			continue
		}
		text := strings.TrimLeft(line, " ")
		key, value, _ := strings.Cut(text, ":")
		depth := (len(line) - len(text)) / 4
		if len(gpus) == 0 || depth == 0 || depth > len(section)+1 {
			continue
		}
		section = append(section[:depth-1], strings.ToLower(strings.TrimSpace(key)))
		if value = strings.TrimSpace(value); value != "" && value != "N/A" {
			gpus[len(gpus)-1][strings.Join(section, "/")] = value
		}
	}
	return gpus
}

// modes are nvidia-smi's names of how a machine owns a GPU.
var modes = map[string]string{"None": "none", "Pass-Through": "passthrough", "VGPU": "vgpu", "Host VGPU": "host-vgpu", "Host VSGA": "host-vsga"}

// noteModes takes from the long report how the machine owns each GPU.
func noteModes(report string, gpus []topology.GPU) {
	for _, said := range Sections(report) {
		at := slices.IndexFunc(gpus, func(g topology.GPU) bool { return g.PCI == said["pci"] })
		if at < 0 {
			continue
		}
		g := &gpus[at]
		for key, value := range said {
			switch path.Base(key) {
			case "virtualization mode":
				g.Mode = modes[value]
			case "license status":
				g.Licence = value
			}
		}
		if g.Mode != "vgpu" && g.Mode != "" { // only the licence of a vGPU means something
			g.Licence, g.Profile = "", ""
		}
	}
}

// underline matches the escape sequence around the head of nvidia-smi's tables.
var underline = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;]*m") })

// parseMatrix reads the matrix of links between GPUs: a column and a row for each, and more for network cards. White
// space separates cells, and the cells of GPUs contain none. Lines above the column names are notes. It accepts the
// whole matrix or nothing.
func parseMatrix(text string, gpus []topology.GPU) {
	var columns []int // the GPU of each column, -1 for none
	rows := make([][]string, len(gpus))
	for line := range strings.Lines(underline().ReplaceAllString(text, "")) {
		cells := strings.Fields(line)
		if columns == nil {
			if len(cells) == 0 || gpuNumber(cells[0], gpus) < 0 {
				continue
			}
			for _, cell := range cells {
				columns = append(columns, gpuNumber(cell, gpus))
			}
			continue
		}
		if len(cells) == 0 {
			continue
		}
		row := gpuNumber(cells[0], gpus)
		if row < 0 || rows[row] != nil {
			continue
		}
		rows[row] = make([]string, len(gpus))
		for i, cell := range cells[1:] {
			if i < len(columns) && columns[i] >= 0 {
				rows[row][columns[i]] = cell
			}
		}
	}
	for i, row := range rows {
		if row == nil || row[i] != "X" {
			return
		}
	}
	for i := range gpus {
		gpus[i].Links = rows[i]
	}
}

// gpuNumber returns the index of a GPU by its name, such as "GPU4", -1 if it is not in the list.
func gpuNumber(cell string, gpus []topology.GPU) int {
	text, ok := strings.CutPrefix(strings.TrimSpace(cell), "GPU")
	index, err := strconv.Atoi(text)
	if !ok || err != nil {
		return -1
	}
	for i, gpu := range gpus {
		if gpu.Index == index {
			return i
		}
	}
	return -1
}
