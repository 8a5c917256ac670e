//go:build rdma && linux && (amd64 || arm64)

package ibverbs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"gorun/collective/verbs"
)

// mostGIDs bounds how many entries of a port's table are read. A queue pair's address has 8 bits for the index.
const mostGIDs = 256

// library is a loaded libibverbs.
type library struct {
	getDeviceList, freeDeviceList, getDeviceName, openDevice, closeDevice uintptr
	queryDevice, queryPort, queryGID                                      uintptr
	allocPD, deallocPD, regMR, deregMR                                    uintptr
	createChannel, destroyChannel, createCQ, destroyCQ                    uintptr
	createQP, modifyQP, destroyQP, getCQEvent, ackCQEvents                uintptr
	getAsyncEvent, ackAsyncEvent                                          uintptr
	errnoLocation                                                         uintptr // of the C library

	removals removals
}

// Load loads the library from a path, "" for the system's.
func Load(path string) (verbs.Provider, error) {
	handle, err := purego.Dlopen(cmp.Or(path, "libibverbs.so.1"), purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load libibverbs: %w; install libibverbs1 and ibverbs-providers", err)
	}
	l := &library{}
	for name, to := range map[string]*uintptr{
		"ibv_get_device_list": &l.getDeviceList, "ibv_free_device_list": &l.freeDeviceList,
		"ibv_get_device_name": &l.getDeviceName, "ibv_open_device": &l.openDevice, "ibv_close_device": &l.closeDevice,
		"ibv_query_device": &l.queryDevice, "ibv_query_port": &l.queryPort, "_ibv_query_gid_ex": &l.queryGID,
		"ibv_alloc_pd": &l.allocPD, "ibv_dealloc_pd": &l.deallocPD, "ibv_reg_mr": &l.regMR, "ibv_dereg_mr": &l.deregMR,
		"ibv_create_comp_channel": &l.createChannel, "ibv_destroy_comp_channel": &l.destroyChannel,
		"ibv_create_cq": &l.createCQ, "ibv_destroy_cq": &l.destroyCQ,
		"ibv_create_qp": &l.createQP, "ibv_modify_qp": &l.modifyQP, "ibv_destroy_qp": &l.destroyQP,
		"ibv_get_cq_event": &l.getCQEvent, "ibv_ack_cq_events": &l.ackCQEvents,
		"ibv_get_async_event": &l.getAsyncEvent, "ibv_ack_async_event": &l.ackAsyncEvent,
		"__errno_location": &l.errnoLocation,
	} {
		if *to, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("load libibverbs: %w (rdma-core 33 or later has it)", err)
		}
	}
	return l, nil
}

// make calls a function that returns a pointer, NULL on failure.
func (l *library) make(verb string, f uintptr, args ...uintptr) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, _, _ := purego.SyscallN(f, args...)
	if p == 0 {
		return 0, fmt.Errorf("%s: %w", verb, reason(l.errno()))
	}
	return p, nil
}

// errno returns the C library's errno of this thread, which purego does not return on Linux.
func (l *library) errno() unix.Errno {
	at, _, _ := purego.SyscallN(l.errnoLocation)
	return unix.Errno(native.Uint32(memory(at, 4)))
}

// do calls a function that returns an int, 0 for success, and otherwise an error number or -1.
func (l *library) do(verb string, f uintptr, args ...uintptr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, _, _ := purego.SyscallN(f, args...)
	errno := unix.Errno(max(int32(r), -int32(r)))
	switch int32(r) {
	case 0:
		return nil
	case -1:
		errno = l.errno()
	}
	return fmt.Errorf("%s: %w", verb, reason(errno))
}

// reason returns an error number as an error, also where a library has set none.
func reason(errno unix.Errno) error {
	if errno == 0 {
		return errors.New("failed without a reason")
	}
	return errno
}

// memory returns n bytes that the library owns.
func memory(address uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}

func pointer(address uintptr, offset int) uintptr {
	return uintptr(native.Uint64(memory(address+uintptr(offset), 8)))
}

func text(address uintptr, most int) string {
	b := memory(address, most)
	return string(b[:max(bytes.IndexByte(b, 0), 0)])
}

