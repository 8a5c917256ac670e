package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// helpWidth is how many columns help has, and helpColumn where the meaning of a flag begins.
const (
	helpWidth  = 80
	helpColumn = 24
)

// wrap writes words in lines of at most width columns: the first line is indented by first, the others by rest. Spaces
// within a line stay as they are.
func wrap(w io.Writer, text string, first, rest, width int) {
	line, indent := "", first
	for word := range strings.SplitAfterSeq(text, " ") {
		if line != "" && indent+utf8.RuneCountInString(line+strings.TrimRight(word, " ")) > width {
			fmt.Fprintf(w, "%*s%s\n", indent, "", strings.TrimRight(line, " "))
			line, indent = "", rest
		}
		line += word
	}
	fmt.Fprintf(w, "%*s%s\n", indent, "", strings.TrimRight(line, " "))
}

// paragraphs writes a text: lines that begin with a space stay as they are.
func paragraphs(w io.Writer, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, " ") {
			fmt.Fprintln(w, line)
		} else {
			wrap(w, line, 0, 0, helpWidth)
		}
	}
}
