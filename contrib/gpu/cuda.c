// A stand-in for libcuda.so.1 on machines without a GPU: devices whose memory is the host's. Only what gorun uses
// exists, with the real signatures.
//
// Each stream is a thread that does in order what it was given, later: a program that does not wait where it must reads
// what is not there yet. Files in the directory GPU_STANDIN set what there is, and make faults:
//
//	devices       N: as many devices, instead of 8; 0 is a machine whose driver finds none
//	hold          no operation of a stream begins while it is there
//	nopeer        no device reaches another's memory
//	nopin         host memory cannot be registered
//	nomemory      N: no memory of more than N bytes can be had
//	noipc         memory cannot be shared with other processes
//	noopen        memory that other processes share cannot be opened
//	noptx         no kernel is loaded; ptx.c runs them
//	capturing     streams are being captured into a graph
//	elsewhere     another thread captures a stream, and forbids what could end that to all threads that are not relaxed
//
// CUDA_VISIBLE_DEVICES may list indexes, or UUIDs as devices have them here.
#define _GNU_SOURCE
#include "api.h"
#include "standin.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 64 // devices, and contexts that a thread has pushed
#define UUID "GPU-00000000-0000-0000-0000-%012x"

struct task {
	struct task *next;
	CUhostFn call;
	void *data;
};

struct CUstream_st {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct task *first, **last;
	bool busy, ending;
	pthread_t thread;
};

// An event that was recorded n times has been reached n times once the last of them is.
struct CUevent_st {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned long recorded, reached;
	int users; // tasks that refer to it, and its owner
};

struct CUctx_st {
	CUdevice device;
};

