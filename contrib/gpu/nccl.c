// A stand-in for libnccl.so.2, over the stand-in for libcuda.so.1: communicators of the processes of one machine,
// which send through sockets. What is asked for runs on the stream, later; a communicator that does not block is set up
// in the background, and may be busy after each call until it is asked, as with NCCL. The first rank adds up in the
// order of the ranks.
//
// The sockets lie in a directory of their own below GPU_STANDIN, or /tmp, so lab hosts reach each other. Two ranks that
// use one device are refused, unless NCCL_MULTI_RANK_GPU_ENABLE is 1. A peer that is gone makes an asynchronous error,
// and what waits for it waits until the communicator is aborted. Files in the directory GPU_STANDIN make faults:
//
//	asyncerror    N: operations that begin make the asynchronous error N, and do not end
//	hang          operations that begin make no error, and do not end; neither does an operation whose peer is gone
//	hanginit      communicators are not set up, and make no error
#define _GNU_SOURCE
#include "api.h"
#include "standin.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST 64       // ranks of a communicator, and operations of a group
#define VERSION 22705 // of the library that this is like

int standin_device(void); // of the stand-in for libcuda

struct ncclComm {
	int rank, size;
	struct member {
		char host[72]; // and its network: what a lab host differs in
		int device;
	} members[MOST];
	int sockets[MOST];
	ncclUniqueId id;
	pthread_t setup;
	bool blocking;
	_Atomic ncclResult_t state; // ncclInProgress until it is set up, then success or an error
	atomic_bool asked;          // of a communicator that does not block: the state was, after the last operation
	atomic_bool aborted;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int unfinished; // operations given to streams
};

enum kind { ALLREDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, SEND, RECV };

struct operation {
	enum kind kind;
	const char *from;
	char *to;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t op;
	int peer; // or root
	ncclComm_t comm;
	cudaStream_t stream;
};

// group holds the transfers that a stream runs beside each other.
struct group {
	int count;
	struct operation operations[MOST];
};

static _Thread_local struct group pending;
static _Thread_local int depth;

struct transfer {
	int peer;
	bool out;
	char *data;
	size_t left;
};

// stop waits for the end of a communicator that will not get any further.
static bool stop(ncclComm_t comm, ncclResult_t error) {
	if (error != ncclSuccess) comm->state = error;
	while (!comm->aborted) usleep(1000);
	return false;
}

static bool lost(ncclComm_t comm) { return stop(comm, fault("hang") ? ncclSuccess : ncclRemoteError); }

// exchange runs transfers, those of a peer in one direction in order, and reports whether it could.
static bool exchange(ncclComm_t comm, struct transfer *transfers, int count) {
	for (;;) {
		struct pollfd files[MOST];
		int which[MOST], waiting = 0;
		for (int i = 0; i < count && waiting < MOST; i++) {
			bool behind = !transfers[i].left;
			for (int j = 0; j < i; j++)
				behind |= transfers[j].left && transfers[j].peer == transfers[i].peer && transfers[j].out == transfers[i].out;
			if (behind) continue;
			files[waiting] = (struct pollfd){comm->sockets[transfers[i].peer], transfers[i].out ? POLLOUT : POLLIN, 0};
			which[waiting++] = i;
		}
		if (!waiting) return true;
		if (comm->aborted) return false;
		if (poll(files, (nfds_t)waiting, 20) <= 0) continue;
		for (int k = 0; k < waiting; k++) {
			if (!files[k].revents) continue;
			struct transfer *t = &transfers[which[k]];
			ssize_t done = t->out ? send(files[k].fd, t->data, t->left, MSG_NOSIGNAL | MSG_DONTWAIT)
			                      : recv(files[k].fd, t->data, t->left, MSG_DONTWAIT);
			if (done < 0 && (errno == EAGAIN || errno == EINTR)) continue;
			if (done <= 0) return lost(comm);
			t->data += done;
			t->left -= (size_t)done;
		}
	}
}

