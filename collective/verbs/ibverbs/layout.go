//go:build rdma

package ibverbs

// Offsets and sizes of the library's structures on 64-bit Linux. layout_test.go checks that this list is true.
const (
	contextPollCQ   = 96 // ibv_context.ops.poll_cq, and so on
	contextNotifyCQ = 104
	contextPostSend = 208
	contextPostRecv = 216
	contextAsyncFD  = 268
	asyncType       = 8 // ibv_async_event.event_type
	asyncPort       = 0 // ibv_async_event.element.port_num
	qpNumber        = 52
	mrLocalKey      = 36
	mrRemoteKey     = 40
	channelFD       = 8

	deviceDirectory = 152 // ibv_device.dev_path, in sysfs
	deviceNameSize  = 64  // IBV_SYSFS_NAME_MAX
	devicePathSize  = 256 // IBV_SYSFS_PATH_MAX
	smallestMTU     = 1   // IBV_MTU_256; each further one is twice as large
	largestMTU      = 5   // IBV_MTU_4096

	deviceAttrSize  = 232
	deviceAttrPorts = 227

	portAttrSize  = 64 // more than any version's
	portState     = 0
	portActiveMTU = 8
	portGIDs      = 12
	portLID       = 34
	portLinkLayer = 46

	gidEntrySize = 32
	gidEntryType = 24

	sgeSize    = 16
	sgeAddress = 0
	sgeLength  = 8
	sgeKey     = 12

	sendSize       = 128
	sendID         = 0
	sendNext       = 8
	sendSGList     = 16
	sendSGCount    = 24
	sendOpcode     = 28
	sendFlags      = 32
	sendImm        = 36
	sendRemoteAddr = 40
	sendRemoteKey  = 48

	recvSize    = 32
	recvID      = 0
	recvNext    = 8
	recvSGCount = 24

	wcSize   = 48
	wcID     = 0
	wcStatus = 8
	wcBytes  = 20
	wcImm    = 24

	initAttrSize      = 64
	initSendCQ        = 8
	initRecvCQ        = 16
	initMaxSend       = 32
	initMaxRecv       = 36
	initMaxSendSGE    = 40
	initMaxRecvSGE    = 44
	initMaxInline     = 48
	initType          = 52
	initSignalAll     = 56
	qpAttrSize        = 144
	qpState           = 0
	qpPathMTU         = 8
	qpRQPSN           = 20
	qpSQPSN           = 24
	qpDestNumber      = 28
	qpAccess          = 32
	qpAddress         = 56 // ibv_qp_attr.ah_attr
	qpPKeyIndex       = 120
	qpMaxReads        = 126
	qpMaxDestReads    = 127
	qpMinRNRTimer     = 128
	qpPort            = 129
	qpTimeout         = 130
	qpRetries         = 131
	qpRNRRetries      = 132
	addressGID        = 0 // ibv_ah_attr.grh
	addressGIDIndex   = 20
	addressHopLimit   = 21
	addressTraffic    = 22
	addressLID        = 24
	addressGlobal     = 29
	addressPort       = 30
	statePortActive   = 4
	linkEthernet      = 2
	gidRoCE2          = 2
	typeRC            = 2
	opcodeWriteImm    = 1
	flagSignaled      = 2
	flagInline        = 8
	stateInit         = 1
	stateRTR          = 2
	stateRTS          = 3
	accessLocalWrite  = 1
	accessRemoteWrite = 2

	maskState        = 1 << 0
	maskAccess       = 1 << 3
	maskPKeyIndex    = 1 << 4
	maskPort         = 1 << 5
	maskAddress      = 1 << 7
	maskPathMTU      = 1 << 8
	maskTimeout      = 1 << 9
	maskRetries      = 1 << 10
	maskRNRRetries   = 1 << 11
	maskRQPSN        = 1 << 12
	maskMaxReads     = 1 << 13
	maskMinRNRTimer  = 1 << 15
	maskSQPSN        = 1 << 16
	maskMaxDestReads = 1 << 17
	maskDestNumber   = 1 << 20
)
