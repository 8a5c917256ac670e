//go:build rdma && linux && (amd64 || arm64)

package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"gorun/collective/verbs"
)

// pair is a queue pair with all that it needs, a device's context included: so nothing of a device that was deleted
// outlives its pairs.
type pair struct {
	library *library
	place   verbs.Place
	size    verbs.Size
	send    page // the ring that the device reads
	receive page // the ring that the peer writes to
	work    page // attributes at first, then what is posted and polled

	context, pd, channel, cq, qp         uintptr
	sendMR, receiveMR                    uintptr // the rings are registered apart: no key opens the one to send from
	pollCQ, notifyCQ, postSend, postRecv uintptr
	number, localKey, remoteKey          uint32
	inline                               int // bytes of a message that the device takes from the request itself
	peer                                 verbs.End
	completions, asynchronous            poller
	armed                                bool // the next completion makes an event
	happened                             page // an ibv_async_event
	removed                              atomic.Bool
}

// What the page of a connected pair holds.
const (
	workSend  = 0                   // a send request
	workSGE   = workSend + sendSize // its piece of memory
	workBad   = workSGE + sgeSize   // where the library reports a request that it did not take
	workRecv  = workBad + 8         // a receive request
	workBad2  = workRecv + recvSize
	workEvent = workBad2 + 8 // what an event is about: two pointers
	workPoll  = 1024         // completions
	mostPolls = 32

	idSend = 1
	idRecv = 2

	wantInline = 200
)

