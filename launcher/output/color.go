package output

import "fmt"

// colors are the ANSI colours that are readable on dark and bright backgrounds: cyan, green, yellow, blue, magenta,
// red.
var colors = [...]int{36, 32, 33, 34, 35, 31}

// paint colours a rank's tag.
func paint(rank int, tag string) string {
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colors[rank%len(colors)], tag)
}
