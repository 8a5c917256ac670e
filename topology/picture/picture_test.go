package picture_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gorun/contrib/must"
	"gorun/topology"
	"gorun/topology/picture"
	"gorun/topology/probe/probetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func probed(t *testing.T, fixture string) topology.Host {
	t.Helper()
	host := probetest.Probe(t, filepath.Join("..", "probe", "testdata", fixture+".txtar"))
	host.Arch = "amd64" // wherever the test runs
	return host
}

func alone(h topology.Host) picture.Cluster { return picture.Cluster{Hosts: []topology.Host{h}} }

// uneven is three hosts of which two are near each other.
func uneven(t *testing.T) picture.Cluster {
	const gbit = 1e9 / 8
	hosts := []topology.Host{probed(t, "vsphere"), probed(t, "virtio"), probed(t, "baremetal")}
	for i, name := range []string{"host1", "user@host2", "höst3"} {
		hosts[i].Name = name
	}
	hosts[0].NICs[0].Addrs = []string{"10.0.0.1/24", "fd00:1234:5678:9abc::1/64"}
	hosts[0].Labels = map[string]string{"rack": "r1", "esxi": "esx-07.example.com"}
	hosts[1].Labels = map[string]string{"rack": "r1"}
	hosts[2].Labels = map[string]string{"rack": "r2"}
	edges := []topology.Edge{{From: 0, To: 1, Bandwidth: 9.4 * gbit, RTT: 55e-6}, {From: 1, To: 0, Bandwidth: 9.1 * gbit},
		{From: 1, To: 2, Bandwidth: 4.7 * gbit, RTT: 210e-6}, {From: 2, To: 0, Bandwidth: 0.94 * gbit, RTT: 300e-6},
		{From: 0, To: 2, Bandwidth: 0.9 * gbit, RTT: 300e-6}}
	return picture.Cluster{Hosts: hosts, Ring: topology.Order(hosts, edges).Legs(hosts, edges)}
}

// pair is two virtual machines on one ESXi host, with their ranks.
func pair(t *testing.T) picture.Cluster {
	hosts := []topology.Host{probed(t, "pvrdma-a"), probed(t, "vsphere"), probed(t, "pvrdma-b")}
	for i, esxi := range []string{"esx-01.example.com", "esx-02.example.com", "esx-01.example.com"} {
		hosts[i].Labels = map[string]string{"esxi": esxi}
	}
	c := picture.Cluster{Hosts: hosts, Ring: topology.Order(hosts, nil).Legs(hosts, nil), Ranks: [][]int{{0, 1}, {2}, {3, 4}}}
	bind := topology.Bind{To: topology.BindCore}
	for i, ranks := range c.Ranks {
		bound, err := bind.Place(hosts[i], make([]string, len(ranks)))
		must.Do(t, err)
		engine := bind.Beside(hosts[i], bound)
		c.Bound = append(c.Bound, picture.Bound{Ranks: ranks, Bindings: bound, Engine: engine, Spare: bind.Spare(hosts[i], bound, engine)})
	}
	return c
}

// bound is a machine with ranks, the first beside a GPU, and the engine.
func bound(t *testing.T, to string, ranks int) picture.Cluster {
	t.Helper()
	h := probed(t, "baremetal")
	bind, err := topology.ParseBind(to)
	must.Do(t, err)
	b := picture.Bound{Ranks: []int{4, 5, 6, 7, 8, 9, 10, 11}[:ranks]}
	if b.Bindings, err = bind.Place(h, append([]string{"0"}, make([]string, ranks-1)...)); err != nil {
		t.Fatal(err)
	}
	b.Engine = bind.Beside(h, b.Bindings)
	b.Spare = bind.Spare(h, b.Bindings, b.Engine)
	return picture.Cluster{Hosts: []topology.Host{h}, Bound: []picture.Bound{b}}
}

