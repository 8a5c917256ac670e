//go:build linux

package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Faults are what a wire does to packets, each way.
type Faults struct {
	Lost, Doubled, Late float64       // shares of the packets, 0 to 1
	Delay               time.Duration // of all packets
	Lateness            time.Duration // additional delay of late packets: others overtake them
	Damaged             float64       // share of TCP segments in which two 16-bit words are swapped, so that their checksum is right
	Replace             [2]string     // in TCP segments the first text becomes the second, of the same length, with a checksum that fits
	Largest             int           // packet, in bytes: larger ones are lost silently; 0 for the device's limit
}

// Wire is a cable between two hosts; every packet passes through this process. Of the kernel it needs only TUN.
type Wire struct {
	Lost, Doubled, Late, Damaged, Replaced, TooLarge atomic.Int64 // packets

	ends    [2]*os.File
	passing sync.WaitGroup // packets, and the goroutines that read them
}

// mostPacket is the largest packet.
const mostPacket = 64 << 10

// AddWire connects two hosts by a wire for all that they send each other. The seed determines its faults. Close removes
// it.
func (l *Lab) AddWire(a, b *LabHost, faults Faults, seed uint64) (*Wire, error) {
	w := &Wire{}
	for i, h := range [2]*LabHost{a, b} {
		other := [2]*LabHost{b, a}[i]
		pid, err := h.runningPID()
		if err == nil {
			err = enter(pid, unix.CLONE_NEWNET, func() (err error) {
				w.ends[i], err = openTUN("wire-" + other.name)
				return err
			})
		}
		if err == nil {
			err = l.ip(pid, "link set wire-"+other.name+" up", fmt.Sprintf("route add %s/32 dev wire-%s src %s", other.address, other.name, h.address))
		}
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("lay wire between %s and %s: %w", a.name, b.name, err)
		}
	}
	for i := range w.ends {
		w.passing.Go(func() { w.pass(w.ends[i], w.ends[1-i], faults, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	return w, nil
}

// openTUN creates a device in the present network namespace. It vanishes once the file is closed, also in each process
// that was forked meanwhile and has not called exec yet. Until then the name is busy.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		for busy := 0; busy < 200; busy++ {
			if err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request); !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// pass carries packets from one end to the other.
func (w *Wire) pass(from, to *os.File, faults Faults, rng *rand.Rand) {
	packet := make([]byte, mostPacket)
	for {
		n, err := from.Read(packet)
		if err != nil {
			return
		}
		if faults.Largest > 0 && n > faults.Largest {
			w.TooLarge.Add(1)
			continue
		}
		if rng.Float64() < faults.Damaged && swapWords(packet[:n], rng) {
			w.Damaged.Add(1)
		}
		if faults.Replace[0] != "" && replace(packet[:n], []byte(faults.Replace[0]), []byte(faults.Replace[1])) {
			w.Replaced.Add(1)
		}
		after, copies := faults.Delay, 1
		if rng.Float64() < faults.Late {
			w.Late.Add(1)
			after += faults.Lateness
		}
		if rng.Float64() < faults.Doubled {
			w.Doubled.Add(1)
			copies = 2
		}
		if rng.Float64() < faults.Lost {
			w.Lost.Add(1)
			continue
		}
		for range copies {
			w.send(to, packet[:n], after)
		}
	}
}

// tcpSegment returns the header and the data of a TCP segment over IPv4, nil if the packet is none.
func tcpSegment(packet []byte) (header, data []byte) {
	if len(packet) < 40 || packet[0]>>4 != 4 || packet[9] != unix.IPPROTO_TCP {
		return nil, nil
	}
	ip := int(packet[0]&15) * 4
	if ip+12 >= len(packet) {
		return nil, nil
	}
	head := ip + int(packet[ip+12]>>4)*4
	if len(packet) < head {
		return nil, nil
	}
	return packet[ip:head], packet[head:]
}

// replace does what somebody on the path can do who has no key: it changes data and the checksum of TCP with it. It reports
// false if the text does not occur.
func replace(packet, from, to []byte) bool {
	header, data := tcpSegment(packet)
	if !bytes.Contains(data, from) {
		return false
	}
	changed := bytes.ReplaceAll(data, from, to)
	// The checksum is a sum in one's complement (RFC 1624).
	sum := uint64(^binary.BigEndian.Uint16(header[16:]))
	for i := range data {
		shift := 8 * (1 - i%2)
		sum += uint64(changed[i])<<shift + uint64(0xffff-int(data[i])<<shift)
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(header[16:], ^uint16(sum))
	copy(data, changed)
	return true
}

// swapWords swaps two 16-bit words of a TCP segment's data over IPv4. It reports false if that changes nothing.
func swapWords(packet []byte, rng *rand.Rand) bool {
	_, data := tcpSegment(packet)
	if len(data) < 4 {
		return false
	}
	a, b := data[rng.IntN(len(data)/2)*2:], data[rng.IntN(len(data)/2)*2:]
	if a[0] == b[0] && a[1] == b[1] {
		return false
	}
	a[0], a[1], b[0], b[1] = b[0], b[1], a[0], a[1]
	return true
}

// send delivers a packet after a delay. It is not an error if the host accepts none, for example because it is off.
func (w *Wire) send(to *os.File, packet []byte, after time.Duration) {
	if after == 0 {
		to.Write(packet)
		return
	}
	packet = slices.Clone(packet)
	w.passing.Add(1)
	time.AfterFunc(after, func() {
		defer w.passing.Done()
		to.Write(packet)
	})
}

// Close removes the wire; the hosts use their previous path. Packets on the wire are lost.
func (w *Wire) Close() error {
	var errs []error
	for _, end := range w.ends {
		if end != nil {
			errs = append(errs, end.Close())
		}
	}
	w.passing.Wait()
	return errors.Join(errs...)
}
