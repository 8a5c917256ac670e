package linktest_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"gorun/collective/link"
	"gorun/collective/link/linktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type end struct {
	t                          *testing.T
	delivered, prepared, acked atomic.Int64
}

func (e *end) Place(int, link.Header) ([]byte, error) { return nil, nil }

func (e *end) Deliver(_ int, h link.Header, p []byte) {
	if !bytes.Equal(p, bytes.Repeat([]byte{byte(h.Op)}, int(h.Length))) {
		e.t.Errorf("segment %d is damaged", h.Op)
	}
	e.delivered.Add(1)
}

func (e *end) Prepare(s *link.Segment) {
	e.prepared.Add(1)
	copy(s.Payload, bytes.Repeat([]byte{byte(s.Op)}, len(s.Payload)))
}

func (e *end) Acked(s *link.Segment) {
	clear(s.Payload)
	e.acked.Add(1)
}

func TestSegmentsArrive(t *testing.T) {
	const n, each = 3, 200
	ends := make([]*end, n)
	handlers := make([]link.Handler, n)
	for i := range ends {
		ends[i] = &end{t: t}
		handlers[i] = ends[i]
	}
	senders := linktest.New(n, 1, handlers)
	for i, s := range senders {
		for op := range uint64(each) {
			seg := &link.Segment{Header: link.Header{Kind: link.Data, Op: op}, Owner: ends[i]}
			if op%2 == 0 {
				seg.Payload = bytes.Repeat([]byte{byte(op)}, 100)
				s.Send((i+1)%n, seg)
				clear(seg.Payload)
			} else {
				seg.Payload = make([]byte, link.CopyLimit+1)
				s.Send((i+1)%n, seg)
			}
		}
	}
	for _, s := range senders {
		s.Close()
	}
	for i, e := range ends {
		if e.delivered.Load() != each || e.acked.Load() != each || e.prepared.Load() != each/2 {
			t.Errorf("host %d: delivered %d, acknowledged %d, prepared %d", i, e.delivered.Load(), e.acked.Load(), e.prepared.Load())
		}
	}
	senders[0].Forget(1)
	senders[0].Send(1, &link.Segment{})
	senders[0].Close()
	if ends[1].delivered.Load() != each {
		t.Error("delivered after Forget")
	}
}
