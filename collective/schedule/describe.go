package schedule

import (
	"fmt"
	"math"
	"strings"
)

// Describe returns, in words, what messages cost and how allreduces are done between hosts.
func (c Cost) Describe(hosts int, directMax int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "a message takes %s µs, a byte %s ns (%s GB/s); allreduce by ",
		figures(c.Alpha*1e6), figures(c.Beta*1e9), figures(1e-9/c.Beta))
	changes := c.Crossovers(hosts, directMax, 1<<32)
	for i, ch := range changes {
		if i > 0 {
			fmt.Fprintf(&b, ", from %s by ", sizeText(ch.From))
		}
		b.WriteString(ch.By.String())
	}
	return b.String()
}

// figures writes a number with its significant figures.
func figures(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// Sound reports whether c can be what a link costs.
func (c Cost) Sound() bool {
	for _, x := range []float64{c.Alpha, c.Beta, c.Gap} {
		if math.IsNaN(x) || x < 0 || x > 100 {
			return false
		}
	}
	return c.Alpha > 0 && c.Beta > 0
}

// Slower returns the greater costs of two links: an operation goes over both. One that is not sound does not
// count.
func (c Cost) Slower(o Cost) Cost {
	switch {
	case !o.Sound():
		return c
	case !c.Sound():
		return o
	}
	return Cost{Alpha: max(c.Alpha, o.Alpha), Beta: max(c.Beta, o.Beta), Gap: max(c.Gap, o.Gap)}
}

// sizeText writes a size as a person would: 4 B, 18 KiB, 3 MiB.
func sizeText(n int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(int64(1)<<u.shift), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
