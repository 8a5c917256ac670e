package doctor

import (
	"cmp"
	"strconv"
	"strings"

	"gorun/topology/probe"
)

// GPUState is how a GPU is set up and what state it is in, as nvidia-smi reports it. What a GPU or its driver lacks is "".
type GPUState struct {
	Persistence string `json:"persistence"` // "Enabled": the driver stays loaded while no program runs
	Compute     string `json:"compute"`     // which programs may use it: "Default", "Exclusive_Process", "Prohibited"
	MIG         string `json:"mig"`         // "Enabled": it is to be cut into parts
	ECC         string `json:"ecc"`         // "Enabled" or "Disabled"
	ECCNext     string `json:"ecc_next"`    // the same, after the next reset
	Fabric      string `json:"fabric"`      // whether it has joined the network of NVSwitches: "Success", or where it stopped
	Uncorrected int    `json:"uncorrected"` // errors of memory that ECC could not correct, since the driver was loaded
	Reset       bool   `json:"reset"`       // it waits for a reset, after which spare memory takes the place of broken one
	Worn        bool   `json:"worn"`        // it has no spare memory for what broke
}

// ParseGPUStates reads the long report of nvidia-smi (-q).
func ParseGPUStates(report string) (gpus []GPUState) {
	for _, said := range probe.Sections(report) {
		g := GPUState{Persistence: said["persistence mode"], Compute: said["compute mode"], MIG: said["mig mode/current"],
			ECC: said["ecc mode/current"], ECCNext: said["ecc mode/pending"], Fabric: said["fabric/state"],
			Worn: said["remapped rows/remapping failure occurred"] == "Yes"}
		if g.Fabric == "Completed" { // then the status means something
			g.Fabric = cmp.Or(said["fabric/status"], g.Fabric)
		}
		for _, key := range []string{"gpu reset status/reset required", "remapped rows/pending", "retired pages/pending page blacklist", "retired pages/pending"} {
			g.Reset = g.Reset || said[key] == "Yes"
		}
		for key, value := range said {
			counter, errors := strings.CutPrefix(key, "ecc errors/volatile/")
			if n, err := strconv.ParseUint(value, 10, 31); err == nil && errors && (strings.Contains(counter, " uncorrectable") || counter == "double bit/total") {
				g.Uncorrected += int(n)
			}
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// Peers is how many pairs of GPUs there are, and why some of them do not reach each other's memory.
type Peers struct {
	Pairs   int            `json:"pairs"`
	Refused map[string]int `json:"refused"` // pairs, by nvidia-smi's code
}

// ParsePeers reads the matrix of nvidia-smi topo -p2p r. Pairs are counted once.
func ParsePeers(matrix string) Peers {
	peers := Peers{Refused: map[string]int{}}
	row := 0
	for line := range strings.Lines(matrix) {
		cells := strings.Fields(line)
		if len(cells) < 2 || !strings.HasPrefix(cells[0], "GPU") || strings.HasPrefix(cells[1], "GPU") {
			continue
		}
		row++
		for _, cell := range cells[min(row+1, len(cells)):] {
			peers.Pairs++
			if cell != "OK" {
				peers.Refused[cell]++
			}
		}
	}
	return peers
}
