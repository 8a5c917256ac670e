package link

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
)

// The handshake of a stream. Up to the proofs each message has a fixed size and ends with its crc32c, 4 bytes, so that
// damage is not taken for a wrong key. Nothing but these bytes is read before the proofs are checked:
//
//	dialer   → hello      sender, receiver, stream, session of the sender, session of the receiver if known, public key
//	acceptor → challenge  the same from the other side, and the acceptor's proof
//	dialer   → proof      the dialer's proof
//
// What follows is in records (records.go):
//
//	both     ⇄            what Config.Upgrade exchanges, if both sides have it
//	lower id → resume     generation of the stream, what was received
//	higher   → resume     the same generation, what was received
//
// A proof is HMAC-SHA256 with the job's key over the prover's role, the job, hello and challenge. Both public keys are in
// there. They serve this connection alone, so a proof is worth nothing on another one, and whoever passes proofs on does
// not learn the keys of the records.
//
// introduction (hello and the signed part of challenge):
//
//	 0  u32  magic
//	 4  u8   version
//	 5  u8   1 if something else than TCP may carry the stream; 2 if records are encrypted
//	 6  u16  stream index
//	 8  u32  id of the sender
//	12  u32  id of the receiver, as the sender believes
//	16      session of the sender, 24 bytes: incarnation, u64 number of the link; 0 if it has no such link
//	40      session of the receiver that the sender's link is bound to, 24 bytes of 0 if none
//	64      public key: a point of P-256, uncompressed, 65 bytes
//
// resume:
//
//	 0  u64  generation
//	 8  u64  base: all segments below were received
//	16  u16  length of the map
//	18       map of the segments received from base on, as in an acknowledgement
const (
	introMagic   = 0x316b6e6c // "lnk1"
	protoVersion = 3

	publicSize    = 65
	introSize     = 64 + publicSize
	challengeSize = introSize + sha256.Size
	resumeSize    = 8 + 8 + 2 // without the map
	sumSize       = 4

	introUpgrades = 1
	introEncrypts = 2
)

const (
	roleDial   = "gorun link dial"
	roleAccept = "gorun link accept"
)

// Errors of the handshake that callers distinguish.
var (
	// ErrKey means that the other side has another key or belongs to another job.
	ErrKey = errors.New("the other side does not hold the key of this job")
	// ErrRestarted means that the peer is another process than the one the link was made with.
	ErrRestarted = errors.New("peer was restarted")
	// ErrReopened means that the peer forgot this link and opened a new one.
	ErrReopened = errors.New("peer gave up the link and opened another")

	errHello    = errors.New("no introduction of a link")
	errEncrypt  = errors.New("one of the hosts encrypts and the other does not")
	errWrong    = errors.New("reached another host")
	errNotReady = errors.New("peer is not ready for this link")
	errGivenUp  = errors.New("superseded by a newer connection")
	errClosed   = errors.New("link is closed")
)

// session names one side of a link: the incarnation of its mesh and the number of the link in there.
type session struct {
	Incarnation [16]byte
	Number      uint64
}

type introduction struct {
	Magic          uint32
	Version, Flags uint8
	Stream         uint16
	From, To       uint32
	Mine           session // of the sender
	Yours          session // of the receiver, as far as it is known
	Public         [publicSize]byte
}

func (in introduction) upgrades() bool { return in.Flags&introUpgrades != 0 }

func (in introduction) encode() (b [introSize]byte) {
	in.Magic, in.Version = introMagic, protoVersion
	binary.Encode(b[:], binary.LittleEndian, in)
	return b
}

func (in *introduction) decode(b *[introSize]byte) error {
	binary.Decode(b[:], binary.LittleEndian, in)
	if in.Magic != introMagic {
		return errHello
	}
	if in.Version != protoVersion {
		return fmt.Errorf("%w: version %d, want %d", errHello, in.Version, protoVersion)
	}
	return nil
}

// credentials prove that a side belongs to the job.
type credentials struct {
	job     string
	key     []byte
	encrypt bool // the records of the connection
}

func (c *credentials) proof(role string, hello, challenge *[introSize]byte) []byte {
	h := hmac.New(sha256.New, c.key)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(c.job)))
	io.WriteString(h, role)
	h.Write(n[:])
	io.WriteString(h, c.job)
	h.Write(hello[:])
	h.Write(challenge[:])
	return h.Sum(nil)
}

// introduce puts a new public key into an introduction.
func (c *credentials) introduce(in *introduction) (*ecdh.PrivateKey, error) {
	own, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	if c.encrypt {
		in.Flags |= introEncrypts
	}
	copy(in.Public[:], own.PublicKey().Bytes())
	return own, nil
}

