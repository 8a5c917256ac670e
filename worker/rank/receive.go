package rank

import (
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"gorun/worker/session/codec"
)

// number returns a number that no open operation has, and not 0. A result that is not released could still have it after
// 2^32 operations.
func (s *Session) number() uint32 {
	s.next = max(s.next+1, 1)
	return s.next
}

func (s *Session) send() error {
	return os.NewSyscallError("send", retry(func() error { return unix.Send(s.fd, s.out, unix.MSG_NOSIGNAL) }))
}

// ask sends a message, and hands answer what comes that is not about an operation until it has the answer.
func (s *Session) ask(answer func(kind uint32, b []byte, fd int) (done bool, err error)) error {
	err := s.send()
	for done := false; err == nil && !done; {
		err = s.receive(func(kind uint32, b []byte, fd int) (err error) { done, err = answer(kind, b, fd); return err })
	}
	return err
}

// receive takes the next message, and hands it to answer if it is not about an operation.
func (s *Session) receive(answer func(kind uint32, b []byte, fd int) error) error {
	n, fd, err := s.read(answer != nil || len(s.carries) > 0 || s.slots != nil && s.slots.offered != 0)
	if fd >= 0 {
		defer unix.Close(fd)
	}
	switch {
	case err == unix.ECONNRESET || err == nil && n == 0:
		return fmt.Errorf("the daemon closed the connection: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return os.NewSyscallError("receive", err)
	case n < codec.PairLen:
		return codec.Malformed("%d bytes", n)
	}
	b := s.in[:n]
	switch kind := codec.Type(b); kind {
	case codec.TypeWelcome:
		s.Welcome, err = codec.DecodeWelcome(b)
		return err
	case codec.TypeComplete:
		return s.complete(b, fd)
	case codec.TypeFail:
		handle, what, why, err := codec.DecodeFail(b)
		if err != nil {
			return err
		}
		if what == codec.TypeSubmit {
			return s.finish(codec.Completion{Handle: handle, Code: why.Code, Region: codec.NoRegion, Text: why.Text})
		}
		if answer == nil {
			return why
		}
		return answer(kind, b, fd)
	case codec.TypeGone:
		why, err := codec.DecodeGone(b)
		if s.gone = err; err == nil {
			s.gone = why
		}
		return s.gone
	case codec.TypeChanged, codec.TypeWake:
		return nil // a rank keeps its world, and looks again in a slot
	case codec.TypeShow:
		return s.slots.see(b, fd)
	case codec.TypeHide:
		return s.slots.unsee(b)
	default:
		if answer == nil {
			return codec.Malformed("unexpected type %d", kind)
		}
		return answer(kind, b, fd)
	}
}

// read receives a message, more cheaply if no descriptor can come with it.
func (s *Session) read(withFD bool) (n, fd int, err error) {
	if !withFD {
		err = retry(func() (err error) { n, err = unix.Read(s.fd, s.in); return err })
		return n, -1, err
	}
	var oob [64]byte
	var oobn int
	err = retry(func() (err error) {
		n, oobn, _, _, err = unix.Recvmsg(s.fd, s.in, oob[:], unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil || oobn == 0 {
		return n, -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return n, -1, codec.Malformed("control message")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return n, -1, codec.Malformed("%d descriptors", len(fds))
	}
	return n, fds[0], nil
}

func (s *Session) complete(b []byte, fd int) error {
	var c codec.Completion
	if err := codec.DecodeComplete(b, &c); err != nil {
		return err
	}
	if c.Region != codec.NoRegion {
		if fd >= 0 && s.results[c.Region] == nil {
			data, err := mmap(fd, int(c.RegionBytes), unix.PROT_READ)
			if err != nil {
				return err
			}
			s.results[c.Region] = data
		}
		if len(s.results[c.Region]) < c.Offset+c.Bytes {
			return codec.Malformed("result in unknown memory")
		}
	}
	return s.finish(c)
}

func (s *Session) finish(c codec.Completion) error {
	if !s.open[c.Handle] {
		return codec.Malformed("end of operation %d, which is not open", c.Handle)
	}
	delete(s.open, c.Handle)
	delete(s.carries, c.Handle)
	s.done[c.Handle] = c
	if s.slots != nil {
		return s.slots.ended(&c)
	}
	return nil
}

// mmap maps a region of the daemon.
func mmap(fd, size, prot int) ([]byte, error) {
	if fd < 0 || size <= 0 || size > math.MaxInt {
		return nil, codec.Malformed("region of %d bytes, descriptor %d", size, fd)
	}
	data, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return data, nil
}

// retry repeats a call that a signal interrupted: the runtime preempts threads by signals.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
