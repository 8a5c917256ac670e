// Package measure finds the round-trip time and the bandwidth between two hosts: one serves, the other probes. A probe
// loads the network only for the requested time.
//
// A server answers only peers that hold its key, and sends nothing except echoes and counts. Serve and Probe wait for
// all goroutines that they start.
package measure

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"gorun/collective/admit"
)

const (
	pings         = 20
	block         = 256 << 10
	answerTimeout = 2 * time.Second // for a connection and an answer
	maxStream     = 5 * time.Second // that a stream is counted
)

// Key returns the key of one host, from a secret of the job: a probe that reaches the wrong host, at an address that
// several have, is refused.
func Key(secret []byte, host int) []byte {
	return sign(secret, fmt.Appendf(nil, "gorun measure host %d", host))
}

func sign(key, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(nil)
}

// Serve answers probes until the context is done.
func Serve(ctx context.Context, l net.Listener, key []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	door := &admit.Door{Timeout: answerTimeout}
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		raw, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				raw.Close()
			}
			return nil
		}
		if err != nil {
			cancel()
			return fmt.Errorf("accept probe: %w", err)
		}
		conn := door.Enter(raw)
		serving.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			answer(conn, key) // the other end reports failures
		})
	}
}

// answer serves one connection: a challenge, then pings, then a stream that it counts.
func answer(conn *admit.Conn, key []byte) error {
	challenge, response := make([]byte, sha256.Size), make([]byte, sha256.Size)
	if _, err := rand.Read(challenge); err != nil {
		return err
	}
	if _, err := conn.Write(challenge); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, response); err != nil {
		return err
	}
	if !hmac.Equal(response, sign(key, challenge)) {
		return errors.New("wrong key")
	}
	conn.Known()
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	one := make([]byte, 1)
	for range pings + 1 { // the first one shows that the key was right
		if _, err := conn.Write(one); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return err
		}
	}
	order := make([]byte, 8)
	if _, err := io.ReadFull(conn, order); err != nil {
		return err // only the round-trip time was requested
	}
	return count(conn, min(time.Duration(binary.LittleEndian.Uint64(order)), maxStream))
}

// count reads for a time and reports how many bytes arrived, and in how long. It ignores the first quarter, which shows
// the effect of buffers and of TCP's slow start.
func count(conn net.Conn, long time.Duration) error {
	buffer := make([]byte, block)
	var (
		begin, from, last time.Time
		bytes             uint64
	)
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			last = time.Now()
			switch {
			case begin.IsZero():
				begin, from = last, last
				if err := conn.SetReadDeadline(begin.Add(long)); err != nil {
					return err
				}
			case last.Sub(begin) < long/4:
				from = last
			default:
				bytes += uint64(n)
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			return err
		}
	}
	report := binary.LittleEndian.AppendUint64(nil, bytes)
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(binary.LittleEndian.AppendUint64(report, uint64(last.Sub(from)))); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, conn) // closing with unread data could overtake the report
	return err
}

// Result is the result of a probe.
type Result struct {
	RTT       float64 `json:"rtt"`       // seconds, the median
	Bandwidth float64 `json:"bandwidth"` // bytes per second, 0 if not requested
}

// Probe measures the path to the first of the addresses at which a server with this key answers, and sends for the
// given time; 0 requests the round-trip time only.
func Probe(ctx context.Context, addrs []string, key []byte, send time.Duration) (Result, error) {
	err := errors.New("no address")
	for _, a := range addrs {
		var r Result
		if r, err = probe(ctx, a, key, min(send, maxStream)); err == nil || ctx.Err() != nil {
			return r, err
		}
	}
	return Result{}, fmt.Errorf("probe %v: %w", addrs, err)
}

func probe(ctx context.Context, addr string, key []byte, send time.Duration) (Result, error) {
	conn, err := (&net.Dialer{Timeout: answerTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(send + 2*answerTimeout)); err != nil {
		return Result{}, err
	}
	challenge := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, challenge); err != nil {
		return Result{}, err
	}
	if _, err := conn.Write(sign(key, challenge)); err != nil {
		return Result{}, err
	}
	one, times := make([]byte, 1), make([]float64, 0, pings)
	if _, err := io.ReadFull(conn, one); err != nil {
		return Result{}, fmt.Errorf("it refused the key: %w", err)
	}
	for range pings {
		start := time.Now()
		if _, err := conn.Write(one); err != nil {
			return Result{}, err
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return Result{}, err
		}
		times = append(times, time.Since(start).Seconds())
	}
	if _, err := conn.Write(one); err != nil { // the server's last ping
		return Result{}, err
	}
	slices.Sort(times)
	r := Result{RTT: times[pings/2]}
	if send > 0 {
		r.Bandwidth, err = stream(conn.(*net.TCPConn), send)
	}
	return r, err
}

// stream sends until the other end has counted for a time, and returns its count. A slow network does not prolong that:
// what is still in buffers is discarded.
func stream(conn *net.TCPConn, long time.Duration) (float64, error) {
	if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, uint64(long))); err != nil {
		return 0, err
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for buffer := make([]byte, block); ; {
			if _, err := conn.Write(buffer); err != nil {
				return
			}
		}
	})
	report := make([]byte, 16)
	_, err := io.ReadFull(conn, report)
	err = errors.Join(err, conn.SetLinger(0), conn.Close())
	sending.Wait()
	if err != nil {
		return 0, err
	}
	bytes, nanoseconds := binary.LittleEndian.Uint64(report), binary.LittleEndian.Uint64(report[8:])
	if bytes == 0 || nanoseconds == 0 {
		return 0, errors.New("too little was sent to tell")
	}
	return float64(bytes) / (float64(nanoseconds) / 1e9), nil
}