// meet is the dialer's part up to the proof. It returns the acceptor's introduction, which is proven, and the
// connection for what follows.
func (c *credentials) meet(conn net.Conn, hello introduction) (introduction, *keyed, error) {
	var challenge introduction
	own, err := c.introduce(&hello)
	if err != nil {
		return challenge, nil, err
	}
	sent := hello.encode()
	if err := writeMessage(conn, sent[:]); err != nil {
		return challenge, nil, err
	}
	var got [challengeSize]byte
	if err := readIntroduction(conn, got[:]); err != nil {
		return challenge, nil, err
	}
	intro := (*[introSize]byte)(got[:])
	if !hmac.Equal(got[introSize:], c.proof(roleAccept, &sent, intro)) {
		return challenge, nil, ErrKey
	}
	if err := challenge.decode(intro); err != nil {
		return challenge, nil, err
	}
	// Even if this attempt fails: the acceptor may need to know this side's session.
	if err := writeMessage(conn, c.proof(roleDial, &sent, intro)); err != nil {
		return challenge, nil, err
	}
	if challenge.From != hello.To || challenge.To != hello.From || challenge.Stream != hello.Stream {
		return challenge, nil, fmt.Errorf("%w: host %d instead of %d", errWrong, challenge.From, hello.To)
	}
	if (challenge.Flags^hello.Flags)&introEncrypts != 0 {
		return challenge, nil, errEncrypt
	}
	k, err := c.newKeyed(conn, own, challenge.Public, &sent, intro, true)
	return challenge, k, err
}

// welcome is the acceptor's part up to the proof. answer returns the introduction to send to the dialer, and is called
// before anything is proven. The result is proven unless there is an error.
func (c *credentials) welcome(conn net.Conn, answer func(*introduction) introduction) (introduction, *keyed, error) {
	var hello introduction
	var got [introSize]byte
	if err := readIntroduction(conn, got[:]); err != nil {
		return hello, nil, err
	}
	if err := hello.decode(&got); err != nil {
		return hello, nil, err
	}
	challenge := answer(&hello)
	challenge.Stream, challenge.To = hello.Stream, hello.From
	own, err := c.introduce(&challenge)
	if err != nil {
		return hello, nil, err
	}
	intro := challenge.encode()
	if err := writeMessage(conn, append(intro[:], c.proof(roleAccept, &got, &intro)...)); err != nil {
		return hello, nil, err
	}
	var proof [sha256.Size]byte
	if err := readMessage(conn, proof[:]); err != nil {
		return hello, nil, err
	}
	if !hmac.Equal(proof[:], c.proof(roleDial, &got, &intro)) {
		return hello, nil, ErrKey
	}
	if hello.To != challenge.From {
		return hello, nil, fmt.Errorf("%w: host %d instead of %d", errWrong, challenge.From, hello.To)
	}
	if (hello.Flags^challenge.Flags)&introEncrypts != 0 {
		return hello, nil, errEncrypt
	}
	k, err := c.newKeyed(conn, own, hello.Public, &got, &intro, false)
	return hello, k, err
}

// resume is the last message of a side before its stream is up.
type resume struct {
	generation uint64
	base       uint64 // all segments below were received
	received   [mapBytes]byte
}

func (r *resume) encode() []byte {
	n := len(r.received)
	for n > 0 && r.received[n-1] == 0 {
		n--
	}
	b := binary.LittleEndian.AppendUint64(nil, r.generation)
	b = binary.LittleEndian.AppendUint64(b, r.base)
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	return append(b, r.received[:n]...)
}

func writeResume(w io.Writer, r *resume) error {
	_, err := w.Write(r.encode())
	return err
}

func readResume(from io.Reader, r *resume) error {
	b := make([]byte, resumeSize+mapBytes)
	if _, err := io.ReadFull(from, b[:resumeSize]); err != nil {
		return err
	}
	n := int(binary.LittleEndian.Uint16(b[16:]))
	if n > mapBytes {
		return fmt.Errorf("%w: map of %d bytes", errDamaged, n)
	}
	b = b[:resumeSize+n]
	if _, err := io.ReadFull(from, b[resumeSize:]); err != nil {
		return err
	}
	*r = resume{generation: binary.LittleEndian.Uint64(b), base: binary.LittleEndian.Uint64(b[8:])}
	copy(r.received[:], b[resumeSize:])
	return nil
}

// writeMessage writes a message and its checksum.
func writeMessage(w io.Writer, message []byte) error {
	_, err := w.Write(binary.LittleEndian.AppendUint32(message[:len(message):len(message)], checksum(message)))
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(message []byte) uint32 { return crc32.Checksum(message, castagnoli) }

// readMessage reads what writeMessage has written.
func readMessage(from io.Reader, message []byte) error {
	if _, err := io.ReadFull(from, message); err != nil {
		return err
	}
	var sum [sumSize]byte
	if _, err := io.ReadFull(from, sum[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(sum[:]) != checksum(message) {
		return fmt.Errorf("%w: handshake", errDamaged)
	}
	return nil
}

// readIntroduction reads a message that starts with an introduction. A message of another protocol is not mistaken for
// a damaged one.
func readIntroduction(from io.Reader, message []byte) error {
	err := readMessage(from, message)
	if errors.Is(err, errDamaged) && binary.LittleEndian.Uint32(message) != introMagic {
		return errHello
	}
	return err
}
