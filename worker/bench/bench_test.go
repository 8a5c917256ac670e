package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
)

func TestSize(t *testing.T) {
	for s, want := range map[string]int{"4": 4, "0": 0, "64K": 64 << 10, "64k": 64 << 10, "1M": 1 << 20, "3MiB": 3 << 20, "256MB": 256 << 20,
		"1G": 1 << 30, "12B": 12} {
		if got, err := Size(s); err != nil || got != want {
			t.Errorf("Size(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "K", "-4", "1.5M", "4 K", "4T", "0x10", "4KK", "99999999999G", "9223372036854775808", "+4"} {
		if got, err := Size(s); err == nil {
			t.Errorf("Size(%q) = %d, want an error", s, got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, op := range opsByName {
		if got, err := Op(name); err != nil || got != op || opName(op) != name {
			t.Errorf("Op(%q) = %v, %v, whose name is %q", name, got, err, opName(op))
		}
	}
	if got, err := Type("bfloat16"); err != nil || got != kernel.BFloat16 {
		t.Errorf("Type(bfloat16) = %v, %v", got, err)
	}
	if _, err := Type("complex64"); err == nil {
		t.Error("complex64 is accepted")
	}
	for _, name := range Kinds() {
		if k, err := Kind(name); err != nil || KindName(k) != name {
			t.Errorf("Kind(%q) = %v, %v, whose name is %q", name, k, err, KindName(k))
		}
	}
	if _, err := Kind("allsum"); err == nil || !strings.Contains(err.Error(), "allgather, allreduce, alltoall, barrier, broadcast") {
		t.Errorf("allsum: %v, want a list of what there is", err)
	}
}

func TestCheck(t *testing.T) {
	good := Config{Kind: collective.Allreduce, Type: kernel.Float32, Op: kernel.Sum, Begin: 4, End: 64, Factor: 4, MinTime: time.Second}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"begin 0":      func(c *Config) { c.Begin = 0 },
		"end first":    func(c *Config) { c.End = 3 },
		"factor 1":     func(c *Config) { c.Factor = 1 },
		"negative":     func(c *Config) { c.Iters = -1 },
		"many":         func(c *Config) { c.Iters = maxIters + 1 },
		"no time":      func(c *Config) { c.MinTime = 0 },
		"average ints": func(c *Config) { c.Type, c.Op = kernel.Int8, kernel.Average },
	} {
		c := good
		if spoil(&c); c.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCounts(t *testing.T) {
	for _, test := range []struct {
		kind       collective.Kind
		begin, end int
		want       []int
	}{
		{collective.Allreduce, 4, 1024, []int{1, 4, 16, 64, 256}},
		{collective.Allreduce, 1, 5, []int{1}}, // both are one element
		{collective.Broadcast, 4, 4, []int{1}},
		{collective.Allgather, 4, 256, []int{1, 5, 21}}, // of 3 ranks
		{collective.Gather, 4, 256, []int{1, 5, 21}},
		{collective.Alltoall, 4, 256, []int{3, 15, 63}}, // as many for each
		{collective.Barrier, 4, 1024, []int{0}},
		{collective.Allreduce, 1 << 61, math.MaxInt, []int{1 << 59}}, // sizes must not overflow
	} {
		c := Config{Kind: test.kind, Type: kernel.Float32, Begin: test.begin, End: test.end, Factor: 4}
		if got := c.counts(3); !slices.Equal(got, test.want) {
			t.Errorf("%s from %d to %d: counts %v, want %v", test.kind, test.begin, test.end, got, test.want)
		}
	}
}

func TestBandwidth(t *testing.T) {
	for _, test := range []struct {
		kind       collective.Kind
		ranks      int
		size       int
		algo, busy float64
	}{
		{collective.Allreduce, 4, 4000, 4e-3, 6e-3},
		{collective.Allreduce, 2, 4000, 4e-3, 4e-3},
		{collective.Allgather, 4, 16000, 16e-3, 12e-3},
		{collective.Broadcast, 4, 4000, 4e-3, 4e-3},
		{collective.Allreduce, 1, 4000, 4e-3, 0},
	} {
		c := Config{Kind: test.kind, Type: kernel.Float32, Op: kernel.Sum}
		// The median, a millisecond, is what counts.
		r := c.row(1000, test.ranks, []float64{5e-3, 1e-3, 0.5e-3}, 7)
		if r.Size != test.size || math.Abs(r.AlgBW-test.algo) > 1e-9 || math.Abs(r.BusBW-test.busy) > 1e-9 {
			t.Errorf("%s of %d ranks: %+v, want size %d, algbw %g, busbw %g", test.kind, test.ranks, r, test.size, test.algo, test.busy)
		}
		if r.Errors != 7 || r.P50 != 1000 || r.P99 != 5000 || r.Min != 500 || r.Iters != 3 {
			t.Errorf("%s: %+v", test.kind, r)
		}
	}
	if f := busFactor(collective.Barrier, 4); f != 0 {
		t.Errorf("a barrier has a bandwidth: %g", f)
	}
}

// TestWrong spoils results in every type and wants each spoilt element counted.
func TestWrong(t *testing.T) {
	for typ := kernel.Uint8; typ <= kernel.Float64; typ++ {
		c := Config{Kind: collective.Allreduce, Type: typ, Op: kernel.Sum}
		size := typ.Size()
		pattern := c.pattern(func(i int) float64 { return c.expect(3, i) })
		data := make([]byte, (2*block+5)*size)
		fill(data, pattern)
		if n := wrong(typ, data, pattern, 3, 0); n != 0 {
			t.Errorf("%s: %d elements of good data are wrong", typ, n)
		}
		for _, i := range []int{0, block - 1, block, 2*block + 4} {
			copy(data[i*size:], encode(nil, typ, 77))
		}
		if n := wrong(typ, data, pattern, 3, 0); n != 4 {
			t.Errorf("%s: %d wrong elements found, want 4", typ, n)
		}
		fill(data, pattern)
		copy(data, data[size:]) // all but the last are in the wrong place
		if n := wrong(typ, data, pattern, 3, 0); n < block {
			t.Errorf("%s: %d wrong elements found in shifted data", typ, n)
		}
	}
	nan := le.AppendUint32(nil, math.Float32bits(float32(math.NaN())))
	if n := wrong(kernel.Float32, nan, encode(nil, kernel.Float32, 1), 2, 0); n != 1 {
		t.Error("NaN counts as right")
	}
	above := le.AppendUint32(nil, math.Float32bits(1)+1) // the next number
	if n := wrong(kernel.Float32, above, encode(nil, kernel.Float32, 1), 2, 0); n != 0 {
		t.Error("a rounding counts as wrong")
	}
}

func TestExpect(t *testing.T) {
	// Three ranks have 2, 4 and 6 at place 2.
	for op, want := range map[kernel.Op]float64{kernel.Sum: 12, kernel.Average: 4, kernel.Min: 2, kernel.Max: 6, kernel.Product: 1} {
		c := Config{Kind: collective.Allreduce, Op: op}
		if got := c.expect(3, 2+period*5); got != want {
			t.Errorf("%s: %g, want %g", op, got, want)
		}
	}
	c := Config{Kind: collective.Allreduce, Op: kernel.Product}
	if got := c.expect(3, 4); got != 2 { // 4, 8 mod 7 = 1, 12 mod 7 = 5
		t.Errorf("product: %g, want 2", got)
	}
}

func TestReport(t *testing.T) {
	c := Config{Kind: collective.Allreduce, Type: kernel.Float32, Op: kernel.Sum}
	good, bad := c.row(256, 2, []float64{1e-3}, 0), c.row(1024, 2, []float64{1e-3}, 3)
	var table bytes.Buffer
	p := &report{w: &table, Kind: "allreduce", Ranks: 2, Hosts: 1}
	must.Do(t, p.begin())
	p.add(good)
	if err := p.end(); err != nil {
		t.Errorf("good results end with %v", err)
	}
	p.add(bad)
	if err := p.end(); err == nil || !strings.Contains(err.Error(), "3 elements") {
		t.Errorf("3 wrong elements end with %v", err)
	}
	lines := strings.Split(table.String(), "\n")
	if want := "1024 256 float32 sum -1 1000.00 1000.00 0.001 0.001 0 0"; strings.Join(strings.Fields(lines[3]), " ") != want {
		t.Errorf("row %q, want %q", lines[3], want)
	}
	if len(lines[1]) != len(lines[3]) {
		t.Errorf("header and row are not of one width:\n%s", table.String())
	}

	var doc bytes.Buffer
	p = &report{w: &doc, json: true, Kind: "allreduce", Ranks: 2, Hosts: 1}
	p.begin()
	p.add(good)
	p.end()
	var got report
	if err := json.Unmarshal(doc.Bytes(), &got); err != nil || got.Ranks != 2 || !slices.Equal(got.Rows, []Row{good}) {
		t.Errorf("document %s: %+v, %v", doc.String(), got, err)
	}
}

func TestCarriedBy(t *testing.T) {
	for _, tt := range []struct {
		sent, overRDMA float64
		want           string
	}{{0, 0, "none"}, {8, 0, "tcp"}, {8, 8, "rdma"}, {8, 2, "rdma (25%) and tcp"}} {
		if got := carriedBy([]Row{{RDMA: tt.overRDMA, TCP: tt.sent - tt.overRDMA}, {}}); got != tt.want {
			t.Errorf("%g bytes, %g over RDMA: %q, want %q", tt.sent, tt.overRDMA, got, tt.want)
		}
	}
}
