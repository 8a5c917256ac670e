//go:build linux

package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMuchOutput: 64 ranks, of one host behind one ssh connection and of four hosts, write as fast as they can, and every
// line arrives whole and in its rank's order.
func TestMuchOutput(t *testing.T) {
	c := newClusterAlone(t, 4)
	for _, hosts := range []string{"host1:64", "host1:16,host2:16,host3:16,host4:16"} {
		t.Run(hosts, func(t *testing.T) { c.muchOutput(t, hosts) })
	}
}

func (c *cluster) muchOutput(t *testing.T, hosts string) {
	const ranks, lines, width = 64, 2500, 80
	filler := strings.Repeat("x", width)
	begin := time.Now()
	r := c.gorun("-np", strconv.Itoa(ranks), "-H", hosts, "seq", "-f", "%.0f "+filler, strconv.Itoa(lines))
	took := time.Since(begin)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	t.Logf("%d MB in %v, %.0f MB/s", len(r.stdout)>>20, took.Round(time.Millisecond), float64(len(r.stdout))/1e6/took.Seconds())
	line := regexp.MustCompile(`^\[(\d+)\]<stdout>:(\d+) ` + filler + `$`)
	next := make([]int, ranks)
	for text := range strings.Lines(r.stdout) {
		m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		if m == nil {
			t.Fatalf("a torn line: %q", text)
		}
		rank, _ := strconv.Atoi(m[1])
		number, _ := strconv.Atoi(m[2])
		if rank >= ranks || number != next[rank]+1 {
			t.Fatalf("rank %d: line %d after %d", rank, number, next[rank])
		}
		next[rank] = number
	}
	for rank, last := range next {
		if last != lines {
			t.Errorf("rank %d: %d of %d lines", rank, last, lines)
		}
	}
}
