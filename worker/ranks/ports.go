package ranks

import (
	"fmt"

	"golang.org/x/sys/unix"

	"gorun/rendezvous/wire"
)

// port is a TCP port that is kept free until the ranks start. It is bound, but not listened at: ranks of other hosts
// may start earlier and try again when they are refused, while a connection that is never accepted would break later.
type port struct{ fd, number int }

// freePort reserves a port.
func freePort() (*port, error) {
	p, err := bindPort(unix.AF_INET6, &unix.SockaddrInet6{})
	if err != nil { // a machine without IPv6
		p, err = bindPort(unix.AF_INET, &unix.SockaddrInet4{})
	}
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	return p, nil
}

func bindPort(family int, anywhere unix.Sockaddr) (*port, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if family == unix.AF_INET6 { // for both
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err == nil {
		err = unix.Bind(fd, anywhere)
	}
	p := &port{fd: fd}
	if err == nil {
		p.number, err = p.bound()
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return p, nil
}

// bound asks the kernel for the number.
func (p *port) bound() (int, error) {
	at, err := unix.Getsockname(p.fd)
	switch at := at.(type) {
	case *unix.SockaddrInet6:
		return at.Port, nil
	case *unix.SockaddrInet4:
		return at.Port, nil
	}
	return 0, err
}

// release frees the port, once.
func (p *port) release() {
	if p != nil && p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// ports are the ports at which frameworks on this host listen: the first is torch's, the second JAX's, and then there
// is one for each rank if the job wants TensorFlow's.
type ports []*port

// reserve reserves the ports that a job wants.
func (p *ports) reserve(job *wire.Job) error {
	n := 2
	if job.TF {
		n += job.Slots
	}
	for range n {
		free, err := freePort()
		if err != nil {
			return err
		}
		*p = append(*p, free)
	}
	return nil
}

// release leaves them to the ranks.
func (p ports) release() {
	for _, reserved := range p {
		reserved.release()
	}
}
