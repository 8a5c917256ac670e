package picture

import (
	"math"
	"slices"
	"strings"

	"gorun/topology"
)

// Width is the greatest width of text, in columns.
const Width = 100

// Text draws the hosts as nested boxes, inside one more box for each known ESXi host, and below them the ring with the
// speed of each edge.
func Text(c Cluster) string {
	var b strings.Builder
	write := func(lines []string) {
		for _, line := range lines {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	for _, s := range c.sites() {
		whole, limit := Width, Width
		if s.title != "" {
			whole -= 4
		}
		if limit = whole; len(c.Hosts) > 1 {
			limit = (whole - 1) / 2
		}
		var hosts []block
		for _, i := range s.hosts {
			hosts = append(hosts, hostBlock(c.describe(i), limit))
		}
		inside := flow(hosts, whole)
		if s.title != "" {
			inside = frame(s.title, inside, Width)
		}
		write(inside)
	}
	if strings.Contains(b.String(), " cores: ") {
		write(wrap(legend, Width))
	}
	if len(c.Ring) > 0 {
		b.WriteString("\n")
		write(ringLines(c.Hosts, c.Ring))
	}
	for _, site := range c.Sites {
		if !site.Labelled { // labelled sites are drawn
			write(wrap(clean(site.String()), Width))
		}
	}
	return b.String()
}

func hostBlock(c card, limit int) block {
	inside := lines(c.facts, limit-4)
	var areas []block
	for _, a := range c.areas {
		areas = append(areas, frame(a.title, lines(slices.Concat(a.facts, a.nics, a.gpus, a.ranks), limit-8), limit-4))
	}
	if len(areas) > 0 {
		inside = append(inside, flow(areas, limit-4)...).level()
	}
	return frame(c.title, inside, limit)
}

// bars is the length of the bar of the fastest edge.
const bars = 16

// ringLines draws the ring as a loop that goes down through the hosts and back up on the left. Each edge has
// a bar in proportion to its speed; the slowest is marked.
func ringLines(hosts []topology.Host, legs []topology.Leg) []string {
	fastest := 0.0
	for _, leg := range legs {
		fastest = max(fastest, leg.Bandwidth)
	}
	out := []string{"The ring"}
	for i, leg := range legs {
		first, left := "│    ● ", "│    "
		if i == 0 {
			first = "╭──▶ ● "
		}
		last := i == len(legs)-1
		host := wrap(clean(name(hosts[leg.From])), Width-len("|    * "))
		out = append(out, first+host[0])
		for _, more := range host[1:] {
			out = append(out, left+"│ "+more)
		}
		bar := strings.Repeat("░", bars)
		if leg.Bandwidth > 0 {
			n := max(1, int(math.Round(bars*leg.Bandwidth/fastest)))
			bar = strings.Repeat("█", n) + strings.Repeat(" ", bars-n)
		}
		mark := "   "
		if leg.Slowest {
			mark = "◀━━"
		}
		for j, why := range wrap(clean(leg.Why), Width-len("|    |  ")-bars-len("  <==  ")) {
			arrow := "│"
			if leg.Slowest {
				arrow = "┆"
			}
			if j > 0 {
				bar, mark = strings.Repeat(" ", bars), "   "
			}
			out = append(out, left+arrow+"  "+bar+"  "+mark+"  "+why)
		}
		if last {
			out = append(out, "╰────╯")
		} else {
			out = append(out, left+"▼")
		}
	}
	return out
}

// ASCII replaces other characters by ASCII ones, one for one, so that columns stay aligned.
func ASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 {
			return r
		}
		if plain, ok := plain[r]; ok {
			return plain
		}
		return '?'
	}, text)
}

var plain = map[rune]rune{'┌': '+', '┐': '+', '└': '+', '┘': '+', '╭': '+', '╰': '+', '╯': '+', '─': '-', '│': '|', '┆': ':',
	'▶': '>', '▼': 'v', '◀': '<', '━': '=', '●': '*', '█': '#', '░': '.', '→': '>', 'µ': 'u', '…': '~', '×': 'x'}