struct memory {
	struct memory *next;
	char *start;
	size_t bytes;
	int file; // -1 for another process's
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *allocated, *registered;
static struct CUstream_st usual; // stands for the stream 0
static struct CUctx_st contexts[MOST];
static int physical[MOST], devices = -1;
static _Thread_local CUcontext current[MOST];
static _Thread_local int depth;
static _Thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void *work(void *argument) {
	CUstream stream = argument;
	pthread_mutex_lock(&stream->lock);
	for (;;) {
		while (!stream->first && !stream->ending) pthread_cond_wait(&stream->changed, &stream->lock);
		struct task *task = stream->first;
		if (!task) break;
		if (!(stream->first = task->next)) stream->last = &stream->first;
		stream->busy = true;
		pthread_mutex_unlock(&stream->lock);
		while (fault("hold")) usleep(1000);
		task->call(task->data);
		free(task);
		pthread_mutex_lock(&stream->lock);
		stream->busy = false;
		pthread_cond_broadcast(&stream->changed);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

static void begin(CUstream stream) {
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->changed, NULL);
	stream->first = NULL;
	stream->last = &stream->first;
	stream->busy = stream->ending = false;
	pthread_create(&stream->thread, NULL, work, stream);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void begin_usual(void) { begin(&usual); }

static CUstream real(CUstream stream) {
	if ((uintptr_t)stream > 2) return stream; // 1 and 2 are names of the stream 0
	pthread_once(&once, begin_usual);
	return &usual;
}

static CUresult give(CUstream stream, CUhostFn call, void *data) {
	struct task *task = malloc(sizeof *task);
	if (!task) return CUDA_ERROR_OUT_OF_MEMORY;
	*task = (struct task){NULL, call, data};
	stream = real(stream);
	pthread_mutex_lock(&stream->lock);
	*stream->last = task;
	stream->last = &task->next;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	return CUDA_SUCCESS;
}

// ready reports why a call that needs a context fails.
static CUresult ready(void) {
	if (devices < 0) return CUDA_ERROR_NOT_INITIALIZED;
	return depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// harmless reports why a call that could end a capture fails. ptx.c calls it, too.
CUresult harmless(void);
CUresult harmless(void) {
	return own != CU_STREAM_CAPTURE_MODE_RELAXED && fault("elsewhere") ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
	if (flags) return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (devices < 0) {
		const char *directory = getenv("GPU_STANDIN");
		char path[512];
		snprintf(path, sizeof path, "%s/devices", directory ? directory : "");
		int there = directory && access(path, F_OK) == 0 ? (int)fault("devices") : 8;
		const char *visible = getenv("CUDA_VISIBLE_DEVICES");
		devices = 0;
		if (!visible)
			for (; devices < there && devices < MOST; devices++) physical[devices] = devices;
		for (; visible && *visible && devices < MOST; devices++) {
			int number = -1;
			unsigned int last;
			if (sscanf(visible, UUID, &last) == 1) number = (int)last;
			else if (*visible >= '0' && *visible <= '9') number = atoi(visible);
			if (number < 0 || number >= there) break; // CUDA ignores what follows a wrong one
			physical[devices] = number;
			visible += strcspn(visible, ",");
			if (*visible == ',') visible++;
		}
	}
	pthread_mutex_unlock(&lock);
	return devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
	*version = 12080;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
	if (devices < 0) return CUDA_ERROR_NOT_INITIALIZED;
	*count = devices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	if (devices < 0) return CUDA_ERROR_NOT_INITIALIZED;
	if (ordinal < 0 || ordinal >= devices) return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
	snprintf(name, (size_t)length, "stand-in %d", physical[device]);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
	memset(uuid, 0, sizeof *uuid);
	uuid->bytes[15] = (char)physical[device];
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
	*can = device != peer && !fault("nopeer");
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
	if (device < 0 || device >= devices) return CUDA_ERROR_INVALID_DEVICE;
	contexts[device].device = device;
	*context = &contexts[device];
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
	if (!context || depth == MOST) return CUDA_ERROR_INVALID_CONTEXT;
	current[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
	if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
	CUcontext was = current[--depth];
	if (context) *context = was;
	return CUDA_SUCCESS;
}

// standin_device returns the device of the calling thread, as the machine numbers it, or -1: for libnccl's stand-in.
int standin_device(void);
int standin_device(void) { return depth ? physical[current[depth - 1]->device] : -1; }

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
	(void)flags;
	if (ready()) return ready();
	if (!(*stream = malloc(sizeof **stream))) return CUDA_ERROR_OUT_OF_MEMORY;
	begin(*stream);
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
	if (ready()) return ready();
	pthread_mutex_lock(&stream->lock);
	stream->ending = true;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->thread, NULL);
	free(stream);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
	if (ready()) return ready();
	if (harmless()) return harmless();
	stream = real(stream);
	pthread_mutex_lock(&stream->lock);
	while (stream->first || stream->busy) pthread_cond_wait(&stream->changed, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
	(void)stream;
	*status = fault("capturing") ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
	CUstreamCaptureMode before = own;
	own = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
	(void)flags;
	if (ready()) return ready();
	if (!(*event = calloc(1, sizeof **event))) return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_init(&(*event)->lock, NULL);
	pthread_cond_init(&(*event)->changed, NULL);
	(*event)->users = 1;
	return CUDA_SUCCESS;
}

// leave unlocks an event, which ends with its last user.
static void leave(CUevent event) {
	int users = --event->users;
	pthread_mutex_unlock(&event->lock);
	if (!users) free(event);
}

CUresult cuEventDestroy_v2(CUevent event) {
	pthread_mutex_lock(&event->lock);
	leave(event);
	return CUDA_SUCCESS;
}

static void reach(void *data) {
	CUevent event = data;
	pthread_mutex_lock(&event->lock);
	event->reached++;
	pthread_cond_broadcast(&event->changed);
	leave(event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
	if (ready()) return ready();
	pthread_mutex_lock(&event->lock);
	event->recorded++;
	event->users++;
	pthread_mutex_unlock(&event->lock);
	return give(stream, reach, event);
}

struct wait {
	CUevent event;
	unsigned long until;
};

static void await(void *data) {
	struct wait *wait = data;
	pthread_mutex_lock(&wait->event->lock);
	while (wait->event->reached < wait->until) pthread_cond_wait(&wait->event->changed, &wait->event->lock);
	leave(wait->event);
	free(wait);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
	(void)flags;
	if (ready()) return ready();
	struct wait *wait = malloc(sizeof *wait);
	if (!wait) return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&event->lock);
	*wait = (struct wait){event, event->recorded};
	event->users++;
	pthread_mutex_unlock(&event->lock);
	return give(stream, await, wait);
}

CUresult cuEventQuery(CUevent event) {
	if (harmless()) return harmless();
	pthread_mutex_lock(&event->lock);
	bool over = event->reached == event->recorded;
	pthread_mutex_unlock(&event->lock);
	return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
	if (harmless()) return harmless();
	pthread_mutex_lock(&event->lock);
	while (event->reached < event->recorded) pthread_cond_wait(&event->changed, &event->lock);
	pthread_mutex_unlock(&event->lock);
	return CUDA_SUCCESS;
}

static void note(struct memory **list, char *start, size_t bytes, int file) {
	struct memory *one = malloc(sizeof *one);
	pthread_mutex_lock(&lock);
	*one = (struct memory){*list, start, bytes, file};
	*list = one;
	pthread_mutex_unlock(&lock);
}

// forget removes the entry that begins at an address, or reports that there is none.
static bool forget(struct memory **list, const char *start, struct memory *was) {
	pthread_mutex_lock(&lock);
	struct memory **at = list;
	while (*at && (*at)->start != start) at = &(*at)->next;
	struct memory *one = *at;
	if (one) {
		*at = one->next;
		*was = *one;
		free(one);
	}
	pthread_mutex_unlock(&lock);
	return one != NULL;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
	if (ready()) return ready();
	if (!bytes) return CUDA_ERROR_INVALID_VALUE;
	if (harmless()) return harmless();
	long most = fault("nomemory");
	if (most && bytes > (size_t)most) return CUDA_ERROR_OUT_OF_MEMORY;
	int file = memfd_create("stand-in for a GPU's memory", MFD_CLOEXEC);
	if (file < 0 || ftruncate(file, (off_t)bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (start == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
	note(&allocated, start, bytes, file);
	*pointer = (CUdeviceptr)(uintptr_t)start;
	return CUDA_SUCCESS;
}

static CUresult drop(CUdeviceptr pointer) {
	struct memory was;
	if (!forget(&allocated, (char *)(uintptr_t)pointer, &was)) return CUDA_ERROR_INVALID_VALUE;
	munmap(was.start, was.bytes);
	if (was.file >= 0) close(was.file);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) { return drop(pointer); }

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

static void copy(void *data) {
	struct copy *copy = data;
	memmove(copy->to, copy->from, copy->bytes);
	free(copy);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
	if (ready()) return ready();
	struct copy *data = malloc(sizeof *data);
	if (!data) return CUDA_ERROR_OUT_OF_MEMORY;
	*data = (struct copy){(void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes};
	return give(stream, copy, data);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags) {
	(void)flags;
	if (ready()) return ready();
	if (harmless()) return harmless();
	if (fault("nopin")) return CUDA_ERROR_NOT_SUPPORTED;
	bool there = false;
	pthread_mutex_lock(&lock);
	for (struct memory *one = registered; one; one = one->next)
		there |= (char *)pointer < one->start + one->bytes && one->start < (char *)pointer + bytes;
	pthread_mutex_unlock(&lock);
	if (there) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	note(&registered, pointer, bytes, -1);
	return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *pointer) {
	struct memory was;
	return forget(&registered, pointer, &was) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

struct handle {
	pid_t pid;
	int file;
	size_t bytes;
};

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	if (fault("noipc")) return CUDA_ERROR_NOT_SUPPORTED;
	memset(handle, 0, sizeof *handle);
	pthread_mutex_lock(&lock);
	for (struct memory *one = allocated; one; one = one->next) {
		if (one->start != (char *)(uintptr_t)pointer || one->file < 0) continue;
		struct handle what = {getpid(), one->file, one->bytes};
		memcpy(handle, &what, sizeof what);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) {
	(void)flags;
	if (ready()) return ready();
	if (fault("noopen")) return CUDA_ERROR_NOT_SUPPORTED;
	struct handle what;
	memcpy(&what, &handle, sizeof what);
	if (what.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT; // the real one is for other processes only, too
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", what.pid, what.file);
	int file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0) return CUDA_ERROR_INVALID_VALUE;
	char *start = mmap(NULL, what.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (start == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
	note(&allocated, start, what.bytes, -1);
	*pointer = (CUdeviceptr)(uintptr_t)start;
	return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) { return drop(pointer); }

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
	return ready() ? ready() : give(stream, function, data);
}

CUresult cuGetErrorString(CUresult error, const char **text) {
	switch ((int)error) {
	case CUDA_SUCCESS: *text = "no error"; break;
	case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; break;
	case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
	case CUDA_ERROR_NOT_INITIALIZED: *text = "initialization error"; break;
	case CUDA_ERROR_NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
	case CUDA_ERROR_INVALID_DEVICE: *text = "invalid device ordinal"; break;
	case CUDA_ERROR_INVALID_CONTEXT: *text = "invalid device context"; break;
	case CUDA_ERROR_INVALID_PTX: *text = "a PTX JIT compilation failed"; break;
	case CUDA_ERROR_NOT_FOUND: *text = "named symbol not found"; break;
	case CUDA_ERROR_NOT_READY: *text = "device not ready"; break;
	case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: *text = "operation not permitted when stream is capturing"; break;
	case CUDA_ERROR_NOT_SUPPORTED: *text = "operation not supported"; break;
	default: *text = "unknown error"; return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}
