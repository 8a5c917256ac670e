package kvhttp

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Horovod registers listeners and delivers notifications in Python's pickle format. This reader supports just enough of
// it for these few values, and builds no objects: only a port and a key come out.

const (
	maxAddresses = 64 << 10
	keySize      = 32
	// notifyTimeout is how long a rank may take to accept a notification.
	notifyTimeout = 5 * time.Second
)

// listener is where a rank listens for notifications.
type listener struct {
	port int
	key  []byte // authenticates the sender
}

// Opcodes of pickle that ({interface: [(address, port), …], …}, key) consists of.
const (
	opProto, opFrame, opStop             = 0x80, 0x95, '.'
	opMark, opMemoize, opBinget          = '(', 0x94, 'h'
	opDict, opList, opTuple2             = '}', ']', 0x86
	opAppend, opAppends, opItem, opItem2 = 'a', 'e', 's', 'u'
	opText, opBytes                      = 0x8c, 'C'
	opInt1, opInt2, opInt4               = 'K', 'M', 'J'
)

var errAddresses = errors.New("read where a rank listens: not what Horovod says")

// parseAddresses reads base64 of that pickle. All addresses belong to one socket, which listens on all of them.
func parseAddresses(text []byte) (*listener, error) {
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(b, text)
	if err != nil {
		return nil, fmt.Errorf("read where a rank listens: %w", err)
	}
	b = b[:n]
	take := func(n int) []byte {
		if n > len(b) {
			return nil
		}
		head := b[:n]
		b = b[n:]
		return head
	}
	var l listener
	for len(b) > 0 {
		op := take(1)[0]
		operand := map[byte]int{opProto: 1, opFrame: 8, opBinget: 1, opInt1: 1, opInt2: 2, opInt4: 4, opText: 1, opBytes: 1}[op]
		arg := take(operand)
		if operand > 0 && arg == nil {
			return nil, errAddresses
		}
		switch op {
		case opProto, opFrame, opMark, opMemoize, opBinget, opDict, opList, opTuple2, opAppend, opAppends, opItem, opItem2:
		case opText:
			if take(int(arg[0])) == nil {
				return nil, errAddresses
			}
		case opBytes:
			if l.key = take(int(arg[0])); len(l.key) != keySize {
				return nil, errAddresses
			}
		case opInt1, opInt2, opInt4:
			if l.port == 0 {
				l.port = int(binary.LittleEndian.Uint32(append(bytes.Clone(arg), 0, 0, 0)[:4]))
			}
		case opStop:
			if l.port < 1 || l.port > 65535 || l.key == nil || len(b) > 0 {
				return nil, errAddresses
			}
			return &l, nil
		default:
			return nil, errAddresses
		}
	}
	return nil, errAddresses
}

// hostsUpdated returns the pickle of HostsUpdatedRequest(timestamp, res).
func hostsUpdated(stamp int64, added, removed bool) []byte {
	res := byte(0)
	if removed {
		res |= 1
	}
	if added {
		res |= 2
	}
	b := []byte("\x80\x02chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}(X\x09\x00\x00\x00timestamp\x8a\x08")
	b = binary.LittleEndian.AppendUint64(b, uint64(stamp))
	b = append(b, "X\x03\x00\x00\x00resK"...)
	return append(b, res, 'u', 'b', '.')
}

// notify sends the rank a notification. The answer only confirms that it arrived.
func (l *listener) notify(ctx context.Context, stamp int64, added, removed bool) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)))
	if err != nil {
		return fmt.Errorf("tell rank of other hosts: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	body := hostsUpdated(stamp, added, removed)
	mac := hmac.New(sha256.New, l.key)
	mac.Write(body)
	frame := binary.LittleEndian.AppendUint32(mac.Sum(nil), uint32(len(body)))
	if _, err := conn.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("tell rank of other hosts: %w", err)
	}
	if _, err := io.CopyN(io.Discard, conn, sha256.Size); err != nil {
		return fmt.Errorf("tell rank of other hosts: %w", err)
	}
	return nil
}
