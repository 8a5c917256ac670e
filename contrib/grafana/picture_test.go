package grafana

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"html"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// The grid of a board on a picture, in pixels.
const (
	column, row = 44, 24
	pictureHead = `<style>text{font:11px "DejaVu Sans",Helvetica,Arial,sans-serif;fill:#24292f}.title{font-weight:bold}.dim{fill:#57606a}` +
		`.value{font-size:16px;font-weight:bold}.panel{fill:#fff;stroke:#d0d7de}.grid{stroke:#eaeef2}polyline{fill:none;stroke-width:1.5}</style>`
)

var palette = []string{"#2da44e", "#bf8700", "#0969da", "#cf222e", "#8250df", "#1b7c83", "#bc4c00", "#6e7781"}

// picture is a drawing of a board, by this program and not by Grafana: the layout, titles, units and legends of the
// board, with the answers of Prometheus.
type picture struct {
	svg      strings.Builder
	from, to time.Time
}

// shown is a series with its name.
type shown struct {
	name   string
	labels map[string]string
	points []promql.FPoint
}

// draw returns the picture of a board as SVG. ask returns the answer to a target.
func (b *board) draw(from, to time.Time, ask func(t target) promql.Matrix) string {
	p := &picture{from: from, to: to}
	height := 0
	for _, q := range b.Panels {
		height = max(height, (q.GridPos.Y+q.GridPos.H)*row)
	}
	fmt.Fprintf(&p.svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d">%s<rect width="100%%" height="100%%" fill="#f6f8fa"/>`+"\n",
		24*column, height, pictureHead)
	for _, q := range b.Panels {
		at := q.GridPos
		x, y, w, h := at.X*column+3, at.Y*row+3, at.W*column-6, at.H*row-6
		fmt.Fprintf(&p.svg, `<g transform="translate(%d %d)"><rect class="panel" rx="3" width="%d" height="%d"/>`, x, y, w, h)
		p.text("title", 8, 16, q.Title)
		var all []shown
		for _, t := range q.Targets {
			for _, s := range ask(t) {
				all = append(all, shown{t.name(s), s.Metric.Map(), s.Floats})
			}
		}
		unit := q.FieldConfig.Defaults.Unit
		switch q.Type {
		case "stat":
			value := p.inUnit(unit, all[0].points[0].F)
			if q.Options.TextMode == "name" {
				value = all[0].name
			}
			p.text("value", 8, 50, cut(value, w/10-1))
		case "barchart":
			p.bars(all, w, h)
		default:
			p.lines(all, unit, q.FieldConfig.Defaults.Custom.Stacking.Mode, w, h)
		}
		p.svg.WriteString("</g>\n")
	}
	return p.svg.String() + "</svg>\n"
}

func (p *picture) text(class string, x, y int, text string) {
	fmt.Fprintf(&p.svg, `<text class="%s" x="%d" y="%d">%s</text>`, class, x, y, html.EscapeString(text))
}

// name returns the legend of a series.
func (t target) name(s promql.Series) string {
	return regexp.MustCompile(`\{\{(\w+)\}\}`).ReplaceAllStringFunc(t.LegendFormat, func(label string) string {
		return s.Metric.Get(strings.Trim(label, "{}"))
	})
}

// lines draws series over time, on each other if they are stacked.
func (p *picture) lines(all []shown, unit, stacking string, w, h int) {
	if stacking != "none" && stacking != "" {
		all = stacked(all, stacking == "percent")
	}
	most := 0.0
	for _, s := range all {
		for _, v := range s.points {
			most = max(most, v.F)
		}
	}
	most = ceiling(unit, most)
	const left, top = 62, 28
	below := 14 * ((len(all) + 1) / 2)
	width, height := w-left-10, h-top-24-below
	for i := range 3 {
		y := top + height*i/2
		fmt.Fprintf(&p.svg, `<path class="grid" d="M%d %dh%d"/>`, left, y, width)
		p.text("dim", 6, y+4, p.inUnit(unit, most*float64(2-i)/2))
	}
	p.text("dim", left, top+height+14, p.from.UTC().Format(time.TimeOnly))
	p.text("dim", left+width-48, top+height+14, p.to.UTC().Format(time.TimeOnly))
	span := float64(p.to.Sub(p.from).Milliseconds())
	for i, s := range all {
		color := palette[i%len(palette)]
		var points []string
		for _, v := range s.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", left+float64(width)*float64(v.T-p.from.UnixMilli())/span,
				top+float64(height)*(1-v.F/most)))
		}
		fmt.Fprintf(&p.svg, `<polyline stroke="%s" points="%s"/>`, color, strings.Join(points, " "))
		p.legend(i, color, s.name, w, h-below)
	}
}

