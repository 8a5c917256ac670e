package pmi

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"gorun/collective/admit"
)

// The other way to reach a server, for ranks that inherit no descriptor because sudo, a container or a batch script
// closed it: PMI_PORT is an address and PMI_ID a number, which the rank sends first (cmd=initack). Only that number
// distinguishes a rank from other processes of the host, so it is a secret of 31 bits, valid for one connection, and
// after a few wrong numbers a user is not heard any more. A rank may be another user's, if sudo starts it.

// maxWrong is how many connections of another user may send no valid number.
const maxWrong = 16

var errStranger = errors.New("no rank that is expected")

// Port accepts connections of ranks, from this host only.
type Port struct {
	server   *Server
	listener net.Listener
	door     admit.Door
	wg       sync.WaitGroup

	mu    sync.Mutex
	ranks map[int32]int // by the number that the rank will send
	wrong map[int]int   // connections without one, by user
}

// Listen opens a port of a server. Close it before the server.
func (s *Server) Listen() (*Port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for PMI: %w", err)
	}
	p := &Port{server: s, listener: l, ranks: map[int32]int{}, wrong: map[int]int{}}
	p.door.Timeout = answerTimeout
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the value of PMI_PORT.
func (p *Port) Addr() string { return p.listener.Addr().String() }

// Expect returns the value of PMI_ID with which a rank may connect once.
func (p *Port) Expect(rank int) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var b [4]byte
		rand.Read(b[:]) // never fails
		id := int32(binary.LittleEndian.Uint32(b[:]) >> 1)
		if _, taken := p.ranks[id]; id > 0 && !taken {
			p.ranks[id] = rank
			return id
		}
	}
}

// Close stops accepting ranks; connected ones stay with the server.
func (p *Port) Close() {
	p.listener.Close()
	p.door.Close()
	p.wg.Wait()
}

func (p *Port) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			<-time.After(10 * time.Millisecond) // out of descriptors, perhaps: it passes
			continue
		}
		uid, _ := admit.User(conn) // -1 for one that nobody knows
		p.mu.Lock()
		refuse := uid >= 0 && p.wrong[uid] >= maxWrong && !admit.Allowed(uid)
		p.mu.Unlock()
		if refuse {
			conn.Close()
			continue
		}
		peer := p.door.Enter(conn)
		p.wg.Go(func() {
			if err := p.meet(peer, uid); err != nil {
				peer.Close()
				p.server.cfg.Log.Debug("pmi: connection refused", "err", err)
			}
		})
	}
}

// meet identifies the rank, and passes the connection to the server.
func (p *Port) meet(conn *admit.Conn, uid int) error {
	r := bufio.NewReaderSize(conn, maxLine)
	line, err := r.ReadSlice('\n')
	var req request
	if err == nil {
		req, err = parse(line)
	}
	p.mu.Lock()
	id := int32(req.number("pmiid", 0))
	rank, ok := p.ranks[id]
	if ok = ok && req.cmd == "initack"; ok {
		delete(p.ranks, id)
	} else {
		p.wrong[uid]++
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if !ok {
		return errStranger
	}
	conn.Known()
	conn.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := fmt.Fprintf(conn, "cmd=initack rc=0\ncmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0\n",
		p.server.cfg.Size, rank); err != nil {
		return err
	}
	conn.SetDeadline(time.Time{})
	p.server.Serve(rank, peeked{conn, r})
	return nil
}

// peeked is a connection whose first line was read.
type peeked struct {
	net.Conn
	r io.Reader
}

func (c peeked) Read(b []byte) (int, error) { return c.r.Read(b) }
