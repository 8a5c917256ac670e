package ranks

import (
	"fmt"

	"golang.org/x/sys/unix"

	"gorun/rendezvous/wire"
)

// ports are TCP ports that are kept free until the ranks start: the first is torch's, the second JAX's, and then there is
// one for each rank if the job wants TensorFlow's. They are bound, but not listened at: ranks of other hosts may start
// earlier and try again when they are refused, while a connection that is never accepted would break later.
type ports struct{ numbers, sockets []int }

// reserve reserves the ports that a job wants.
func (p *ports) reserve(job *wire.Job) error {
	n := 2
	if job.TF {
		n += job.Slots
	}
	for range n {
		err := p.bind(unix.AF_INET6, &unix.SockaddrInet6{})
		if err != nil { // a machine without IPv6
			err = p.bind(unix.AF_INET, &unix.SockaddrInet4{})
		}
		if err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
	}
	return nil
}

// bind reserves a port that the kernel chooses.
func (p *ports) bind(family int, anywhere unix.Sockaddr) error {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if family == unix.AF_INET6 { // for both
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err == nil {
		err = unix.Bind(fd, anywhere)
	}
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	switch at := at.(type) {
	case *unix.SockaddrInet6:
		p.numbers = append(p.numbers, at.Port)
	case *unix.SockaddrInet4:
		p.numbers = append(p.numbers, at.Port)
	default:
		unix.Close(fd)
		return err
	}
	p.sockets = append(p.sockets, fd)
	return nil
}

// release leaves the ports to the ranks.
func (p *ports) release() {
	for _, fd := range p.sockets {
		unix.Close(fd)
	}
	p.sockets = nil
}