// TestBinding: ranks that share CPUs have one line, on the node or, if that spans nodes, on the host.
func TestBinding(t *testing.T) {
	c := bound(t, "numa", 4)
	text := strings.Join(picture.Binding(c.Hosts[0], c.Bound[0]), "\n")
	if !strings.Contains(text, "ranks 5-6: CPUs 8-15,24-31") || strings.Contains(text, "cores: ") {
		t.Errorf("4 ranks by numa\n%s", text)
	}
	c.Bound[0].Bindings[0].CPUs = []int{0, 8}
	c.Bound[0].Ranks[1] = -1
	text = strings.Join(picture.Binding(c.Hosts[0], c.Bound[0]), "\n")
	if !strings.Contains(text, "rank 4: CPUs 0,8") || strings.Contains(text, "rank 5") || !strings.Contains(text, "cores: a number") {
		t.Errorf("a rank on two nodes, a slot without a rank\n%s", text)
	}
}

// TestSites: hosts on one machine are listed below the ring, unless it is drawn.
func TestSites(t *testing.T) {
	c := uneven(t)
	c.Sites = []topology.Site{{Hosts: []string{"host1", "user@host2"}, Confidence: 0.6, Why: "it takes at most 25 µs"},
		{Hosts: []string{"a", "b"}, Labelled: true, By: []string{"vCenter"}, Confidence: 1, Why: "its label"}}
	text := picture.Text(c)
	fits(t, text)
	if !strings.HasSuffix(text, "\nhost1, user@host2 are, by 60 %, on one ESXi host: it takes at most 25 µs\n") || strings.Contains(text, "its label") {
		t.Error(text)
	}
	var doc struct {
		Sites []struct {
			Hosts      []string
			Told       bool
			By         []string `json:"told_by"`
			Confidence float64
		}
	}
	found, err := picture.JSON(c)
	if err == nil {
		err = json.Unmarshal(found, &doc)
	}
	if err != nil || len(doc.Sites) != 2 || doc.Sites[0].Confidence != 0.6 || doc.Sites[0].Told || !doc.Sites[1].Told || !slices.Equal(doc.Sites[1].By, []string{"vCenter"}) {
		t.Errorf("%v: %+v", err, doc.Sites)
	}
}

// TestSources: programs learn, as people do, where a speed comes from, and that some interfaces report any.
func TestSources(t *testing.T) {
	host := func(driver string) topology.Host {
		return topology.Host{NICs: []topology.NIC{{Up: true, Speed: 10000, Driver: driver}}}
	}
	told := host("vmxnet3")
	told.NICs[0].Speed, told.NICs[0].Given = 5000, true
	hosts := []topology.Host{host("vmxnet3"), host("mlx5_core"), host("mlx5_core"), told, host("mlx5_core"), host("veth"), {}}
	edges := []topology.Edge{{From: 5, To: 6, Bandwidth: 125e6}, {From: 6, To: 0, Bandwidth: 125e6, InJob: true}}
	text, err := picture.JSON(picture.Cluster{Hosts: hosts, Ring: topology.OrderBy(t.Context(), topology.ByHost, hosts, edges).Legs(hosts, edges)})
	must.Do(t, err)
	var doc struct {
		Ring []struct {
			Source string `json:"speed_source"`
			Why    string `json:"why"`
		}
	}
	must.Do(t, json.Unmarshal(text, &doc))
	for i, want := range []string{"nominal", "nic", "file", "file", "nominal", "measured", "job"} {
		if got := doc.Ring[i]; got.Source != want || strings.Contains(got.Why, "nominal") != (want == "nominal") {
			t.Errorf("edge %d: %+v, should be %s", i, got, want)
		}
	}
}

// fits checks what holds for all text.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > picture.Width {
			t.Errorf("%d columns: %s", n, line)
		}
		for _, r := range line {
			if !unicode.IsPrint(r) {
				t.Errorf("character %q in %q", r, line)
			}
		}
	}
}

// wellFormed checks that it is XML, and all of it there.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

