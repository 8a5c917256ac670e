package probe

import (
	"context"
	"encoding/xml"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// What VMware's programs in a virtual machine report about its host. A guest does not learn which host that is. But an
// administrator can write it where guests read it; guests whose hosts have different versions or hardware are on
// different hosts; and a guest with an unchanged session id has not moved.

const (
	// toolsPatience bounds the time for all calls of the programs together.
	toolsPatience = 3 * time.Second
	// longestLabel is the greatest length of a label, as of a host name.
	longestLabel = 253
)

// releaseLabel is the label for the version and build of a machine's hypervisor, hardwareLabel for the hypervisor's
// processors and memory.
const releaseLabel, hardwareLabel = "esxi-release", "esxi-hardware"

// guestinfoLabels are the labels that an administrator can set.
var guestinfoLabels = []string{"esxi", "rack", "zone"}

// sessionID matches the output of stat sessionid.
var sessionID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^0x[0-9a-f]{1,16}$`) })

// askTools returns labels of the host that an administrator has set as guestinfo.gorun.esxi, .rack and .zone,
// and those for the hypervisor's release and hardware. It also returns the session id. All are empty if the programs do
// not answer.
func askTools(ctx context.Context, run runner) (labels map[string]string, session string) {
	if run == nil {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, toolsPatience)
	defer cancel()
	labels = map[string]string{}
	add := func(label, text string) {
		if text = strings.TrimSpace(text); isLabel(text) {
			labels[label] = text
		}
	}
	text, err := run(ctx, "vmware-toolbox-cmd", "stat", "sessionid")
	if err != nil && len(text) == 0 && ctx.Err() != nil {
		return nil, "" // they hang
	}
	if id := strings.TrimSpace(string(text)); err == nil && sessionID().MatchString(id) {
		session = id
	}
	text, _ = run(ctx, "vmware-toolbox-cmd", "stat", "raw", "text", "session")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "version" {
			add(releaseLabel, value)
		}
	}
	if text, err := run(ctx, "vmware-toolbox-cmd", "stat", "raw", "xml", "host"); err == nil {
		add(hardwareLabel, staticFacts(text))
	}
	for _, label := range guestinfoLabels {
		if text, err := run(ctx, "vmtoolsd", "--cmd", "info-get guestinfo.gorun."+label); err == nil {
			add(label, string(text))
		}
	}
	if len(labels) == 0 {
		labels = nil
	}
	return labels, session
}

// staticFacts selects from metrics in XML the ones that do not change while a host runs, sorted by name: "cores=32,
// memory=512 GB". Their set depends on the release; they are only compared.
func staticFacts(text []byte) string {
	var metrics struct {
		Metric []struct {
			Name  string `xml:"name,attr"`
			Type  string `xml:"type,attr"`
			Units string `xml:"units,attr"`
			Value string `xml:",chardata"`
		} `xml:"metric"`
	}
	if xml.Unmarshal(text, &metrics) != nil {
		return ""
	}
	var facts []string
	for _, m := range metrics.Metric {
		if value := strings.TrimSpace(m.Value + " " + m.Units); m.Type == "static" && value != "" {
			facts = append(facts, strings.TrimSpace(m.Name)+"="+value)
		}
	}
	slices.Sort(facts)
	all := strings.Join(facts, ", ")
	if len(all) > longestLabel {
		return digest(all)
	}
	return all
}

// isLabel reports whether a topology file would accept the label.
func isLabel(text string) bool {
	return text != "" && len(text) <= longestLabel && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