// legend names the i-th series, two in a line.
func (p *picture) legend(i int, color, name string, w, bottom int) {
	x, y := 8+i%2*(w/2-8), bottom+4+i/2*14
	fmt.Fprintf(&p.svg, `<path stroke="%s" stroke-width="3" d="M%d %dh10"/>`, color, x, y-4)
	p.text("", x+14, y, cut(name, w/2/6-5))
}

// cut shortens a text to so many letters.
func cut(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}

// stacked adds to each series those before it, as shares of the whole if they are to be.
func stacked(all []shown, shares bool) []shown {
	sums := map[int64]float64{}
	out := slices.Clone(all)
	for i, s := range all {
		out[i].points = slices.Clone(s.points)
		for k, v := range s.points {
			sums[v.T] += v.F
			out[i].points[k].F = sums[v.T]
		}
	}
	for i := range out {
		for k, v := range out[i].points {
			if shares {
				out[i].points[k].F = v.F / max(sums[v.T], 1e-9)
			}
		}
	}
	return out
}

// bars draws a bar for each host, of the shares of its activities.
func (p *picture) bars(all []shown, w, h int) {
	slices.SortFunc(all, func(a, b shown) int {
		return cmp.Or(strings.Compare(a.labels["host"], b.labels["host"]), strings.Compare(a.labels["activity"], b.labels["activity"]))
	})
	var hosts, activities []string
	filled := map[string]float64{}
	for _, s := range all {
		host, activity := s.labels["host"], s.labels["activity"]
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
			p.text("", 8, 45+26*(len(hosts)-1), host)
		}
		if !slices.Contains(activities, activity) {
			activities = append(activities, activity)
			p.legend(len(activities)-1, palette[len(activities)-1], activity, w, h-28)
		}
		y, long := 32+26*(len(hosts)-1), min(float64(w-80)*s.points[0].F, float64(w-75)-filled[host]) // rates may be a little more than 1
		fmt.Fprintf(&p.svg, `<rect x="%.1f" y="%d" width="%.1f" height="18" fill="%s"/>`, 70+filled[host], y, long,
			palette[slices.Index(activities, activity)])
		filled[host] += long
	}
}

// ceiling returns 1, 2 or 5 times a power of ten that is not less, of bytes in memory a power of two.
func ceiling(unit string, v float64) float64 {
	if v <= 0 {
		return 1
	}
	if unit == "bytes" {
		return math.Exp2(math.Ceil(math.Log2(v)))
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*power {
			return step * power
		}
	}
	return 10 * power
}

// inUnit writes a value in a unit of Grafana.
func (p *picture) inUnit(unit string, v float64) string {
	scaled := func(base float64, units ...string) string {
		i := 0
		for ; v >= base && i < len(units)-1; i++ {
			v /= base
		}
		return strings.TrimSpace(fmt.Sprintf("%.3g %s", v, units[i]))
	}
	switch {
	case unit == "percentunit":
		return fmt.Sprintf("%.3g %%", v*100)
	case unit == "dateTimeFromNow":
		return fmt.Sprintf("%.0f seconds ago", p.to.Sub(time.UnixMilli(int64(v))).Seconds())
	case unit == "s" && v < 1:
		return fmt.Sprintf("%.3g ms", v*1e3)
	case unit == "s":
		return fmt.Sprintf("%.3g s", v)
	case unit == "bytes":
		return scaled(1024, "B", "KiB", "MiB", "GiB")
	case unit == "Bps":
		return scaled(1000, "B/s", "kB/s", "MB/s", "GB/s")
	default:
		return scaled(1000, "", "k", "M")
	}
}

// wellFormed returns an error if a text is no XML.
func wellFormed(text string) error {
	return xml.Unmarshal([]byte(text), new(struct{}))
}
