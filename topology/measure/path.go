package measure

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	largest = 9000 // bytes of a packet that is tried
	small   = 100  // bytes of a packet that any network carries
	sample  = 200  // packets of that size, which show losses
	settle  = 300 * time.Millisecond
	// received is how many packets wait for an order to count them: more than a probe sends.
	received = 1024
)

// usual packet sizes: jumbo frames, Ethernet, PPP and tunnels, the minimum of IPv6, less than that, and the size that
// every IPv4 network must carry.
var usual = []int{8500, 4000, 1500, 1492, 1450, 1400, 1280, 1200, 1100, 1000, 800, 576}

// Packets is what a host has received of the packets that another one sent.
type Packets struct {
	Arrive int     `json:"arrive,omitempty"` // bytes of the largest that arrived unfragmented, 0 for none
	Lost   float64 `json:"lost,omitempty"`   // share of the small ones
}

// send sends UDP packets to an address: the given size, the usual ones below it, and a sample of small ones. TCP hides
// what happens to large packets: connections open, since small packets pass, and then hang.
func send(ctx context.Context, to string, key []byte, bytes int) error {
	conn, err := (&net.Dialer{Control: unfragmented}).DialContext(ctx, "udp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	packet := append(sign(key, []byte("packet")), make([]byte, largest)...)
	header := headers(conn.RemoteAddr().(*net.UDPAddr).AddrPort().Addr())
	bytes = min(bytes, largest)
	sizes := slices.Repeat([]int{bytes}, 6)
	for _, n := range usual {
		if n < bytes {
			sizes = append(sizes, n, n)
		}
	}
	sent := false
	for i, n := range append(sizes, slices.Repeat([]int{small}, sample)...) {
		if n > small || i%2 == 0 { // some Mbit/s, for which a slow path has room
			time.Sleep(time.Millisecond)
		}
		// A size may be too large for this host, and a refusal is of an earlier packet.
		_, err = conn.Write(packet[:n-header])
		sent = sent || err == nil
	}
	if sent {
		return nil
	}
	return err
}

// packet is one that has come.
type packet struct {
	tag   []byte
	bytes int
}

// drain hands over what comes until the connection is closed. The kernel's buffer has no room for all that a probe sends.
func drain(ctx context.Context, conn *net.UDPConn, come chan<- packet) {
	defer close(come)
	read := make([]byte, largest)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(read)
		if err != nil {
			return
		}
		select {
		case come <- packet{slices.Clone(read[:min(n, sha256.Size)]), n + headers(from.Addr())}:
		case <-ctx.Done():
			return
		}
	}
}

// receive returns what has come of the packets for this key, once no more do.
func receive(come <-chan packet, key []byte) (found Packets) {
	tag, count := sign(key, []byte("packet")), 0
	end := time.After(answerTimeout)
	for open := true; open; {
		var p packet
		select {
		case p, open = <-come:
		case <-time.After(settle):
			open = false
		case <-end:
			open = false
		}
		if !hmac.Equal(p.tag, tag) {
			continue
		}
		if p.bytes == small {
			count++
		}
		found.Arrive = max(found.Arrive, p.bytes)
	}
	found.Lost = 1 - float64(min(count, sample))/sample
	return found
}

// headers returns the bytes that IP and UDP add to a packet.
func headers(a netip.Addr) int {
	if a.Unmap().Is4() {
		return 20 + 8
	}
	return 40 + 8
}