// to_first gives the first rank a row of each.
static bool to_first(ncclComm_t comm, const void *mine, char *rows, size_t bytes) {
	struct transfer transfers[MOST];
	int count = 0;
	if (comm->rank) {
		transfers[count++] = (struct transfer){0, true, (char *)(uintptr_t)mine, bytes};
	} else {
		memmove(rows, mine, bytes);
		for (int i = 1; i < comm->size; i++) transfers[count++] = (struct transfer){i, false, rows + (size_t)i * bytes, bytes};
	}
	return exchange(comm, transfers, count);
}

// from sends rows of a root to all: the same to everybody if step is 0.
static bool from(ncclComm_t comm, int root, const char *rows, size_t step, char *mine, size_t bytes) {
	struct transfer transfers[MOST];
	int count = 0;
	if (comm->rank != root) {
		transfers[count++] = (struct transfer){root, false, mine, bytes};
	} else {
		for (int i = 0; i < comm->size; i++)
			if (i != root) transfers[count++] = (struct transfer){i, true, (char *)(uintptr_t)rows + (size_t)i * step, bytes};
		memmove(mine, rows + (size_t)root * step, bytes);
	}
	return exchange(comm, transfers, count);
}

static size_t size_of(ncclDataType_t type) {
	static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
	return sizes[type];
}

static float of_bfloat16(uint16_t bits) {
	uint32_t wide = (uint32_t)bits << 16;
	float value;
	memcpy(&value, &wide, sizeof value);
	return value;
}

