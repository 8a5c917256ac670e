package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unsafe"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/rank"
)

const (
	minIters = 5
	warmUp   = 5 // operations before the clock runs: memory is touched, names and schedules are known
)

// runner measures on one rank.
type runner struct {
	cfg     Config
	session *rank.Session
	data    *rank.Memory // the tensor, and as much for what is received
	sheet   *rank.Memory // what ranks give each other, as numbers of 8 bytes
	times   []float64    // the sheet
}

// Run measures all sizes; rank 0 reports to w. Results are checked before and after the clock runs: wrong ones are
// in the report, and an error in the end.
func Run(s *rank.Session, cfg Config, w io.Writer) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	if cfg.Kind == collective.Send && s.Welcome.Size < 2 {
		return errors.New("measure sendrecv: there is one rank, and none to send to")
	}
	b := &runner{cfg: cfg, session: s}
	counts := cfg.counts(s.Welcome.Size)
	var err error
	if b.data, err = s.Alloc(2 * max(1, counts[len(counts)-1]) * cfg.Type.Size()); err != nil {
		return err
	}
	if b.sheet, err = s.Alloc(8 * maxIters); err != nil {
		return err
	}
	b.times = unsafe.Slice((*float64)(unsafe.Pointer(&b.sheet.Bytes[0])), maxIters) // a mapping is aligned

	out := &report{w: w, json: cfg.JSON, Kind: KindName(cfg.Kind), Ranks: s.Welcome.Size, Hosts: s.Welcome.Hosts, Asked: cfg.Transport, before: cfg.Before}
	first := s.Welcome.Rank == 0
	if first {
		if err := out.begin(); err != nil {
			return err
		}
	}
	for _, count := range counts {
		row, err := b.measure(count)
		if err != nil {
			return fmt.Errorf("measure %s of %d bytes: %w", KindName(cfg.Kind), cfg.size(count, s.Welcome.Size), err)
		}
		if !first {
			continue
		}
		if err := out.add(row); err != nil {
			return err
		}
	}
	if !first {
		return nil
	}
	return out.end()
}

// measure is one size. Every operation is timed by itself on every rank, one after the other without a barrier in
// between, and counts as long as it took on the slowest rank.
func (b *runner) measure(count int) (Row, error) {
	ops := b.operations(count)
	bad, err := b.check(ops, count)
	if err != nil {
		return Row{}, err
	}
	// Zeros stay zeros however often they are reduced. Other numbers could become infinite or denormal.
	clear(b.data.Bytes[:count*b.cfg.Type.Size()])
	if err := b.loop(ops, warmUp); err != nil {
		return Row{}, err
	}
	iters, err := b.iterations(b.times[1:warmUp]) // the first may have waited for others that check
	if err != nil {
		return Row{}, err
	}
	before, err := b.traffic()
	if err != nil {
		return Row{}, err
	}
	if err := b.loop(ops, iters); err != nil {
		return Row{}, err
	}
	after, err := b.traffic()
	if err != nil {
		return Row{}, err
	}
	if err := b.agree(b.times[:iters], kernel.Float64, kernel.Max); err != nil {
		return Row{}, err
	}
	times := append([]float64(nil), b.times[:iters]...)
	sent, overRDMA := float64(after.sent-before.sent)/float64(iters), float64(after.overRDMA-before.overRDMA)/float64(iters)
	b.times[0], b.times[1], b.times[2] = sent, overRDMA, sent-overRDMA
	if err := b.agree(b.times[:3], kernel.Float64, kernel.Max); err != nil {
		return Row{}, err
	}
	traffic := [3]float64(b.times)
	again, err := b.check(ops, count)
	if err != nil {
		return Row{}, err
	}
	b.sheetInts()[0] = bad + again
	if err := b.agree(b.times[:1], kernel.Int64, kernel.Sum); err != nil {
		return Row{}, err
	}
	row := b.cfg.row(count, b.session.Welcome.Size, times, b.sheetInts()[0])
	row.Wire, row.RDMA, row.TCP = traffic[0], traffic[1], traffic[2]
	return row, nil
}

// operations are what is measured: one, or what a rank sends to the next one and receives from the one before.
func (b *runner) operations(count int) []*rank.Operation {
	op := &rank.Operation{Kind: b.cfg.Kind, Name: "bench." + strconv.Itoa(count)}
	if op.Kind == collective.Barrier {
		return []*rank.Operation{op}
	}
	op.Type, op.Op, op.Shape = b.cfg.Type, b.cfg.Op, []int{count}
	op.In = rank.Piece{Memory: b.data, Bytes: count * b.cfg.Type.Size()}
	if op.Kind == collective.Allreduce || op.Kind == collective.Broadcast {
		op.Out = op.In
	}
	if op.Kind != collective.Send {
		return []*rank.Operation{op}
	}
	// Names say who sends: of two ranks each is the other's next one.
	size, self := b.session.Welcome.Size, b.session.Welcome.Rank
	from := (self + size - 1) % size
	recv := *op
	recv.Kind, recv.Root, recv.Name = collective.Recv, from, fmt.Sprintf("%s.%d", op.Name, from)
	recv.In, recv.Out = rank.Piece{}, rank.Piece{Memory: b.data, Offset: op.In.Bytes, Bytes: op.In.Bytes}
	op.Root, op.Name = (self+1)%size, fmt.Sprintf("%s.%d", op.Name, self)
	return []*rank.Operation{op, &recv}
}