// each calls f with all devices, until it returns false.
func (l *library) each(f func(device uintptr, name string) bool) error {
	scratch, err := newPage()
	if err != nil {
		return err
	}
	defer scratch.free()
	list, err := l.make("list RDMA devices", l.getDeviceList, scratch.address)
	if err != nil {
		return err
	}
	defer purego.SyscallN(l.freeDeviceList, list)
	for i := range int(int32(native.Uint32(scratch.bytes))) {
		device := pointer(list, i*8)
		name, _, _ := purego.SyscallN(l.getDeviceName, device)
		if !f(device, text(name, deviceNameSize)) {
			break
		}
	}
	return nil
}

// Ports implements verbs.Provider. A device that cannot be opened is left out unless there is no other.
func (l *library) Ports() (ports []verbs.Port, err error) {
	var failed error
	err = l.each(func(device uintptr, name string) bool {
		found, err := l.portsOf(device, name)
		if err != nil {
			failed = openError(name, err)
		}
		ports = append(ports, found...)
		return true
	})
	if err == nil && ports == nil {
		err = failed
	}
	return ports, err
}

// openError explains why a device cannot be opened.
func openError(device string, err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s: %w; let this user write /dev/infiniband/uverbs*, as rdma-core's udev rules do", device, err)
	}
	return fmt.Errorf("%s: %w", device, err)
}

func (l *library) portsOf(device uintptr, name string) (ports []verbs.Port, err error) {
	context, err := l.make("open device", l.openDevice, device)
	if err != nil {
		return nil, err
	}
	defer purego.SyscallN(l.closeDevice, context)
	scratch, err := newPage()
	if err != nil {
		return nil, err
	}
	defer scratch.free()
	if err := l.do("query device", l.queryDevice, context, scratch.address); err != nil {
		return nil, err
	}
	for number := 1; number <= int(scratch.bytes[deviceAttrPorts]); number++ {
		attr, err := newPage()
		if err != nil {
			return nil, err
		}
		port, err := l.port(context, number, attr)
		attr.free()
		if err != nil {
			return nil, err
		}
		port.Device = name
		ports = append(ports, port)
	}
	return ports, nil
}

func (l *library) port(context uintptr, number int, scratch page) (verbs.Port, error) {
	if err := l.do("query port", l.queryPort, context, uintptr(number), scratch.address); err != nil {
		return verbs.Port{}, err
	}
	attr := scratch.bytes[:portAttrSize]
	p := verbs.Port{Number: number, Active: native.Uint32(attr[portState:]) == statePortActive,
		Ethernet: attr[portLinkLayer] == linkEthernet, MTU: mtuBytes(native.Uint32(attr[portActiveMTU:])),
		LID: native.Uint16(attr[portLID:])}
	for i := range min(int(int32(native.Uint32(attr[portGIDs:]))), mostGIDs) {
		if gid, err := l.gid(context, number, i, scratch); err == nil { // else an empty entry
			p.GIDs = append(p.GIDs, gid)
		}
	}
	return p, nil
}

// gid returns an entry of a port's table.
func (l *library) gid(context uintptr, port, index int, scratch page) (verbs.GID, error) {
	entry := scratch.bytes[gidEntryAt : gidEntryAt+gidEntrySize]
	clear(entry)
	err := l.do("query GID", l.queryGID, context, uintptr(port), uintptr(index), scratch.address+gidEntryAt, 0,
		gidEntrySize)
	return verbs.GID{Index: index, Value: [16]byte(entry), RoCE2: native.Uint32(entry[gidEntryType:]) == gidRoCE2}, err
}

// gidEntryAt is where in a page an entry goes, behind what else is queried.
const gidEntryAt = 256

// page is memory outside of Go's heap.
type page struct {
	bytes   []byte
	address uintptr
}

const pageSize = 4096

func newPage() (page, error) { return allocate(pageSize) }

func allocate(size int) (page, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return page{}, fmt.Errorf("allocate %d bytes: %w", size, err)
	}
	return page{b, uintptr(unsafe.Pointer(&b[0]))}, nil
}

func (p page) free() { unix.Munmap(p.bytes) }