static uint16_t to_bfloat16(float value) {
	uint32_t wide;
	memcpy(&wide, &value, sizeof wide);
	if (value != value) return 0x7fc0;
	return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define COMBINE(a, b) \
	(op == ncclProd ? (a) * (b) : op == ncclMax ? LARGER(a, b) : op == ncclMin ? SMALLER(a, b) : (a) + (b))
#define REDUCE_AS(T, WIDE, OF, TO) \
	for (size_t i = 0; i < count; i++) { \
		WIDE sum = OF(((const T *)(const void *)rows)[i]); \
		for (int r = 1; r < size; r++) { \
			WIDE next = OF(((const T *)(const void *)(rows + (size_t)r * row))[i]); \
			sum = COMBINE(sum, next); \
		} \
		if (op == ncclAvg) sum = sum / (WIDE)size; \
		((T *)(void *)to)[i] = TO(sum); \
	} \
	break
#define SAME(x) (x)

// combine reduces count elements of as many rows.
static void combine(const char *rows, size_t row, int size, char *to, size_t count, ncclDataType_t type,
	ncclRedOp_t op) {
	switch ((int)type) {
	case ncclInt8: REDUCE_AS(int8_t, int, SAME, (int8_t));
	case ncclUint8: REDUCE_AS(uint8_t, int, SAME, (uint8_t));
	case ncclInt32: REDUCE_AS(int32_t, int64_t, SAME, (int32_t));
	case ncclUint32: REDUCE_AS(uint32_t, uint64_t, SAME, (uint32_t));
	case ncclInt64: REDUCE_AS(int64_t, int64_t, SAME, SAME);
	case ncclUint64: REDUCE_AS(uint64_t, uint64_t, SAME, SAME);
	case ncclFloat16: REDUCE_AS(_Float16, float, SAME, (_Float16));
	case ncclFloat32: REDUCE_AS(float, float, SAME, SAME);
	case ncclFloat64: REDUCE_AS(double, double, SAME, SAME);
	case ncclBfloat16: REDUCE_AS(uint16_t, float, of_bfloat16, to_bfloat16);
	}
}

// reduce leaves the sum with the first rank.
static bool reduce(struct operation *o, char *sum, size_t elements) {
	ncclComm_t comm = o->comm;
	size_t bytes = elements * size_of(o->type);
	char *rows = comm->rank ? NULL : malloc(bytes * (size_t)comm->size + 1);
	bool done = to_first(comm, o->from, rows, bytes);
	if (done && rows) combine(rows, bytes, comm->size, sum, elements, o->type, o->op);
	free(rows);
	return done;
}

static void collective(struct operation *o) {
	ncclComm_t comm = o->comm;
	size_t bytes = o->count * size_of(o->type), all = bytes * (size_t)comm->size;
	char *sum;
	switch (o->kind) {
	case ALLREDUCE:
		sum = malloc(bytes + 1);
		if (reduce(o, sum, o->count)) from(comm, 0, sum, 0, o->to, bytes);
		free(sum);
		break;
	case BROADCAST: from(comm, o->peer, o->from, 0, o->to, bytes); break;
	case ALLGATHER:
		sum = malloc(all + 1);
		if (to_first(comm, o->from, sum, bytes)) from(comm, 0, sum, 0, o->to, all);
		free(sum);
		break;
	case REDUCESCATTER:
		sum = malloc(all + 1);
		if (reduce(o, sum, o->count * (size_t)comm->size)) from(comm, 0, sum, bytes, o->to, bytes);
		free(sum);
		break;
	case SEND:
	case RECV: break;
	}
}

static void run(void *data) {
	struct group *group = data;
	ncclComm_t comm = group->operations[0].comm;
	struct transfer transfers[MOST];
	int count = 0;
	long error = fault("asyncerror");
	if (fault("hang")) stop(comm, ncclSuccess);
	else if (error) stop(comm, (ncclResult_t)error);
	for (int i = 0; i < group->count && !comm->aborted; i++) {
		struct operation *o = &group->operations[i];
		size_t bytes = o->count * size_of(o->type);
		if (o->kind == SEND) transfers[count++] = (struct transfer){o->peer, true, (char *)(uintptr_t)o->from, bytes};
		else if (o->kind == RECV) transfers[count++] = (struct transfer){o->peer, false, o->to, bytes};
		else collective(o);
	}
	// What a rank sends itself takes no socket.
	for (int i = 0; i < count; i++) {
		if (transfers[i].peer != comm->rank || !transfers[i].out) continue;
		for (int j = 0; j < count; j++) {
			if (transfers[j].peer != comm->rank || transfers[j].out || !transfers[j].left) continue;
			memmove(transfers[j].data, transfers[i].data, transfers[i].left);
			transfers[i].left = transfers[j].left = 0;
			break;
		}
	}
	if (count) exchange(comm, transfers, count);
	free(group);
	pthread_mutex_lock(&comm->lock);
	comm->unfinished--;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
}

// launch gives a group to its stream; all of its operations are of one communicator, which is what gorun needs.
static ncclResult_t launch(struct group *group) {
	ncclComm_t comm = group->operations[0].comm;
	for (int i = 1; i < group->count; i++) {
		struct operation *o = &group->operations[i];
		if (o->comm != comm || o->stream != group->operations[0].stream) return ncclInvalidUsage;
	}
	struct group *own = malloc(sizeof *own);
	if (!own) return ncclSystemError;
	*own = *group;
	pthread_mutex_lock(&comm->lock);
	comm->unfinished++;
	pthread_mutex_unlock(&comm->lock);
	if (cuLaunchHostFunc(group->operations[0].stream, run, own) == CUDA_SUCCESS) return ncclSuccess;
	free(own);
	pthread_mutex_lock(&comm->lock);
	comm->unfinished--;
	pthread_mutex_unlock(&comm->lock);
	return ncclUnhandledCudaError;
}

// launch_pending answers as NCCL may where it does not block: that it is still at it, until it is asked again.
static ncclResult_t launch_pending(void) {
	ncclComm_t comm = pending.operations[0].comm;
	ncclResult_t result = launch(&pending);
	pending.count = 0;
	if (result != ncclSuccess || comm->blocking) return result;
	comm->asked = false;
	return ncclInProgress;
}

// overlaps says whether a result lies over what it is made of elsewhere than NCCL allows: it leaves open what comes of that.
static bool overlaps(struct operation *o) {
	if (o->kind == SEND || o->kind == RECV) return false;
	size_t from = o->count * size_of(o->type), to = from, all = from * (size_t)o->comm->size, own = from * (size_t)o->comm->rank;
	uintptr_t read = (uintptr_t)o->from, written = (uintptr_t)o->to;
	if (o->kind == ALLGATHER) {
		if (read == written + own) return false;
		to = all;
	} else if (o->kind == REDUCESCATTER) {
		if (written == read + own) return false;
		from = all;
	} else if (read == written) return false;
	return read < written + to && written < read + from;
}

static ncclResult_t give(struct operation o) {
	if (!o.comm || o.type < 0 || o.type > ncclBfloat16 || o.op < 0 || o.op > ncclAvg) return ncclInvalidArgument;
	if (o.peer < 0 || o.peer >= o.comm->size || overlaps(&o)) return ncclInvalidArgument;
	if (o.comm->state != ncclSuccess) return o.comm->state == ncclInProgress ? ncclInvalidUsage : o.comm->state;
	if (pending.count == MOST || !o.comm->asked) return ncclInvalidUsage;
	pending.operations[pending.count++] = o;
	return depth ? ncclSuccess : launch_pending();
}

ncclResult_t ncclGetVersion(int *version) {
	*version = VERSION;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
	const char *directory = getenv("GPU_STANDIN");
	memset(id, 0, sizeof *id);
	snprintf(id->internal, sizeof id->internal, "%s/nccl-XXXXXX", directory ? directory : "/tmp");
	return mkdtemp(id->internal) ? ncclSuccess : ncclSystemError;
}

static void describe(struct member *me) {
	char network[32] = "";
	if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0) network[0] = 0;
	memset(me, 0, sizeof *me);
	gethostname(me->host, sizeof me->host - sizeof network);
	strcat(me->host, network);
	me->device = standin_device();
}

