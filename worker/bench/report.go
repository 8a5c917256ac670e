package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"gorun/collective"
)

// Row is the result of one size.
type Row struct {
	Size   int     `json:"size"`  // bytes
	Count  int     `json:"count"` // elements that a rank contributes
	Type   string  `json:"type"`
	Op     string  `json:"redop"` // none if nothing is reduced
	Root   int     `json:"root"`  // -1 if there is none
	Iters  int     `json:"iterations"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	Min    float64 `json:"min_us"`
	AlgBW  float64 `json:"algbw_GBps"` // 10^9 bytes per second, of the median time
	BusBW  float64 `json:"busbw_GBps"`
	Wire   float64 `json:"wire_bytes"` // that the busiest host sends to others for an operation
	RDMA   float64 `json:"rdma_bytes"` // that one host sends over RDMA, at most
	TCP    float64 `json:"tcp_bytes"`  // that one host sends over TCP, at most; perhaps another one
	Errors int64   `json:"wrong"`      // elements, on all ranks
}

// row makes statistics of the times (in seconds) of one size; it sorts them.
func (c *Config) row(count, ranks int, times []float64, wrong int64) Row {
	slices.Sort(times)
	p50 := percentile(times, 50)
	r := Row{Size: c.size(count, ranks), Count: count, Type: c.Type.String(), Op: "none", Root: -1, Iters: len(times),
		P50: p50 * 1e6, P99: percentile(times, 99) * 1e6, Min: times[0] * 1e6, Errors: wrong}
	if c.Reduces() {
		r.Op = opName(c.Op)
	}
	switch c.Kind {
	case collective.Broadcast, collective.Reduce, collective.Gather, collective.Scatter:
		r.Root = 0
	case collective.Barrier:
		r.Type = "none"
	}
	if p50 > 0 {
		r.AlgBW = float64(r.Size) / p50 / 1e9
		r.BusBW = r.AlgBW * busFactor(c.Kind, ranks)
	}
	return r
}

// percentile returns the smallest of the sorted values that p percent of them do not exceed; the median of an even
// number is between the two in the middle.
func percentile(sorted []float64, p float64) float64 {
	n := len(sorted)
	if p == 50 && n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	i := int(math.Ceil(p/100*float64(n))) - 1
	return sorted[min(max(i, 0), n-1)]
}

// report writes rows as they come, as a table or as one JSON document at the end.
type report struct {
	w     io.Writer
	json  bool
	Kind  string `json:"operation"`
	Ranks int    `json:"ranks"`
	Hosts int    `json:"hosts"`
	// Asked is Config.Transport, Transport what carried bytes between hosts: tcp, rdma, both, or none.
	Asked     string `json:"asked_transport,omitempty"`
	Transport string `json:"transport"`
	Rows      []Row  `json:"rows"`

	before string
}

func (p *report) begin() error {
	if p.json {
		return nil
	}
	where := ""
	if p.Kind == collective.Allreduce.String() || p.Kind == collective.Broadcast.String() {
		where = ", in place"
	}
	_, err := fmt.Fprintf(p.w, "# %s%s; ranks: %d, hosts: %d; a time is the slowest rank's, bandwidths are of the median\n"+
		"#%11s %12s %8s %6s %5s %11s %11s %8s %8s %11s %7s\n#%11s %12s %33s %11s %8s %8s %11s\n", p.Kind, where, p.Ranks, p.Hosts,
		"size", "count", "type", "redop", "root", "p50", "p99", "algbw", "busbw", "wire", "#wrong",
		"(B)", "(elements)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(B/host)")
	return err
}

func (p *report) add(r Row) error {
	p.Rows = append(p.Rows, r)
	if p.json {
		return nil
	}
	_, err := fmt.Fprintf(p.w, "%12d %12d %8s %6s %5d %11.2f %11.2f %8.3f %8.3f %11.0f %7d\n",
		r.Size, r.Count, r.Type, r.Op, r.Root, r.P50, r.P99, r.AlgBW, r.BusBW, r.Wire, r.Errors)
	return err
}

// end returns an error if something was computed wrongly.
func (p *report) end() error {
	p.Transport = carriedBy(p.Rows)
	if p.json {
		doc, err := json.Marshal(p)
		if err == nil {
			_, err = fmt.Fprintf(p.w, "%s%s\n", p.before, doc)
		}
		if err != nil {
			return err
		}
	} else if p.Asked != "" {
		if _, err := fmt.Fprintf(p.w, "# asked for %s; bytes between hosts went over: %s\n", p.Asked, p.Transport); err != nil {
			return err
		}
	}
	var wrong int64
	for _, r := range p.Rows {
		wrong += r.Errors
	}
	if wrong > 0 {
		return fmt.Errorf("check results: %d elements are wrong", wrong)
	}
	return nil
}

// carriedBy names what carried the bytes between hosts. With RDMA, segments go over TCP until its connection is there.
func carriedBy(rows []Row) string {
	var overTCP, overRDMA float64
	for _, r := range rows {
		overTCP, overRDMA = overTCP+r.TCP, overRDMA+r.RDMA
	}
	switch {
	case overTCP == 0 && overRDMA == 0:
		return "none"
	case overRDMA == 0:
		return "tcp"
	case overTCP == 0:
		return "rdma"
	}
	return fmt.Sprintf("rdma (%.3g%%) and tcp", min(100*overRDMA/(overTCP+overRDMA), 99.9))
}
