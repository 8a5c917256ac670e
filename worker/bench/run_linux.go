package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unsafe"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/session"
)

const (
	minIters = 5
	warmUp   = 5 // operations before the clock runs: memory is touched, names and schedules are known
)

// runner measures on one rank.
type runner struct {
	cfg   Config
	rank  *session.Rank
	data  *session.Memory // the tensor
	sheet *session.Memory // what ranks tell each other, as numbers of 8 bytes
	times []float64       // the sheet
}

// Run measures all sizes; rank 0 reports to w. Results are checked before and after the clock runs: wrong ones are
// in the report, and an error in the end.
func Run(rank *session.Rank, cfg Config, w io.Writer) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	b := &runner{cfg: cfg, rank: rank}
	counts := cfg.counts(rank.Welcome.Size)
	var err error
	if b.data, err = rank.Alloc(max(1, counts[len(counts)-1]) * cfg.Type.Size()); err != nil {
		return err
	}
	if b.sheet, err = rank.Alloc(8 * maxIters); err != nil {
		return err
	}
	b.times = unsafe.Slice((*float64)(unsafe.Pointer(&b.sheet.Bytes[0])), maxIters) // a mapping is aligned

	out := &report{w: w, json: cfg.JSON, Kind: cfg.Kind.String(), Ranks: rank.Welcome.Size, Hosts: rank.Welcome.Hosts}
	first := rank.Welcome.Rank == 0
	if first {
		if err := out.begin(); err != nil {
			return err
		}
	}
	for _, count := range counts {
		row, err := b.measure(count)
		if err != nil {
			return fmt.Errorf("measure %s of %d bytes: %w", cfg.Kind, cfg.size(count, rank.Welcome.Size), err)
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
	op := b.operation(count)
	bad, err := b.check(op, count)
	if err != nil {
		return Row{}, err
	}
	// Numbers that stay what they are, however often they are reduced: none becomes infinite or denormal.
	clear(b.data.Bytes[:count*b.cfg.Type.Size()])
	if err := b.loop(op, warmUp); err != nil {
		return Row{}, err
	}
	iters, err := b.iterations(b.times[1:warmUp]) // the first may have waited for others that check
	if err != nil {
		return Row{}, err
	}
	if err := b.loop(op, iters); err != nil {
		return Row{}, err
	}
	if err := b.agree(b.times[:iters], kernel.Float64, kernel.Max); err != nil {
		return Row{}, err
	}
	times := append([]float64(nil), b.times[:iters]...)
	again, err := b.check(op, count)
	if err != nil {
		return Row{}, err
	}
	b.sheetInts()[0] = bad + again
	if err := b.agree(b.times[:1], kernel.Int64, kernel.Sum); err != nil {
		return Row{}, err
	}
	return b.cfg.row(count, b.rank.Welcome.Size, times, b.sheetInts()[0]), nil
}

// operation is what is measured.
func (b *runner) operation(count int) *session.Operation {
	op := &session.Operation{Kind: b.cfg.Kind, Name: "bench." + strconv.Itoa(count)}
	if op.Kind == collective.Barrier {
		return op
	}
	op.Type, op.Op, op.Shape = b.cfg.Type, b.cfg.Op, []int{count}
	op.In = session.Piece{Memory: b.data, Bytes: count * b.cfg.Type.Size()}
	if op.Kind == collective.Allreduce || op.Kind == collective.Broadcast {
		op.Out = op.In
	}
	return op
}

// do runs an operation; look, if there is one, sees the result of an allgather before it is given back.
func (b *runner) do(op *session.Operation, look func(result []byte)) error {
	result, err := b.rank.Do(op)
	if err != nil {
		return err
	}
	if look != nil {
		look(result.Bytes)
	}
	return b.rank.Release(result)
}

// loop times n operations after a barrier.
func (b *runner) loop(op *session.Operation, n int) error {
	if err := b.do(&session.Operation{Kind: collective.Barrier, Name: "bench.start"}, nil); err != nil {
		return err
	}
	last := time.Now()
	for i := range n {
		if err := b.do(op, nil); err != nil {
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

// agree reduces the first numbers of the sheet over all ranks.
func (b *runner) agree(numbers []float64, t kernel.Type, op kernel.Op) error {
	at := session.Piece{Memory: b.sheet, Bytes: 8 * len(numbers)}
	return b.do(&session.Operation{Kind: collective.Allreduce, Name: "bench.agree", Type: t, Op: op, Shape: []int{len(numbers)}, In: at, Out: at}, nil)
}

// sheetInts is the sheet seen as integers.
func (b *runner) sheetInts() []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(&b.times[0])), len(b.times))
}

// check runs the operation once on known data and counts the wrong elements.
func (b *runner) check(op *session.Operation, count int) (int64, error) {
	if op.Kind == collective.Barrier {
		return 0, b.do(op, nil)
	}
	ranks, self := b.rank.Welcome.Size, b.rank.Welcome.Rank
	data := b.data.Bytes[:count*b.cfg.Type.Size()]
	from := func(rank int) []byte {
		return b.cfg.pattern(func(i int) float64 { return b.cfg.value(rank, i) })
	}
	fill(data, from(self))
	var bad int64
	err := b.do(op, func(result []byte) {
		switch op.Kind {
		case collective.Allreduce:
			bad = wrong(b.cfg.Type, data, b.cfg.pattern(func(i int) float64 { return b.cfg.expect(ranks, i) }), ranks)
		case collective.Broadcast:
			bad = wrong(b.cfg.Type, data, from(op.Root), 1)
		case collective.Allgather:
			if len(result) != ranks*len(data) {
				bad = int64(ranks * count)
				return
			}
			for rank := range ranks {
				bad += wrong(b.cfg.Type, result[rank*len(data):][:len(data)], from(rank), 1)
			}
		}
	})
	return bad, err
}