static struct sockaddr_un address(ncclComm_t comm, int rank) {
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	snprintf(to.sun_path, sizeof to.sun_path, "%.90s/%d", comm->id.internal, rank);
	return to;
}

// connected makes a socket for each other rank: every rank calls those before it.
static bool connected(ncclComm_t comm) {
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un to = address(comm, comm->rank);
	bool good = bind(listener, (struct sockaddr *)&to, sizeof to) == 0 && listen(listener, MOST) == 0;
	for (int i = 0; good && i < comm->rank; i++) {
		struct sockaddr_un peer = address(comm, i);
		int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		while (connect(s, (struct sockaddr *)&peer, sizeof peer) && !comm->aborted) usleep(2000);
		comm->sockets[i] = s;
		good = !comm->aborted && send(s, &comm->rank, sizeof comm->rank, MSG_NOSIGNAL) == sizeof comm->rank;
	}
	for (int missing = comm->size - 1 - comm->rank; good && missing;) {
		struct pollfd file = {listener, POLLIN, 0};
		if (comm->aborted) good = false;
		else if (poll(&file, 1, 20) > 0) {
			int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC), rank = -1;
			if (s >= 0 && recv(s, &rank, sizeof rank, MSG_WAITALL) == sizeof rank && rank > comm->rank && rank < comm->size) {
				comm->sockets[rank] = s;
				missing--;
			} else {
				close(s);
			}
		}
	}
	close(listener);
	unlink(to.sun_path);
	rmdir(comm->id.internal); // the last one can
	return good;
}