// Open implements verbs.Provider.
func (l *library) Open(at verbs.Place, size verbs.Size) (verbs.Pair, error) {
	p := &pair{library: l, place: at, size: size}
	if err := p.open(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *pair) open() (err error) {
	l := p.library
	if p.work, err = newPage(); err != nil {
		return err
	}
	if p.happened, err = newPage(); err != nil {
		return err
	}
	if p.send, err = allocate(p.size.Ring); err != nil {
		return err
	}
	if p.receive, err = allocate(p.size.Ring); err != nil {
		return err
	}
	found, directory := errors.New("the device is gone"), ""
	if err := l.each(func(device uintptr, name string) bool {
		if name != p.place.Device {
			return true
		}
		directory = text(device+deviceDirectory, devicePathSize)
		if _, err := os.Stat(directory); err != nil {
			directory = ""
		}
		p.context, found = l.make("open device", l.openDevice, device)
		return false
	}); err != nil {
		return err
	}
	if found != nil {
		return found
	}
	p.pollCQ, p.notifyCQ = pointer(p.context, contextPollCQ), pointer(p.context, contextNotifyCQ)
	p.postSend, p.postRecv = pointer(p.context, contextPostSend), pointer(p.context, contextPostRecv)
	if p.pd, err = l.make("allocate protection domain", l.allocPD, p.context); err != nil {
		return err
	}
	if p.sendMR, err = p.register(p.send, accessLocalWrite); err != nil {
		return err
	}
	if p.receiveMR, err = p.register(p.receive, accessLocalWrite|accessRemoteWrite); err != nil {
		return err
	}
	p.localKey = native.Uint32(memory(p.sendMR+mrLocalKey, 4))
	p.remoteKey = native.Uint32(memory(p.receiveMR+mrRemoteKey, 4))
	if p.channel, err = l.make("create completion channel", l.createChannel, p.context); err != nil {
		return err
	}
	if p.completions, err = newPoller(p.channel + channelFD); err != nil {
		return fmt.Errorf("wait for completions: %w", err)
	}
	if p.asynchronous, err = newPoller(p.context + contextAsyncFD); err != nil {
		return fmt.Errorf("wait for events: %w", err)
	}
	if directory != "" { // it was there before the device was opened: if not any more, it has been removed since
		l.removals.watch(p, directory)
	}
	p.cq, err = l.make("create completion queue", l.createCQ, p.context, uintptr(2*p.size.Depth), 0, p.channel, 0)
	if err != nil {
		return err
	}
	if err := p.create(); err != nil {
		return err
	}
	return p.initialize()
}

// register returns the memory region of a ring.
func (p *pair) register(ring page, access uintptr) (region uintptr, err error) {
	l := p.library
	region, err = l.make("register memory", l.regMR, p.pd, ring.address, uintptr(p.size.Ring), access)
	if err != nil {
		return 0, memoryError(err)
	}
	return region, nil
}

// memoryError explains why memory could not be registered: most often the process may not lock as much.
func memoryError(err error) error {
	var limit unix.Rlimit
	if errors.Is(err, unix.ENOMEM) && unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur < 1<<40 {
		return fmt.Errorf("%w: the limit of locked memory is %d KiB; put \"* - memlock unlimited\" into "+
			"/etc/security/limits.d/rdma.conf", err, limit.Cur>>10)
	}
	return err
}

// create makes the queue pair.
func (p *pair) create() (err error) {
	for _, inline := range []int{wantInline, 0} {
		attr := p.work.bytes[:initAttrSize]
		clear(attr)
		native.PutUint64(attr[initSendCQ:], uint64(p.cq))
		native.PutUint64(attr[initRecvCQ:], uint64(p.cq))
		native.PutUint32(attr[initMaxSend:], uint32(p.size.Depth))
		native.PutUint32(attr[initMaxRecv:], uint32(p.size.Depth))
		native.PutUint32(attr[initMaxSendSGE:], 1)
		native.PutUint32(attr[initMaxRecvSGE:], 1)
		native.PutUint32(attr[initMaxInline:], uint32(inline))
		native.PutUint32(attr[initType:], typeRC)
		native.PutUint32(attr[initSignalAll:], 1)
		if p.qp, err = p.library.make("create queue pair", p.library.createQP, p.pd, p.work.address); err == nil {
			p.inline = min(int(native.Uint32(attr[initMaxInline:])), inline)
			p.number = native.Uint32(memory(p.qp+qpNumber, 4))
			return nil
		}
	}
	return err
}

// initialize takes the pair to INIT.
func (p *pair) initialize() error {
	attr := p.work.bytes[:qpAttrSize]
	clear(attr)
	native.PutUint32(attr[qpState:], stateInit)
	attr[qpPort] = byte(p.place.Number)
	native.PutUint32(attr[qpAccess:], accessLocalWrite|accessRemoteWrite)
	return p.modify("initialize queue pair", maskState|maskPKeyIndex|maskPort|maskAccess)
}

func (p *pair) modify(verb string, mask uintptr) error {
	return p.library.do(verb, p.library.modifyQP, p.qp, p.work.address, mask)
}

// End implements verbs.Pair.
func (p *pair) End() verbs.End {
	return verbs.End{Number: p.number, LID: p.place.LID, MTU: uint32(p.place.MTU), GID: p.place.GID.Value,
		Ring: uint64(p.receive.address), Key: p.remoteKey}
}

// Rings implements verbs.Pair.
func (p *pair) Rings() (send, receive []byte) { return p.send.bytes, p.receive.bytes }

// Connect implements verbs.Pair.
func (p *pair) Connect(psn uint32, peer verbs.End, tuning verbs.Tuning) error {
	p.peer = peer
	attr := p.work.bytes[:qpAttrSize]
	clear(attr)
	native.PutUint32(attr[qpState:], stateRTR)
	native.PutUint32(attr[qpPathMTU:], mtuEnum(min(p.place.MTU, int(peer.MTU))))
	native.PutUint32(attr[qpDestNumber:], peer.Number)
	native.PutUint32(attr[qpRQPSN:], peer.PSN)
	attr[qpMaxDestReads] = 1
	attr[qpMinRNRTimer] = 12 // 0.64 ms; there is always a receive
	address := attr[qpAddress:]
	copy(address[addressGID:], peer.GID[:])
	address[addressGIDIndex] = byte(p.place.GID.Index)
	address[addressHopLimit], address[addressTraffic] = byte(tuning.HopLimit), byte(tuning.TrafficClass)
	native.PutUint16(address[addressLID:], peer.LID)
	address[addressGlobal], address[addressPort] = 1, byte(p.place.Number)
	if err := p.modify("connect queue pair (RTR)", maskState|maskAddress|maskPathMTU|maskDestNumber|maskRQPSN|
		maskMaxDestReads|maskMinRNRTimer); err != nil {
		return err
	}
	clear(attr)
	native.PutUint32(attr[qpState:], stateRTS)
	attr[qpTimeout], attr[qpRetries], attr[qpRNRRetries] = byte(tuning.Timeout), byte(tuning.Retries), byte(tuning.RNR)
	native.PutUint32(attr[qpSQPSN:], psn)
	attr[qpMaxReads] = 1
	err := p.modify("connect queue pair (RTS)", maskState|maskTimeout|maskRetries|maskRNRRetries|maskSQPSN|maskMaxReads)
	p.prepare()
	return err
}

// prepare fills in what all requests have in common.
func (p *pair) prepare() {
	b := p.work.bytes
	clear(b)
	native.PutUint64(b[workSend+sendID:], idSend)
	native.PutUint64(b[workSend+sendSGList:], uint64(p.work.address+workSGE))
	native.PutUint32(b[workSend+sendOpcode:], opcodeWriteImm)
	native.PutUint32(b[workSend+sendRemoteKey:], p.peer.Key)
	native.PutUint32(b[workSGE+sgeKey:], p.localKey)
	native.PutUint64(b[workRecv+recvID:], idRecv)
}

// Receive implements verbs.Pair. A write with immediate data needs no memory of the receive.
func (p *pair) Receive(n int) error {
	native.PutUint64(p.work.bytes[workRecv+recvID:], idRecv)
	native.PutUint64(p.work.bytes[workRecv+recvNext:], 0)
	native.PutUint32(p.work.bytes[workRecv+recvSGCount:], 0)
	for range n {
		err := p.library.do("post receive", p.postRecv, p.qp, p.work.address+workRecv, p.work.address+workBad2)
		if err != nil {
			return err
		}
	}
	return nil
}

// Write implements verbs.Pair.
func (p *pair) Write(offset, length int, imm uint32) error {
	request, piece := p.work.bytes[workSend:workSend+sendSize], p.work.bytes[workSGE:workSGE+sgeSize]
	flags, pieces := uint32(flagSignaled), uint32(1)
	switch {
	case length == 0:
		pieces = 0
	case length <= p.inline:
		flags |= flagInline
	}
	native.PutUint32(request[sendSGCount:], pieces)
	native.PutUint32(request[sendFlags:], flags)
	binary.BigEndian.PutUint32(request[sendImm:], imm)
	native.PutUint64(request[sendRemoteAddr:], p.peer.Ring+uint64(offset))
	native.PutUint64(piece[sgeAddress:], uint64(p.send.address)+uint64(offset))
	native.PutUint32(piece[sgeLength:], uint32(length))
	return p.library.do("post write", p.postSend, p.qp, p.work.address+workSend, p.work.address+workBad)
}

// Poll implements verbs.Pair.
func (p *pair) Poll(into []verbs.Completion) (int, error) {
	most := min(len(into), mostPolls)
	r, _, _ := purego.SyscallN(p.pollCQ, p.cq, uintptr(most), p.work.address+workPoll)
	n := int(int32(r))
	if n < 0 || n > most {
		return 0, errors.New("poll completion queue: failed")
	}
	for i := range n {
		c := p.work.bytes[workPoll+i*wcSize:]
		into[i] = verbs.Completion{Status: native.Uint32(c[wcStatus:]), Receive: native.Uint64(c[wcID:]) == idRecv,
			Bytes: int(native.Uint32(c[wcBytes:])), Imm: binary.BigEndian.Uint32(c[wcImm:])}
	}
	return n, nil
}

// Wait implements verbs.Pair.
func (p *pair) Wait() error {
	if !p.armed {
		p.armed = true
		return p.library.do("request notification", p.notifyCQ, p.cq, 0)
	}
	var failed error
	if err := p.completions.wait(func() {
		failed = p.library.do("get completion event", p.library.getCQEvent, p.channel, p.work.address+workEvent,
			p.work.address+workEvent+8)
	}); err != nil {
		return err
	}
	if failed == nil {
		purego.SyscallN(p.library.ackCQEvents, p.cq, 1)
		p.armed = false
	}
	return failed
}

// Event implements verbs.Pair.
func (p *pair) Event() error {
	for {
		var failed error
		if err := p.asynchronous.wait(func() {
			failed = p.library.do("get event", p.library.getAsyncEvent, p.context, p.happened.address)
		}); err != nil {
			if p.removed.Load() {
				return &verbs.EventError{Event: verbs.EventDevice, Device: p.place.Device, Port: p.place.Number}
			}
			return err
		}
		if errors.Is(failed, unix.EAGAIN) || errors.Is(failed, unix.EINTR) {
			continue
		}
		if failed != nil {
			return failed
		}
		b := p.happened.bytes
		e := &verbs.EventError{Event: native.Uint32(b[asyncType:]), Device: p.place.Device, Port: p.place.Number}
		port := int(int32(native.Uint32(b[asyncPort:])))
		purego.SyscallN(p.library.ackAsyncEvent, p.happened.address)
		if p.matters(e.Event, port) {
			return e
		}
	}
}

// matters reports whether an event ends the use of the pair; some are about a port.
func (p *pair) matters(event uint32, port int) bool {
	switch event {
	case verbs.EventQueue, verbs.EventPair, verbs.EventPairRequest, verbs.EventPairAccess, verbs.EventDevice:
		return true
	case verbs.EventPort, verbs.EventLID:
		return port == p.place.Number
	case verbs.EventGID: // the pair sends by the index, which may be of another address by now
		gid, err := p.library.gid(p.context, p.place.Number, p.place.GID.Index, p.happened)
		return err != nil || gid != p.place.GID
	}
	return false
}

// Wake implements verbs.Pair.
func (p *pair) Wake() {
	p.completions.end()
	p.asynchronous.end()
}

// Close implements verbs.Pair.
func (p *pair) Close() error {
	l := p.library
	l.removals.forget(p)
	var errs []error
	for _, made := range []struct {
		verb    string
		what, f uintptr
	}{
		{"destroy queue pair", p.qp, l.destroyQP},
		{"destroy completion queue", p.cq, l.destroyCQ},
		{"destroy completion channel", p.channel, l.destroyChannel},
		{"deregister memory", p.sendMR, l.deregMR},
		{"deregister memory", p.receiveMR, l.deregMR},
		{"free protection domain", p.pd, l.deallocPD},
		{"close device", p.context, l.closeDevice},
	} {
		if made.what != 0 {
			errs = append(errs, l.do(made.verb, made.f, made.what))
		}
	}
	p.completions.close()
	p.asynchronous.close()
	for _, m := range []page{p.send, p.receive, p.work, p.happened} {
		if m.bytes != nil {
			m.free()
		}
	}
	return errors.Join(errs...)
}
