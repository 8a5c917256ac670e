package pmi

import (
	"fmt"
	"strings"
)

// Mapping describes which ranks share a host, in the format that clients request with the key PMI_process_mapping:
// (vector,(first host,hosts,ranks of each),…), where consecutive ranks follow the blocks from left to right. It is
// empty if it would exceed limit; clients then find out by themselves.
func Mapping(hosts [][]int, limit int) string {
	host := map[int]int{}
	for h, ranks := range hosts {
		for _, r := range ranks {
			host[r] = h
		}
	}
	type block struct{ first, hosts, ranks int }
	var blocks []block
	for r := 0; r < len(host); {
		h, n := host[r], 0
		for ; r < len(host) && host[r] == h; r++ {
			n++
		}
		if last := len(blocks) - 1; last >= 0 && blocks[last].ranks == n && blocks[last].first+blocks[last].hosts == h {
			blocks[last].hosts++
			continue
		}
		blocks = append(blocks, block{h, 1, n})
	}
	var b strings.Builder
	b.WriteString("(vector")
	for _, x := range blocks {
		fmt.Fprintf(&b, ",(%d,%d,%d)", x.first, x.hosts, x.ranks)
	}
	b.WriteString(")")
	if b.Len() > limit {
		return ""
	}
	return b.String()
}
