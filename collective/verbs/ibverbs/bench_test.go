//go:build rdma && linux && (amd64 || arm64)

package ibverbs_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"gorun/collective/link"
	"gorun/collective/tcp"
	"gorun/collective/verbs"
	"gorun/contrib/must"
)

const (
	benchPiece = 256 << 10 // a segment
	benchTotal = 64 << 20
	benchChunk = 256 << 10 // a message
	benchRing  = 2 << 20
)

// BenchmarkStream compares a stream over the stand-in with what its memory copies allow, and with TCP on this machine. A
// byte is copied three times: into the ring to send from, by the stand-in as the device, and out of the peer's ring.
func BenchmarkStream(b *testing.B) {
	provider, _ := standin(b)
	b.Run("tcp", func(b *testing.B) { stream(b, nil) })
	b.Run("rdma", func(b *testing.B) { stream(b, provider) })
	b.Run("copies", copies)
}

// BenchmarkRoundTrip has few bytes go there and back.
func BenchmarkRoundTrip(b *testing.B) {
	provider, _ := standin(b)
	for _, size := range []int{4, 4 << 10} {
		for name, p := range map[string]verbs.Provider{"tcp": nil, "rdma": provider} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				ends := opened(b, p)
				var echoing sync.WaitGroup
				defer echoing.Wait()
				defer ends[0].Close()
				echoing.Go(func() {
					defer ends[1].Close()
					through := make([]byte, size)
					for {
						if _, err := io.ReadFull(ends[1], through); err != nil { // the other end was closed
							return
						}
						if _, err := ends[1].Write(through); err != nil {
							return
						}
					}
				})
				through := make([]byte, size)
				for b.Loop() {
					if _, err := ends[0].Write(through); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(ends[0], through); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// opened returns both ends of a stream, over TCP without a provider.
func opened(b *testing.B, provider verbs.Provider) (ends [2]net.Conn) {
	l, err := tcp.Options{}.Listen(b.Context(), "127.0.0.1:0")
	must.Do(b, err)
	defer l.Close()
	if ends[0], err = (tcp.Options{}).Dial(b.Context(), []string{l.Addr().String()}); err != nil {
		b.Fatal(err)
	}
	if ends[1], err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	if provider != nil {
		var wg sync.WaitGroup
		for i := range ends {
			t := verbs.New(verbs.Config{Provider: provider})
			b.Cleanup(t.Close)
			wg.Go(func() {
				up, err := t.Upgrade(b.Context(), ends[i], 1-i, 1)
				if err != nil {
					b.Error(err)
					return
				}
				ends[i] = up
			})
		}
		wg.Wait()
		if _, ok := ends[0].(link.Upgraded); !ok {
			b.Fatal("TCP carries it")
		}
	}
	return ends
}

func stream(b *testing.B, provider verbs.Provider) {
	ends := opened(b, provider)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer ends[0].Close()
	defer ends[1].Close()
	from, to := filled(), filled()
	b.SetBytes(benchTotal)
	reading.Go(func() { // and answers when everything has arrived
		defer ends[1].Close()
		for {
			for at := 0; at < benchTotal; at += benchPiece {
				_, err := io.ReadFull(ends[1], to[at:at+benchPiece])
				if at == 0 && (errors.Is(err, io.EOF) || verbs.Broken(err)) {
					return // the other end was closed
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
			if _, err := ends[1].Write(to[:1]); err != nil {
				b.Error(err)
				return
			}
		}
	})
	for b.Loop() {
		for at := 0; at < benchTotal; at += benchPiece {
			if _, err := ends[0].Write(from[at : at+benchPiece]); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := io.ReadFull(ends[0], from[:1]); err != nil {
			b.Fatal(err)
		}
	}
	ends[0].Close()
	reading.Wait()
}

// copies is a pipeline that does nothing but copy. The C library makes the copy that the stand-in makes by it.
func copies(b *testing.B) {
	memcpy, err := purego.Dlsym(purego.RTLD_DEFAULT, "memcpy")
	must.Do(b, err)
	from, to := filled(), filled()
	send, receive := make([]byte, benchRing), make([]byte, benchRing)
	b.SetBytes(benchTotal)
	arrived, free := make(chan int, benchRing/benchChunk), make(chan int, benchRing/benchChunk)
	for at := 0; at < benchRing; at += benchChunk {
		free <- at
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for at := 0; ; at = (at + benchChunk) % benchTotal {
			from, ok := <-arrived
			if !ok {
				return
			}
			copy(to[at:at+benchChunk], receive[from:from+benchChunk])
			free <- from
		}
	})
	for b.Loop() {
		for at := 0; at < benchTotal; at += benchChunk {
			through := <-free
			copy(send[through:through+benchChunk], from[at:at+benchChunk])
			purego.SyscallN(memcpy, uintptr(unsafe.Pointer(&receive[through])), uintptr(unsafe.Pointer(&send[through])), benchChunk)
			arrived <- through
		}
	}
	close(arrived)
	wg.Wait()
}

func filled() []byte {
	all := make([]byte, benchTotal)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}
