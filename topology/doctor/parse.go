package doctor

import (
	"strconv"
	"strings"
)

// ParseSshd reads sshd -T or an sshd_config: the first line for a keyword counts, and Match blocks are ignored.
func ParseSshd(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(strings.Replace(line, "=", " ", 1))
		if len(fields) < 2 {
			continue
		}
		key := strings.ToLower(fields[0])
		if key == "match" {
			break
		}
		if _, ok := out[key]; !ok {
			out[key] = strings.Join(fields[1:], " ")
		}
	}
	return out
}

// ParseSteal returns the share of stolen time in /proc/stat.
func ParseSteal(text string) float64 {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0
	}
	var total, steal float64
	for i, f := range fields[1:9] { // the rest is guest time, which user time includes
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0
		}
		total += float64(n)
		if i == 7 {
			steal = float64(n)
		}
	}
	if total == 0 {
		return 0
	}
	return steal / total
}

// ParseBalloon returns the bytes that a hypervisor took back, from /proc/meminfo.
func ParseBalloon(text string) int64 {
	_, rest, _ := strings.Cut(text, "\nBalloon:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kilobytes, _ := strconv.ParseInt(number, 10, 40) // 0 if there is none
	return max(kilobytes, 0) << 10
}

// wanted are the offloads without which a NIC costs much CPU time, by their names in ethtool -k and -K.
var wanted = []struct{ long, short string }{
	{"tcp-segmentation-offload", "tso"}, {"generic-segmentation-offload", "gso"}, {"generic-receive-offload", "gro"},
	{"rx-checksumming", "rx"}, {"tx-checksumming", "tx"},
}

// ParseOffloads returns the offloads that ethtool -k reports off but changeable, by their names in ethtool -K.
func ParseOffloads(text string) string {
	var off []string
	for line := range strings.SplitSeq(text, "\n") {
		name, state, ok := strings.Cut(strings.TrimSpace(line), ": ")
		for _, w := range wanted {
			if ok && name == w.long && state == "off" {
				off = append(off, w.short)
			}
		}
	}
	return strings.Join(off, " ")
}

// ParsePFC returns the priorities for which a NIC has flow control, of the output of dcb pfc show; "off" for none, "" if
// that is not known.
func ParsePFC(text string) string {
	var on []string
	_, line, known := strings.Cut(text, "prio-pfc ")
	line, _, _ = strings.Cut(line, "\n")
	for word := range strings.FieldsSeq(line) {
		if priority, state, _ := strings.Cut(word, ":"); state == "on" {
			on = append(on, priority)
		}
	}
	switch {
	case !known:
		return ""
	case on == nil:
		return "off"
	}
	return strings.Join(on, " ")
}
