package picture

import (
	"fmt"
	"html"
	"strings"
)

// HTML returns a page for a browser: the SVG picture, the ring as a table, and notes. The page is
// one file that refers to no other and runs no script.
func HTML(c Cluster, notes []string) string {
	var b strings.Builder
	b.WriteString(htmlHead)
	for _, note := range notes {
		fmt.Fprintf(&b, "<p class=\"note\">%s</p>\n", html.EscapeString(clean(note)))
	}
	titles, rings := c.rings()
	for i, legs := range rings {
		fmt.Fprintf(&b, "<h1>%s</h1>\n<table><tr><th>from</th><th>to</th><th>speed</th><th>why</th></tr>\n", html.EscapeString(titles[i]))
		for _, leg := range legs {
			row := "<tr>"
			if leg.Slowest {
				row = `<tr class="slow">`
			}
			fmt.Fprintf(&b, "%s<td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", row, html.EscapeString(clean(name(c.Hosts[leg.From]))),
				html.EscapeString(clean(name(c.Hosts[leg.To]))), strings.TrimPrefix(bandwidth(leg.Bandwidth), "speed "), html.EscapeString(clean(leg.Why)))
		}
		b.WriteString("</table>\n")
	}
	if c.Split != "" {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(clean(c.Split)))
	}
	for _, site := range c.Sites {
		if !site.Labelled { // labelled sites are drawn
			fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(clean(site.String())))
		}
	}
	b.WriteString("<figure>\n" + SVG(c) + "</figure>\n</body>\n</html>\n")
	return b.String()
}

const htmlHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<title>gorun topo</title>
<style>
body { font: 14px system-ui, sans-serif; color: #1f2328; margin: 2em }
table { border-collapse: collapse }
td, th { text-align: left; padding: 2px 12px 2px 0; border-bottom: 1px solid #d0d7de }
.slow { color: #cf222e; font-weight: bold }
.note { background: #fff8c5; padding: 6px 12px }
figure { margin: 1em 0; overflow-x: auto }
</style>
</head>
<body>
`
