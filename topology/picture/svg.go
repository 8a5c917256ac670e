package picture

import (
	"fmt"
	"html"
	"math"
	"strings"

	"gorun/topology"
)

// Sizes in SVG, in pixels. Text is 12 px in a font of one width, of which a character takes some 7.3 px.
const (
	charWidth  = 7.3
	ringBox    = 136.0 // width of a host on the ring
	lineHeight = 16.0
	margin     = 12.0 // around and between boxes
	cardWidth  = 488.0
	spacing    = 36.0 // of the hosts on the ring, for each in its radius: room for a speed between two
	mostDrawn  = 40   // hosts on a circle: with more, no screen shows both the whole and readable names
)

// SVG draws the ring as a circle of hosts with a list of its edges, or with many hosts as the list alone, and below
// it each host with its NUMA nodes and devices. The result is one file without references: no script, font or style
// sheet.
func SVG(c Cluster) string {
	d := drawing{width: 2*cardWidth + 3*margin}
	radius := max(150, spacing*float64(len(c.Ring)))
	if len(c.Ring) > 0 && len(c.Ring) <= mostDrawn {
		d.width = max(d.width, 2*(radius+ringBox/2+margin))
	}
	switch {
	case len(c.Ring) > mostDrawn:
		d.bottom += 2 * margin
		d.below("title", fmt.Sprintf("The ring of %d hosts, in its order", len(c.Ring)))
	case len(c.Ring) > 0:
		d.circle(c.Hosts, c.Ring, radius)
	}
	d.list(c.Hosts, c.Ring)
	d.cards(c)

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f">`+"\n",
		d.width, d.bottom, d.width, d.bottom)
	b.WriteString(svgHead)
	b.WriteString(d.out.String())
	b.WriteString("</svg>\n")
	return b.String()
}

const svgHead = `<title>gorun topo</title>
<style>
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2328 }
.title { font-weight: bold }
.page { fill: #ffffff }
.host { fill: #f6f8fa; stroke: #57606a }
.site { fill: #eaeef2; stroke: #57606a; stroke-width: 2 }
.node { fill: #ddf4ff; stroke: #54aeff }
.elsewhere { fill: #ffffff; stroke: #8c959f; stroke-dasharray: 4 3 }
.nic { fill: #dafbe1; stroke: #4ac26b }
.gpu { fill: #fbefff; stroke: #c297ff }
.rank { fill: #fff8c5; stroke: #d4a72c }
.edge { fill: none; stroke: #57606a; stroke-width: 2 }
.slowest { fill: none; stroke: #cf222e; stroke-width: 4 }
.alarm { fill: #cf222e; font-weight: bold }
</style>
<defs>
<marker id="arrow" viewBox="0 0 10 10" refX="5" refY="5" markerUnits="userSpaceOnUse" markerWidth="14" markerHeight="14" orient="auto"><path d="M0 0L10 5L0 10z" fill="#57606a"/></marker>
<marker id="alarm" viewBox="0 0 10 10" refX="5" refY="5" markerUnits="userSpaceOnUse" markerWidth="18" markerHeight="18" orient="auto"><path d="M0 0L10 5L0 10z" fill="#cf222e"/></marker>
</defs>
<rect class="page" width="100%" height="100%"/>
`

// drawing is an unfinished picture, which grows from top to bottom.
type drawing struct {
	out    strings.Builder
	width  float64
	bottom float64 // the lowest point drawn so far
}

func (d *drawing) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&d.out, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4"/>`+"\n", class, x, y, width, height)
}

// text writes a line; anchor is start, middle or end.
func (d *drawing) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(&d.out, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, anchor, x, y, html.EscapeString(text))
}

// circle draws the hosts of a ring on one, with the speeds between them.
func (d *drawing) circle(hosts []topology.Host, ring []topology.Leg, radius float64) {
	const boxWidth, boxHeight, letters = ringBox, 40.0, 18
	x0, y0 := d.width/2, d.bottom+radius+boxHeight/2+2*margin
	at := func(turn, radius float64) (x, y float64) { // clockwise from the top
		sin, cos := math.Sincos(2 * math.Pi * turn)
		return x0 + radius*sin, y0 - radius*cos
	}
	n := float64(len(ring))
	for i, leg := range ring {
		class, marker, alarm := "edge", "arrow", ""
		if leg.Slowest {
			class, marker, alarm = "slowest", "alarm", "alarm"
		}
		turn := (float64(i) + 0.5) / n
		x1, y1 := at(float64(i)/n, radius)
		x2, y2 := at(turn, radius)
		x3, y3 := at(float64(i+1)/n, radius)
		// In two halves: the arrow is in the middle, where no host covers it.
		fmt.Fprintf(&d.out, `<path class="%s" marker-end="url(#%s)" d="M%.1f %.1fA%.1f %.1f 0 0 1 %.1f %.1f"/>`+"\n", class, marker, x1, y1, radius, radius, x2, y2)
		fmt.Fprintf(&d.out, `<path class="%s" d="M%.1f %.1fA%.1f %.1f 0 0 1 %.1f %.1f"><title>%s</title></path>`+"\n", class, x2, y2, radius, radius, x3, y3,
			html.EscapeString(edgeTitle(hosts, leg)))
		// The speed is inside the circle: outside, hosts near the top and the bottom would cover it.
		anchor := "middle"
		sin, cos := math.Sincos(2 * math.Pi * turn)
		if sin > 0.3 {
			anchor = "end"
		} else if sin < -0.3 {
			anchor = "start"
		}
		x, y := at(turn, radius-16-14*math.Abs(cos))
		d.text(alarm, anchor, x, y+4, strings.TrimPrefix(bandwidth(leg.Bandwidth), "speed "))
	}
	for i, leg := range ring {
		x, y := at(float64(i)/n, radius)
		d.rect("host", x-boxWidth/2, y-boxHeight/2, boxWidth, boxHeight)
		h := hosts[leg.From]
		d.text("title", "middle", x, y-3, cut(clean(name(h)), letters))
		d.text("", "middle", x, y+13, cut(clean(platform(h.Platform)), letters))
	}
	d.bottom = y0 + radius + boxHeight/2 + 3*margin
}

