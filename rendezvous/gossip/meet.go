package gossip

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"gorun/collective/admit"
)

// memberlist stores up to 20 MiB of a stream before it decrypts that. So the side that opens a stream first proves that
// it has a key: the other side sends a nonce, and it answers with the nonce's HMAC-SHA256. What memberlist reads
// then is encrypted as before.
//
// memberlist also panics on some messages that are well encrypted and have no content. Those have another form than
// any member sends, which can be seen without the key.

const (
	nonceSize = 16
	encrypted = 10 // memberlist's type of an encrypted stream: u8 type, u32 length, message
)

var (
	errKey  = errors.New("the peer does not have the key")
	errForm = errors.New("the message has a form that no member sends")
)

func proof(key, nonce []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(nonce)
	return mac.Sum(nil)
}

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// passStreams passes on streams of members.
func (t *transport) passStreams() {
	for {
		select {
		case raw := <-t.NetTransport.StreamCh():
			conn := t.door.Enter(raw)
			t.passing.Go(func() {
				if t.meet(conn) != nil {
					conn.Close()
					return
				}
				select {
				case t.streams <- &stream{Conn: raw, skip: 2 + len(t.label)}:
				case <-t.dials.Done():
					raw.Close()
				}
			})
		case <-t.closed:
			return
		}
	}
}

// passPackets passes on packets that may be a member's.
func (t *transport) passPackets() {
	for {
		select {
		case p := <-t.NetTransport.PacketCh():
			message := p.Buf[min(len(p.Buf), 2+len(t.label)):]
			if !sound(message, len(message)) {
				continue
			}
			select {
			case t.packets <- p:
			case <-t.dials.Done():
			}
		case <-t.closed:
			return
		}
	}
}

// meet has the peer that opened a stream prove that it has the key.
func (t *transport) meet(conn *admit.Conn) error {
	nonce, got := make([]byte, nonceSize), make([]byte, sha256.Size)
	rand.Read(nonce)
	if _, err := conn.Write(nonce); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	for _, key := range t.keys {
		if hmac.Equal(got, proof(key, nonce)) {
			conn.Known()
			return nil
		}
	}
	return errKey
}

// introduce proves to the peer of a new stream that this member has the key.
func (t *transport) introduce(ctx context.Context, conn net.Conn) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	nonce := make([]byte, nonceSize)
	_, err := io.ReadFull(conn, nonce)
	if err == nil {
		_, err = conn.Write(proof(t.keys[0], nonce))
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &stream{Conn: conn}, nil
}

// sound reports whether an encrypted message of that length begins as members' do: u8 version of encryption, which is 1,
// without padding; 12 bytes of nonce, content, 16 bytes of tag.
func sound(message []byte, length int) bool { return length > 1+12+16 && message[0] == 1 }

// stream is a connection whose first message has the form that members send.
type stream struct {
	net.Conn
	skip  int // bytes before the message
	begun bool
	head  bytes.Reader
}

// Read implements net.Conn.
func (s *stream) Read(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		head := make([]byte, s.skip+1+4+1)
		if _, err := io.ReadFull(s.Conn, head); err != nil {
			return 0, err
		}
		m := head[s.skip:]
		if length := binary.BigEndian.Uint32(m[1:]); m[0] != encrypted || !sound(m[5:], int(length)) {
			return 0, errForm
		}
		s.head.Reset(head)
	}
	if s.head.Len() > 0 {
		return s.head.Read(b)
	}
	return s.Conn.Read(b)
}