func TestGolden(t *testing.T) {
	clusters := map[string]picture.Cluster{
		"baremetal": alone(probed(t, "baremetal")),
		"vsphere":   alone(probed(t, "vsphere")),
		"container": alone(probed(t, "container")),
		"cluster":   uneven(t),
		"hgx":       alone(probed(t, "hgx")),
		"vsphere8":  alone(probed(t, "vsphere8")),
		"mig":       alone(probed(t, "mig")),
		"vgpu":      alone(probed(t, "vgpu")),
		"cloud":     alone(probed(t, "cloud")),
		"pvrdma":    pair(t),
		"bound":     bound(t, "core:2", 3),
	}
	for name, c := range clusters {
		document, err := picture.JSON(c)
		must.Do(t, err)
		text, svg := picture.Text(c), picture.SVG(c)
		fits(t, text)
		wellFormed(t, svg)
		for file, got := range map[string]string{name + ".txt": text, name + ".ascii.txt": picture.ASCII(text),
			name + ".svg": svg, name + ".json": string(document),
			name + ".xml": nccl(t, c.Hosts[0])} {
			file = filepath.Join("testdata", file)
			if *update {
				must.Do(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("%s (%v), after a look at it run go test -update; got\n%s", file, err, got)
			}
		}
	}
}

// TestPicturesInDocs checks that gorun draws the pictures in the docs. lab.svg is of lab hosts: their
// link speeds were measured. loss.svg is drawn by contrib/demo/picture.py.
func TestPicturesInDocs(t *testing.T) {
	pictures, err := filepath.Glob("../../docs/pictures/*.svg")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("found %d pictures: %v", len(pictures), err)
	}
	for _, picture := range pictures {
		if name := filepath.Base(picture); name == "lab.svg" || name == "loss.svg" {
			continue
		}
		want, err := os.ReadFile(filepath.Join("testdata", filepath.Base(picture)))
		must.Do(t, err)
		if *update {
			must.Do(t, os.WriteFile(picture, want, 0o644))
		}
		if got, err := os.ReadFile(picture); err != nil || string(got) != string(want) {
			t.Errorf("%s differs from testdata (%v): run go test -update", picture, err)
		}
	}
}

// nccl renders a host and checks what NCCL needs: every device once, below the node it is on.
func nccl(t *testing.T, h topology.Host) string {
	t.Helper()
	text, err := picture.NCCL(h)
	must.Do(t, err)
	wellFormed(t, string(text))
	for _, g := range h.GPUs {
		if strings.Count(string(text), `busid="`+g.PCI+`"`) != 1 {
			t.Errorf("GPU %s is not there once in\n%s", g.PCI, text)
		}
	}
	return string(text)
}

// TestBoxes: whatever is in them, the sides of boxes are straight.
func TestBoxes(t *testing.T) {
	h := probed(t, "baremetal")
	h.Name = strings.Repeat("ein-sehr-größer-name.", 9)
	h.GPUs[0].Name = strings.Repeat("ß", 300)
	h.NICs[3].Addrs = strings.Fields(strings.Repeat("fd00:1234:5678:9abc:def0:1234:5678:9abc/64 ", 20))
	for _, c := range []picture.Cluster{alone(h), {Hosts: []topology.Host{h, {}, h}}} {
		text := picture.Text(c)
		fits(t, text)
		lines := strings.Split(text, "\n")
		for y, line := range lines {
			for x, r := range []rune(line) {
				if r != '│' && r != '┌' && r != '┐' {
					continue
				}
				if below := []rune(lines[y+1]); x >= len(below) || !strings.ContainsRune("│└┘", below[x]) {
					t.Fatalf("line %d, column %d: nothing below %c in\n%s", y+1, x+1, r, text)
				}
			}
		}
	}
}

func TestASCII(t *testing.T) {
	text := picture.ASCII(picture.Text(uneven(t)))
	for _, r := range text {
		if r > unicode.MaxASCII {
			t.Fatalf("%c in\n%s", r, text)
		}
	}
	if strings.Count(text, "?") != 2 { // the ö of a name, in its box and in the ring
		t.Errorf("characters without a replacement in\n%s", text)
	}
}

// TestJSON reads back what was written, and sees what programs see.
func TestJSON(t *testing.T) {
	h := probed(t, "virtio")
	text, err := picture.JSON(alone(h))
	must.Do(t, err)
	again, err := picture.ParseHost(text)
	must.Do(t, err)
	second, err := picture.JSON(alone(again))
	if err != nil || !bytes.Equal(text, second) {
		t.Errorf("%v, read back\n%s", err, second)
	}
	for _, bad := range []string{"", "null", "{}", `{"hosts":[{},{}]}`, `{"hosts":[{"cpus":"x"}]}`, string(text) + "x"} {
		if _, err := picture.ParseHost([]byte(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// TestHelp compares the names in the help with the existing ones.
func TestHelp(t *testing.T) {
	c := uneven(t)
	text, err := picture.JSON(c)
	must.Do(t, err)
	var document any
	must.Do(t, json.Unmarshal(text, &document))
	words := map[string]bool{}
	for _, word := range strings.FieldsFunc(picture.JSONHelp, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) }) {
		words[word] = true
	}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				visit(e)
			}
		case map[string]any:
			for key, e := range v {
				if !words[key] && key != "esxi" && key != "rack" {
					t.Errorf("help does not name %s", key)
				}
				visit(e)
			}
		}
	}
	visit(document)
}