static void *setup(void *data) {
	ncclComm_t comm = data;
	while (fault("hanginit") && !comm->aborted) usleep(1000);
	struct transfer transfers[2 * MOST];
	int count = 0;
	if (!connected(comm)) {
		comm->state = comm->aborted ? ncclInternalError : ncclSystemError;
		return NULL;
	}
	struct member me = comm->members[comm->rank];
	for (int i = 0; i < comm->size; i++) {
		if (i == comm->rank) continue;
		transfers[count++] = (struct transfer){i, true, (char *)&me, sizeof me};
		transfers[count++] = (struct transfer){i, false, (char *)&comm->members[i], sizeof me};
	}
	if (!exchange(comm, transfers, count)) return NULL;
	const char *several = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
	for (int i = 0; i < comm->size; i++)
		for (int j = 0; j < i; j++)
			if (comm->members[i].device == comm->members[j].device && !strcmp(comm->members[i].host, comm->members[j].host) &&
				!(several && !strcmp(several, "1"))) {
				comm->state = ncclInvalidUsage;
				return NULL;
			}
	comm->state = ncclSuccess;
	return NULL;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
	if (size < 1 || size > MOST || rank < 0 || rank >= size) return ncclInvalidArgument;
	size_t least = offsetof(ncclConfig_t, blocking) + sizeof(int);
	if (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < least || !config->version))
		return ncclInvalidArgument;
	if (standin_device() < 0) return ncclUnhandledCudaError;
	ncclComm_t made = calloc(1, sizeof *made);
	if (!made) return ncclSystemError;
	for (int i = 0; i < MOST; i++) made->sockets[i] = -1;
	made->rank = rank;
	made->size = size;
	made->id = id;
	made->blocking = !config || config->blocking != 0;
	made->state = ncclInProgress;
	made->asked = true;
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->changed, NULL);
	describe(&made->members[rank]);
	*comm = made;
	if (pthread_create(&made->setup, NULL, setup, made)) return ncclSystemError;
	if (!made->blocking) return ncclInProgress;
	while (made->state == ncclInProgress) usleep(1000);
	return made->state;
}

static ncclResult_t end(ncclComm_t comm) {
	pthread_join(comm->setup, NULL);
	pthread_mutex_lock(&comm->lock);
	while (comm->unfinished) pthread_cond_wait(&comm->changed, &comm->lock);
	pthread_mutex_unlock(&comm->lock);
	for (int i = 0; i < comm->size; i++)
		if (comm->sockets[i] >= 0) close(comm->sockets[i]);
	free(comm);
	return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->state; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm); }

ncclResult_t ncclCommAbort(ncclComm_t comm) {
	comm->aborted = true;
	return end(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
	*error = comm->asked ? comm->state : ncclInProgress;
	comm->asked = true;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
	switch ((int)result) {
	case ncclSuccess: return "no error";
	case ncclUnhandledCudaError: return "unhandled cuda error";
	case ncclSystemError: return "unhandled system error";
	case ncclInternalError: return "internal error";
	case ncclInvalidArgument: return "invalid argument";
	case ncclInvalidUsage: return "invalid usage";
	case ncclRemoteError: return "remote process exited or there was a network error";
	case ncclInProgress: return "NCCL operation in progress";
	default: return "unknown result code";
	}
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
	ncclComm_t comm, cudaStream_t stream) {
	return give((struct operation){ALLREDUCE, from, to, count, type, op, 0, comm, stream});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
	ncclComm_t comm, cudaStream_t stream) {
	return give((struct operation){BROADCAST, from, to, count, type, ncclSum, root, comm, stream});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
	ncclComm_t comm, cudaStream_t stream) {
	return give((struct operation){ALLGATHER, from, to, count, type, ncclSum, 0, comm, stream});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
	ncclComm_t comm, cudaStream_t stream) {
	return give((struct operation){REDUCESCATTER, from, to, count, type, op, 0, comm, stream});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
	ncclComm_t comm, cudaStream_t stream) {
	return give((struct operation){SEND, from, NULL, count, type, ncclSum, peer, comm, stream});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
	return give((struct operation){RECV, NULL, to, count, type, ncclSum, peer, comm, stream});
}

ncclResult_t ncclGroupStart(void) {
	depth++;
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
	if (!depth) return ncclInvalidUsage;
	return --depth || !pending.count ? ncclSuccess : launch_pending();
}
