package link

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
)

// After the proofs of the handshake, both sides send records: bytes with a tag that only the holder of the connection's
// key can make. A key serves one direction of one connection, and the nonce counts its records. So a record that was
// changed, repeated, moved or made by somebody else is not accepted.
//
// The cipher is AES-256-GCM (NIST SP 800-38D). Without Config.Encrypt the bytes are its additional data: they are
// authenticated, and stay readable.

const (
	tagSize = 16
	keySize = 32
	// recordSize is the most that an encrypted record of a payload holds. A payload that is not encrypted is one record.
	recordSize = 32 << 10
	// writeSize is about how much of a large encrypted payload is written at once.
	writeSize = 60 << 10
	// messageSize is the most that a record of the handshake holds.
	messageSize = 4 << 10
)

// half is one direction of a connection: what this side sends, or what it receives.
type half struct {
	aead    cipher.AEAD
	encrypt bool
	nonce   [12]byte
	none    [tagSize]byte // room for a result of no bytes
}

func newHalf(key []byte, encrypt bool) (half, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return half{}, err
	}
	aead, err := cipher.NewGCM(block)
	return half{aead: aead, encrypt: encrypt}, err
}

// next returns the nonce of the next record.
func (h *half) next() []byte {
	n := h.nonce[:8]
	binary.LittleEndian.PutUint64(n, binary.LittleEndian.Uint64(n)+1)
	return h.nonce[:]
}

// seal appends a record of b to out.
func (h *half) seal(out, b []byte) []byte {
	if h.encrypt {
		return h.aead.Seal(out, h.next(), b, nil)
	}
	return h.tag(append(out, b...), b)
}

// tag appends the tag of b alone to out.
func (h *half) tag(out, b []byte) []byte { return h.aead.Seal(out, h.next(), nil, b) }

// open checks a record and returns its bytes: in dst if they were encrypted, in the record if not. dst may be the record.
func (h *half) open(dst, record []byte) ([]byte, error) {
	n := len(record) - tagSize
	if !h.encrypt {
		return record[:n], h.check(record[:n], record[n:])
	}
	if _, err := h.aead.Open(dst[:0:n], h.next(), record, nil); err != nil {
		return nil, errDamaged
	}
	return dst[:n], nil
}

// check compares b with its tag.
func (h *half) check(b, tag []byte) error {
	if _, err := h.aead.Open(h.none[:0], h.next(), tag, b); err != nil {
		return errDamaged
	}
	return nil
}

// keyed is a connection after the proofs. What is read and written on it are messages of the handshake, in records.
type keyed struct {
	net.Conn
	sends, receives half
	rest            []byte // read and not consumed
}

// NetConn returns the connection below, as that of [crypto/tls.Conn] does.
func (k *keyed) NetConn() net.Conn { return k.Conn }

// hand gives connection and keys away. Nothing can be written here any more, so no nonce serves twice.
func (k *keyed) hand() (conn net.Conn, sends, receives half) {
	sends, k.sends = k.sends, half{}
	return k.Conn, sends, k.receives
}

// newKeyed derives the keys of both directions from the public keys of a handshake (ECDH, HKDF: RFC 5869) and the key of
// the job. They are forgotten with the connection, so whoever learns the job's key later cannot read what was recorded.
func (c *credentials) newKeyed(conn net.Conn, own *ecdh.PrivateKey, theirs [publicSize]byte, hello, challenge *[introSize]byte,
	dialed bool) (*keyed, error) {
	public, err := ecdh.P256().NewPublicKey(theirs[:])
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errHello, err)
	}
	secret, err := own.ECDH(public)
	if err != nil {
		return nil, fmt.Errorf("agree on keys: %w", err)
	}
	info := slices.Concat([]byte("gorun link records"), hello[:], challenge[:])
	keys, err := hkdf.Key(sha256.New, secret, c.key, string(info), 2*keySize)
	if err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	mine, other := keys[:keySize], keys[keySize:]
	if !dialed {
		mine, other = other, mine
	}
	k := &keyed{Conn: conn}
	if k.sends, err = newHalf(mine, c.encrypt); err == nil {
		k.receives, err = newHalf(other, c.encrypt)
	}
	return k, err
}

// Write sends b as one message: its length, 2 bytes, and a record.
func (k *keyed) Write(b []byte) (int, error) {
	switch {
	case k.sends.aead == nil:
		return 0, net.ErrClosed
	case len(b) > messageSize:
		return 0, fmt.Errorf("message of %d bytes in a handshake", len(b))
	}
	m := k.sends.seal(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b)
	if _, err := k.Conn.Write(m); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Read returns the bytes of messages, which Write has sent.
func (k *keyed) Read(b []byte) (int, error) {
	if len(k.rest) == 0 {
		var size [2]byte
		if _, err := io.ReadFull(k.Conn, size[:]); err != nil {
			return 0, err
		}
		n := int(binary.LittleEndian.Uint16(size[:]))
		if n == 0 || n > messageSize {
			return 0, fmt.Errorf("%w: message of %d bytes in a handshake", errDamaged, n)
		}
		record := make([]byte, n+tagSize)
		if _, err := io.ReadFull(k.Conn, record); err != nil {
			return 0, err
		}
		var err error
		if k.rest, err = k.receives.open(record, record); err != nil {
			return 0, fmt.Errorf("%w: handshake", err)
		}
	}
	n := copy(b, k.rest)
	k.rest = k.rest[n:]
	return n, nil
}