// TestUntouched: rendering changes nothing of what it renders.
func TestUntouched(t *testing.T) {
	c, same := uneven(t), uneven(t)
	picture.Text(c)
	picture.SVG(c)
	if _, err := picture.JSON(c); err != nil || !reflect.DeepEqual(c, same) {
		t.Errorf("%v; changed to %+v", err, c)
	}
}

// FuzzHost draws what another machine may send.
func FuzzHost(f *testing.F) {
	f.Add([]byte(`{"hosts":[{"name":"\u001b[2J","hostname":"a\u0000</svg>","nodes":[{"id":-7,"cpus":[9223372036854775807,3,3,-1]}],
		"nics":[{"name":"\u202e\u0301","node":-9,"speed_mbit":9223372036854775807}],"gpus":[{"name":"]]>","node":4}],"labels":{"\n":"&"}}]}`))
	f.Add([]byte(`{"hosts":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := picture.ParseHost(text)
		if err != nil {
			return
		}
		hosts := []topology.Host{h, {Name: "b"}, h}
		c := picture.Cluster{Hosts: hosts, Ring: topology.Order(hosts, nil).Legs(hosts, nil)}
		fits(t, picture.Text(c))
		wellFormed(t, picture.SVG(c))
		if text, err := picture.NCCL(h); err != nil {
			t.Error(err)
		} else {
			wellFormed(t, string(text))
		}
		if _, err := picture.JSON(c); err != nil {
			t.Error(err)
		}
	})
}

// TestManyHosts: a circle of as many hosts as a user can look at, and of more a list of all edges in a page of the
// usual width.
func TestManyHosts(t *testing.T) {
	for n, drawn := range map[int]bool{40: true, 41: false, 300: false} {
		var c picture.Cluster
		for i := range n {
			c.Hosts = append(c.Hosts, topology.Host{Name: fmt.Sprint("h", i)})
			c.Ring = append(c.Ring, topology.Leg{From: i, To: (i + 1) % n, Why: "9 Gbit/s measured"})
		}
		svg := picture.SVG(c)
		var width, height float64
		if _, err := fmt.Sscanf(svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %f %f"`, &width, &height); err != nil {
			t.Fatal(err)
		}
		if circle := strings.Contains(svg, `class="edge"`); circle != drawn || !drawn && width > 1100 {
			t.Errorf("%d hosts: a circle %v, %v pixels wide", n, circle, width)
		}
		if !drawn && !strings.Contains(svg, fmt.Sprintf(">The ring of %d hosts, in its order<", n)) {
			t.Errorf("%d hosts: no title", n)
		}
		if edges := strings.Count(svg, ": 9 Gbit/s measured</text>"); edges != n {
			t.Errorf("%d hosts: %d edges in the list", n, edges)
		}
	}
}

// TestEngineAnywhere: where ranks have all CPUs to themselves the picture shows that the engine runs on any.
func TestEngineAnywhere(t *testing.T) {
	h := topology.Host{Name: "a", CPUs: 2, Nodes: []topology.Node{{ID: 0, CPUs: []int{0, 1}}}}
	b := picture.Bound{Ranks: []int{0, 1}, Bindings: []topology.Binding{{CPUs: []int{0}}, {CPUs: []int{1}}}}
	if text := strings.Join(picture.Binding(h, b), "\n"); !strings.Contains(text, "engine: any CPU") {
		t.Errorf("%s", text)
	}
	b.Engine = []int{1}
	if text := strings.Join(picture.Binding(h, b), "\n"); strings.Contains(text, "any CPU") || !strings.Contains(text, "engine: CPU 1") {
		t.Errorf("%s", text)
	}
}
