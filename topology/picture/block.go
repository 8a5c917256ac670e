package picture

import (
	"strings"
	"unicode/utf8"
)

// block is a rectangle of text: lines of one width, in runes.
type block []string

func (b block) width() int {
	if len(b) == 0 {
		return 0
	}
	return width(b[0])
}

func width(s string) int { return utf8.RuneCountInString(s) }

func pad(s string, to int) string { return s + strings.Repeat(" ", max(0, to-width(s))) }

// lines makes a block of text, broken at limit.
func lines(text []string, limit int) block {
	var b block
	for _, line := range text {
		b = append(b, wrap(line, limit)...)
	}
	return b.level()
}

// level gives all lines the width of the widest.
func (b block) level() block {
	widest := 0
	for _, line := range b {
		widest = max(widest, width(line))
	}
	for i, line := range b {
		b[i] = pad(line, widest)
	}
	return b
}

// glue is a space at which wrap does not break.
const glue = "\u00a0"

// whole makes wrap keep a phrase on one line.
func whole(phrase string) string { return strings.ReplaceAll(phrase, " ", glue) }

// wrap breaks a line between words, or inside one that is too long, and indents the lines after the first.
func wrap(text string, limit int) []string {
	const indent = "  "
	var out []string
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		word = strings.ReplaceAll(word, glue, " ")
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) <= limit:
			line += " " + word
		default:
			out = append(out, line)
			line = indent + word
		}
		for width(line) > limit {
			runes := []rune(line)
			out = append(out, string(runes[:limit]))
			line = indent + string(runes[limit:])
		}
	}
	return append(out, line)
}

// frame draws a box with a title around a block. Inside it, a space on each side separates the block from the box.
func frame(title string, inside block, limit int) block {
	titles := wrap(title, limit-6)
	inner := max(inside.width(), width(titles[0])+2)
	if len(titles) > 1 { // the rest of a long title is inside
		inside = append(lines(titles[1:], limit-4), inside...).level()
		inner = max(inner, inside.width())
	}
	head := "┌─ " + titles[0] + " "
	out := block{head + strings.Repeat("─", inner+3-width(head)) + "┐"}
	for _, line := range inside {
		out = append(out, "│ "+pad(line, inner)+" │")
	}
	return append(out, "└"+strings.Repeat("─", inner+2)+"┘").level()
}

// stretch widens a frame.
func stretch(b block, to int) block {
	out := make(block, len(b))
	for i, line := range b {
		runes := []rune(line)
		last := len(runes) - 1
		fill := strings.Repeat(string(runes[last-1]), to-len(runes)) // a piece of the frame, or space
		out[i] = string(runes[:last]) + fill + string(runes[last])
	}
	return out
}

// flow puts frames side by side, as many as fit, and the others below. All get the width of the widest one.
func flow(frames []block, limit int) block {
	widest := 0
	for _, f := range frames {
		widest = max(widest, f.width())
	}
	var out, row block
	for _, f := range frames {
		f = stretch(f, widest)
		if row != nil && row.width()+1+widest <= limit {
			row = beside(row, f)
			continue
		}
		out, row = append(out, row...), f
	}
	return append(out, row...).level()
}

func beside(a, b block) block {
	left := a.width()
	out := make(block, max(len(a), len(b)))
	for i := range out {
		line := ""
		if i < len(a) {
			line = a[i]
		}
		out[i] = pad(line, left) + " "
		if i < len(b) {
			out[i] += b[i]
		}
	}
	return out.level()
}