// list writes the reason for each edge of a ring.
func (d *drawing) list(hosts []topology.Host, ring []topology.Leg) {
	for _, leg := range ring {
		class := ""
		if leg.Slowest {
			class = "alarm"
		}
		d.below(class, edgeTitle(hosts, leg))
	}
}

// below writes text below everything drawn so far.
func (d *drawing) below(class, text string) {
	for _, line := range wrap(text, int((d.width-2*margin)/charWidth)) {
		d.text(class, "start", margin, d.bottom, line)
		d.bottom += lineHeight
	}
}

// edgeTitle is an edge in one line.
func edgeTitle(hosts []topology.Host, leg topology.Leg) string {
	return fmt.Sprintf("%s → %s: %s", clean(name(hosts[leg.From])), clean(name(hosts[leg.To])), clean(leg.Why))
}

func cut(s string, to int) string {
	if runes := []rune(s); len(runes) > to {
		return string(runes[:to-1]) + "…"
	}
	return s
}

// cards draws the hosts in columns, each in the column that is shortest so far.
func (d *drawing) cards(c Cluster) {
	columns := make([]float64, max(1, int((d.width-margin)/(cardWidth+margin))))
	for i := range columns {
		columns[i] = d.bottom + margin
	}
	for _, s := range c.sites() {
		var boxes []box
		for _, i := range s.hosts {
			boxes = append(boxes, c.describe(i).box())
		}
		if s.title != "" { // the hosts share a frame
			boxes = []box{{class: "site", title: s.title, boxes: boxes}}
		}
		for _, b := range boxes {
			shortest := 0
			for i, bottom := range columns {
				if bottom < columns[shortest] {
					shortest = i
				}
			}
			x := margin + float64(shortest)*(cardWidth+margin)
			columns[shortest] += d.box(b, x, columns[shortest], cardWidth) + margin
		}
	}
	for _, bottom := range columns {
		d.bottom = max(d.bottom, bottom)
	}
}

// box is a rectangle with a title, lines, and nested boxes below each other.
type box struct {
	class, title string
	lines        []string
	boxes        []box
}

func (c card) box() box {
	root := box{class: "host", title: c.title, lines: c.facts}
	for _, a := range c.areas {
		node := box{class: "node", title: a.title, lines: a.facts}
		if len(a.facts) == 0 {
			node.class = "elsewhere"
		}
		for _, nic := range a.nics {
			node.boxes = append(node.boxes, box{class: "nic", lines: []string{nic}})
		}
		for _, gpu := range a.gpus {
			node.boxes = append(node.boxes, box{class: "gpu", lines: []string{gpu}})
		}
		for _, rank := range a.ranks {
			node.boxes = append(node.boxes, box{class: "rank", lines: []string{rank}})
		}
		root.boxes = append(root.boxes, node)
	}
	return root
}

// box draws b and returns its height. The rectangle precedes its content in the file, to lie behind it, although its
// height is known last.
func (d *drawing) box(b box, x, y, width float64) float64 {
	inside := drawing{width: d.width}
	bottom := y + margin/2
	line := func(class, text string) {
		for _, part := range wrap(text, int((width-2*margin)/charWidth)) {
			inside.text(class, "start", x+margin, bottom+lineHeight*0.8, indented(part))
			bottom += lineHeight
		}
	}
	if b.title != "" {
		line("title", b.title)
	}
	for _, text := range b.lines {
		line("", text)
	}
	for _, inner := range b.boxes {
		bottom += margin / 3
		bottom += inside.box(inner, x+margin, bottom, width-2*margin)
	}
	bottom += margin / 2
	d.rect(b.class, x, y, width, bottom-y)
	d.out.WriteString(inside.out.String())
	return bottom - y
}

// indented keeps the spaces at the beginning of a line, which XML would drop.
func indented(line string) string {
	rest := strings.TrimLeft(line, " ")
	return strings.Repeat("\u00a0", len(line)-len(rest)) + rest
}
