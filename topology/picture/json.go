package picture

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"

	"gorun/topology"
)

// document is the format of JSON. Users' programs rely on its names and those of topology.Host: add to
// them, but do not rename.
type document struct {
	Hosts []topology.Host `json:"hosts"`
	Ring  []edge          `json:"ring"`
	Sites []place         `json:"sites"`
}

// place is hosts on one machine.
type place struct {
	Hosts      []string `json:"hosts"`
	Told       bool     `json:"told"`
	By         []string `json:"told_by"`
	Confidence float64  `json:"confidence"`
	Why        string   `json:"why"`
}

type edge struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Speed   float64 `json:"speed_mbit"`
	Source  string  `json:"speed_source"`
	RTT     float64 `json:"rtt_us"`
	Slowest bool    `json:"slowest"`
	Why     string  `json:"why"`
}

// JSONHelp documents the format of JSON for users.
const JSONHelp = `{"hosts": [host, …], "ring": [edge, …], "sites": [site, …]}; -1 is an unknown number, and the ring of one host is empty.
  host   name, hostname, platform, hypervisor (by CPUID), hardware (version of
         virtual hardware), identity (of the machine), system (of its
         installation), kernel, arch, processor [vendor, family, model] (x86),
         cpus and mem_bytes (usable), usable_cpus (those it may run on), labels,
         label_sources (who told: guestinfo, topology file, or whom that names,
         such as vCenter),
         nodes [id, cpus, mem_bytes, distance (to each node, in the order of
                nodes), socket, caches [level, type, bytes (of one), count],
                cores (lists of CPUs that are one core)],
         nics  [name, driver, speed_mbit, speed_told (by the topology file),
                mtu, node, queues, pci, pci_path (root and bridges), vf, lower
                (interfaces it is made of), mac, up, addrs], data_nic (that data
                goes over, if it is known),
         rdma  [name, driver, pci, node, nic, ports [number, active, speed_mbit,
                link, gids [index, type, gid]]],
         gpus  [index, uuid, name, pci, pci_path, node, mem_bytes, mode (none,
                passthrough, vgpu), profile, licence, mig [uuid, profile], links
                (to each GPU, as nvidia-smi topo says)], nvswitches
  edge   from, to (names of hosts, in the order of the ring), speed_mbit,
         speed_source (measured, job: measured by a job on its own traffic, nic,
         nominal: what such a NIC says of any network, file: what the topology
         file says of it, or unknown), rtt_us, slowest (true on the bottleneck),
         why
  site   hosts (names of those on one ESXi host), told (by a label; or else it
         is a guess from measurements), told_by (who told the label, where that
         is known), confidence (to 1), why`

// JSON renders the cluster for programs.
func JSON(c Cluster) ([]byte, error) {
	doc := document{Hosts: c.Hosts, Ring: edgesOf(c.Hosts, c.Ring)}
	for _, s := range c.Sites {
		doc.Sites = append(doc.Sites, place{s.Hosts, s.Labelled, s.By, s.Confidence, s.Why})
	}
	fill(reflect.ValueOf(&doc).Elem())
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write topology: %w", err)
	}
	return append(text, '\n'), nil
}

func edgesOf(hosts []topology.Host, legs []topology.Leg) (out []edge) {
	for _, leg := range legs {
		e := edge{From: name(hosts[leg.From]), To: name(hosts[leg.To]), Speed: -1, Source: leg.Source, RTT: -1,
			Slowest: leg.Slowest, Why: leg.Why}
		if leg.Bandwidth > 0 {
			e.Speed = tenth(leg.Bandwidth * 8 / 1e6)
		}
		if leg.RTT > 0 {
			e.RTT = tenth(leg.RTT * 1e6)
		}
		out = append(out, e)
	}
	return out
}

// fill gives all lists in a value copies of their own, and empty ones in place of nil, so that programs always find a list.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Slice:
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	}
}

func tenth(x float64) float64 { return math.Round(x*10) / 10 }

// ParseHost reads what JSON wrote for one host. The text comes from another machine, so callers must not rely on
// the numbers.
func ParseHost(text []byte) (topology.Host, error) {
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return topology.Host{}, fmt.Errorf("parse topology: %w", err)
	}
	if len(doc.Hosts) != 1 {
		return topology.Host{}, errors.New("parse topology: it does not describe one host")
	}
	return doc.Hosts[0], nil
}
