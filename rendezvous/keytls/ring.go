package keytls

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
)

const (
	// MaxKeys is how many keys a Ring may have: the next one is valid too while a key is replaced.
	MaxKeys   = 2
	proofSize = sha256.Size
)

// Ring holds the keys that a side accepts. Two sides meet if they have a key in common, whatever their order.
//
// In contrast to New, the side that accepts a connection shows nothing that depends on its keys to a peer without any, so
// that nobody can try guesses on what it has seen. Certificates are random. Within the connection first the side that has
// opened it sends its proofs, and then the other one: HMACs of a secret of this very connection (RFC 9266), which a relay
// cannot pass on.
type Ring struct {
	keys    [][]byte
	config  *tls.Config
	refused error
}

// NewRing returns a ring. keys must be derived for this purpose alone; protocol and refused are as in New.
func NewRing(keys [][]byte, protocol string, refused error) (*Ring, error) {
	if len(keys) == 0 || len(keys) > MaxKeys {
		return nil, fmt.Errorf("make TLS configuration: %d keys, want 1 to %d", len(keys), MaxKeys)
	}
	seed := make([]byte, SeedSize)
	rand.Read(seed) // never fails
	config, err := New(seed, protocol, refused)
	if err != nil {
		return nil, err
	}
	config.VerifyConnection, config.ClientAuth = nil, tls.NoClientCert
	return &Ring{keys, config, refused}, nil
}

// Client proves the keys over a connection that this side has opened. It returns the index of one that the peer has proven
// too. The caller closes raw.
func (r *Ring) Client(ctx context.Context, raw net.Conn) (conn *tls.Conn, key int, err error) {
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	conn = tls.Client(raw, r.config)
	mine, theirs, err := r.shake(ctx, conn)
	if err == nil {
		err = send(conn, mine...)
	}
	if err == nil {
		key, err = r.receive(conn, theirs)
	}
	return conn, key, err
}

// Server is Client for a connection that the peer has opened.
func (r *Ring) Server(ctx context.Context, raw net.Conn) (conn *tls.Conn, key int, err error) {
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	conn = tls.Server(raw, r.config)
	theirs, mine, err := r.shake(ctx, conn)
	if err == nil {
		key, err = r.receive(conn, theirs)
	}
	switch err {
	case nil:
		err = send(conn, mine[key])
	case r.refused:
		send(conn) // no proof: the peer learns why this side hangs up
	}
	return conn, key, err
}

// send sends proofs, and zeros in place of those that are missing.
func send(conn *tls.Conn, proofs ...[]byte) error {
	all := make([]byte, MaxKeys*proofSize)
	copy(all, slices.Concat(proofs...))
	_, err := conn.Write(all)
	return err
}

// receive returns the index of a proof that the peer sends.
func (r *Ring) receive(conn *tls.Conn, proofs [][]byte) (int, error) {
	all := make([]byte, MaxKeys*proofSize)
	if _, err := io.ReadFull(conn, all); err != nil {
		return 0, err
	}
	for i, proof := range proofs {
		for sent := range slices.Chunk(all, proofSize) {
			if hmac.Equal(proof, sent) {
				return i, nil
			}
		}
	}
	return 0, r.refused
}

// shake shakes hands, and returns the proofs of the side that has opened the connection, and of the other one, for each key.
func (r *Ring) shake(ctx context.Context, conn *tls.Conn) (client, server [][]byte, err error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	state := conn.ConnectionState()
	bound, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, sha256.Size)
	if err != nil {
		return nil, nil, fmt.Errorf("bind proof to connection: %w", err)
	}
	for _, key := range r.keys {
		client, server = append(client, proof(key, "client", bound)), append(server, proof(key, "server", bound))
	}
	return client, server, nil
}

func proof(key []byte, side string, bound []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(side))
	h.Write(bound)
	return h.Sum(nil)
}