// do runs operations side by side; look, if there is one, sees the results that bring their own memory before they
// are given back.
func (b *runner) do(ops []*rank.Operation, look func(result []byte)) error {
	var handles [2]uint32
	for i, op := range ops[1:] {
		handle, err := b.session.Submit(op)
		if err != nil {
			return err
		}
		handles[i+1] = handle
	}
	for i, op := range ops {
		result, err := b.end(i, op, handles)
		if err != nil {
			return err
		}
		if look != nil {
			look(result.Bytes)
		}
		if err := b.session.Release(result); err != nil {
			return err
		}
	}
	return nil
}

// end waits for the i-th operation. The first is the one that the rank stays for, and was not submitted before.
func (b *runner) end(i int, op *rank.Operation, handles [2]uint32) (rank.Outcome, error) {
	if i == 0 {
		return b.session.Do(op)
	}
	return b.session.Wait(handles[i])
}

// loop times n operations after a barrier.
func (b *runner) loop(ops []*rank.Operation, n int) error {
	if err := b.do([]*rank.Operation{{Kind: collective.Barrier, Name: "bench.start"}}, nil); err != nil {
		return err
	}
	last := time.Now()
	for i := range n {
		if err := b.do(ops, nil); err != nil {
			return err
		}
		now := time.Now()
		b.times[i] = now.Sub(last).Seconds()
		last = now
	}
	return nil
}

// iterations decides how many operations take long enough; all ranks come to the same number.
func (b *runner) iterations(trial []float64) (int, error) {
	if b.cfg.Iters > 0 {
		return b.cfg.Iters, nil
	}
	mean := 0.0
	for _, t := range trial {
		mean += t / float64(len(trial))
	}
	b.times[0] = mean
	if err := b.agree(b.times[:1], kernel.Float64, kernel.Max); err != nil {
		return 0, err
	}
	n := math.Ceil(b.cfg.MinTime.Seconds() / max(b.times[0], 1e-9))
	return int(min(max(n, minIters), maxIters)), nil
}

// traffic is what this host has sent, when all ranks have what they are to have: a host may still send what others
// wait for when its own ranks have their results.
func (b *runner) traffic() (t traffic, err error) {
	if err := b.do([]*rank.Operation{{Kind: collective.Barrier, Name: "bench.sent"}}, nil); err != nil {
		return t, err
	}
	t.sent, t.overRDMA, err = b.session.Traffic()
	return t, err
}

// traffic is in bytes.
type traffic struct{ sent, overRDMA uint64 }

// agree reduces the first numbers of the sheet over all ranks.
func (b *runner) agree(numbers []float64, t kernel.Type, op kernel.Op) error {
	at := rank.Piece{Memory: b.sheet, Bytes: 8 * len(numbers)}
	return b.do([]*rank.Operation{{Kind: collective.Allreduce, Name: "bench.agree", Type: t, Op: op,
		Shape: []int{len(numbers)}, In: at, Out: at}}, nil)
}

// sheetInts is the sheet seen as integers.
func (b *runner) sheetInts() []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(&b.times[0])), len(b.times))
}

// check runs the operation once on known data and counts the wrong elements.
func (b *runner) check(ops []*rank.Operation, count int) (bad int64, err error) {
	data := b.data.Bytes[:count*b.cfg.Type.Size()]
	fill(data, b.cfg.pattern(func(i int) float64 { return b.cfg.value(b.session.Welcome.Rank, i) }))
	switch b.cfg.Kind {
	case collective.Barrier:
		return 0, b.do(ops, nil)
	case collective.Allreduce, collective.Broadcast: // in place
		err = b.do(ops, nil)
		return b.wrong(data, count), err
	case collective.Send:
		err = b.do(ops, nil)
		return b.wrong(b.data.Bytes[len(data):2*len(data)], count), err
	}
	err = b.do(ops, func(result []byte) { bad = b.wrong(result, count) })
	return bad, err
}

// wrong counts the elements of this rank's result that are wrong, missing or too many.
func (b *runner) wrong(result []byte, count int) (bad int64) {
	ranks, size := b.session.Welcome.Size, b.cfg.Type.Size()
	for _, p := range b.due(count) {
		got := result[:min(p.count*size, len(result))]
		result = result[len(got):]
		bad += int64(p.count - len(got)/size)
		if p.rank < 0 {
			bad += wrong(b.cfg.Type, got, b.cfg.pattern(func(i int) float64 { return b.cfg.expect(ranks, p.from+i) }), ranks, b.cfg.slack(ranks))
		} else {
			bad += wrong(b.cfg.Type, got, b.cfg.pattern(func(i int) float64 { return b.cfg.value(p.rank, p.from+i) }), 1, 0)
		}
	}
	return bad + int64(len(result)/size)
}

// part is a part of a result: so many elements of what a rank has, or of what all have together if it is negative.
type part struct{ rank, from, count int }

// due returns the parts that the result of this rank must have. The root is rank 0.
func (b *runner) due(count int) (parts []part) {
	ranks, self := b.session.Welcome.Size, b.session.Welcome.Rank
	share := count / ranks // of a tensor that is dealt out
	switch b.cfg.Kind {
	case collective.Allreduce:
		return []part{{-1, 0, count}}
	case collective.ReduceScatter:
		return []part{{-1, self * share, share}}
	case collective.Broadcast:
		return []part{{0, 0, count}}
	case collective.Scatter:
		return []part{{0, self * share, share}}
	case collective.Send:
		return []part{{(self + ranks - 1) % ranks, 0, count}}
	case collective.Alltoall:
		for rank := range ranks {
			parts = append(parts, part{rank, self * share, share})
		}
	case collective.Reduce:
		if self == 0 {
			return []part{{-1, 0, count}}
		}
	case collective.Allgather, collective.Gather:
		for rank := range ranks {
			if self == 0 || b.cfg.Kind == collective.Allgather {
				parts = append(parts, part{rank, 0, count})
			}
		}
	}
	return parts
}
