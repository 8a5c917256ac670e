/* The rank's end of gorun's rank protocol, version 1 (worker/session/codec/PROTOCOL.md). One session per process. Steady
 * state costs one send and one receive per operation and no allocation.
 *
 * One lock guards all state. It is never held while a thread receives, copies a tensor or is in a slot. Of the threads
 * that wait, one receives for all, and the others sleep until it has what they wait for: until(). The library
 * starts one thread, which calls back from the first gorun_then on until gorun_finalize. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "gorun.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the rank protocol is little-endian, and so must be the machine"
#endif

#ifdef __FAST_MATH__
#error "compile gorun.c without -ffast-math: with it, NaN and -0 are not the same on all ranks"
#endif

/* ---- messages: types and offsets of the rank protocol ---- */

/* The numbers between "begin table" and "end table" are written by go generate ./worker/session/codec. */
enum {
	/* begin table: messages */
	HELLO = 1, /* in refusals only */
	ALLOC = 2,
	SUBMIT = 3,
	RELEASE = 4,
	FREE = 5,
	BYE = 6,
	ENV = 7,
	SLOTS = 8, /* both ways */
	WAKE = 9, /* from the daemon */
	TRAFFIC = 10, /* both ways */
	SHOW = 11, /* from the daemon */
	HIDE = 12, /* from the daemon */
	KEPT = 13,
	BATCH = 14,
	WELCOME = 65, /* this one and those below are from the daemon */
	REGION = 66,
	FAIL = 67,
	COMPLETE = 68,
	GOODBYE = 69,
	GONE = 70,
	CHANGED = 71,
	COMPLETED = 72,
	/* end table */
};
enum {
	/* begin table: counters COUNT_ */
	COUNT_PAGE_BYTES = 4096, /* of the page */
	COUNT_BEGAN = 0, /* offsets in the page: stamp of the first count */
	COUNT_STEPS = 8,
	COUNT_STEP_TIME = 16, /* of the last step */
	COUNT_DATA = 24, /* waiting for input data */
	COUNT_OTHERS = 32, /* waiting for other ranks */
	COUNT_COMMUNICATION = 40, /* waiting while an operation ran */
	COUNT_HIDDEN = 48, /* operations that ran meanwhile */
	COUNT_OPERATIONS = 56,
	COUNT_ACTIVITY = 64,
	COUNT_SINCE = 72, /* stamp of its begin */
	COUNT_SIGNAL = 80, /* number of the signal that asks for stacks */
	COUNT_MAIN_SIGNAL = 88, /* of the one that asks for that of the main thread alone */
	COUNT_COMPUTING = 0, /* activities */
	COUNT_WAITING_FOR_DATA = 1,
	COUNT_WAITING_IN_GORUN = 2,
	/* end table */
};
enum {
	/* begin table: kinds */
	ALLREDUCE = 1,
	ALLGATHER = 2,
	BROADCAST = 3,
	BARRIER = 4,
	ALLTOALL = 5,
	REDUCESCATTER = 6,
	ADD_GROUP = 7,
	REMOVE_GROUP = 8,
	JOIN = 9,
	REDUCE = 10,
	GATHER = 11,
	SCATTER = 12,
	SEND = 13,
	RECV = 14,
	PEEK = 15,
	/* end table */
};

/* begin table: flags define */
#define VERSION 1 /* of the protocol */
#define COMPANION 1 /* flag of HELLO: beside the session that its process has */
#define NO_REGION 4294967295u /* the number of no region */
#define SLOTS_THERE 2 /* flag of WELCOME: there are slots */
#define BATCH_TAKEN 4 /* flag of WELCOME: BATCH is understood */
#define TAKES_SLOT 128 /* added to the kind of SUBMIT */
#define TAKES_WIDE 128 /* added to its number of dimensions */
#define TAKES_BELT 64 /* also added to it */
#define BELT_THERE 8 /* flag of WELCOME: there is a belt */
#define WIRE_BITS 4 /* of SUBMIT's reduction, above which is how it travels */
/* end table */
/* begin table: limits define */
#define MAX_MESSAGE 65536 /* bytes of a message from a rank */
#define MAX_ANSWER 262144 /* bytes of a message from the daemon: numbers for 16384 ranks */
#define MAX_NAME 4096 /* bytes of a name */
#define MAX_DIMS 32 /* dimensions of a tensor */
#define MAX_IN_FLIGHT 65536 /* operations of a rank */
/* end table */
/* begin table: slots define */
#define LINE 64 /* bytes of a cache line */
#define RANK_LEFT 1 /* in a rank's line: it has left, or */
#define WORLD_GONE 2 /* the world has ended */
#define WIDE 1 /* added to the place of a slot: it is a wide one */
#define ON_BELT 2 /* added to it: it is one on the belt */
#define MAX_SLOTS 4096 /* names that have one */
#define MAX_SLOT_RANKS 16 /* ranks of a host that has slots */
#define MAX_SLOT_BYTES 65536 /* of a tensor */
#define MAX_WIDE_BYTES 33554432 /* of a tensor in a wide slot, or, if ranks outnumber CPUs, */
#define MAX_CROWD_BYTES 4194304
#define BELT 33554432 /* where the belt begins */
#define MAX_BELT_BYTES 1073741824 /* of a tensor in a slot on the belt */
#define BELT_PART 524288 /* of a part of it */
#define BELT_DEPTH 3 /* parts in the area of a rank */
#define BELT_AREA 2363392 /* bytes of that */
#define BELT_LEFT 1 /* where it begins: the rank has given up, or */
#define BELT_FAILED 2 /* had to because of another one */
#define BELT_FILLED 64 /* where it has the number of parts that are there, */
#define BELT_REDUCED 72 /* of those whose share is reduced, */
#define BELT_BUFFERS 4096 /* the parts, and its shares, */
#define BELT_RESULTS 1576960
#define BELT_SHARE 262144 /* of so many bytes at most */
#define MAX_DOORBELL 32 /* bytes of the name of a doorbell */
/* end table */

static void put32(unsigned char *at, uint32_t v) { memcpy(at, &v, 4); }
static void put64(unsigned char *at, uint64_t v) { memcpy(at, &v, 8); }
static uint32_t get32(const unsigned char *at) {
	uint32_t v;
	memcpy(&v, at, 4);
	return v;
}
static uint64_t get64(const unsigned char *at) {
	uint64_t v;
	memcpy(&v, at, 8);
	return v;
}

/* of an element, by its type */
static const unsigned char sizes[] = {
	0,
	/* begin table: elements bytes */
	1, /* uint8 */
	1, /* int8 */
	2, /* uint16 */
	2, /* int16 */
	4, /* uint32 */
	4, /* int32 */
	8, /* uint64 */
	8, /* int64 */
	2, /* float16 */
	2, /* bfloat16 */
	4, /* float32 */
	8, /* float64 */
	1, /* bool */
	8, /* complex64 */
	16, /* complex128 */
	/* end table */
};

/* ---- state ---- */

#define MAX_CLOSED 16 /* slots of one name, when different tensors come under it: each takes memory for good */
#define MAX_WIDENED 4 /* how many of them may be wide: a plain one does not care where a tensor lies */
#define FOLLOWS 4294967295u /* in place of splits: the operation follows a later one */
#define NAME_ROOM 4096 /* lists of names in flight */
#define SLOT_ROOM 8192 /* a power of two, twice the slots at most */

/* A block is a piece of an arena region, in use or free. Blocks of a region are a list by address, without gaps. */
struct block {
	size_t offset, bytes;
	int used;
	struct block *before, *next;
};

struct region {
	uint32_t number;
	unsigned char *data;
	size_t bytes;
	struct block *blocks; /* NULL for results */
	struct block *lowest; /* no block before it is free: with many operations in flight most are in use */
	int rank;             /* the local rank that owns it, if it is not this one */
};

struct regions {
	struct region *list;
	size_t count, room;
};

/* A slot is where the ranks of this host reduce, without the daemon, what all of them submit under a name; see "Slots" in
 * PROTOCOL.md. Ranks offer to take a slot, and the daemon says where it is. */
struct slot {
	char *name;
	uint64_t hash;
	enum { OFFERED, TAKEN, CLOSED } state;
	int closed; /* slots of this name that a rank did not come to */
	gorun_type type;
	int op, wire;
	int64_t count;
	size_t bytes, stride;
	uint64_t use;
	unsigned char *words, *buffers;
	int wide, belt;
	uint32_t in_region, out_region; /* of this rank, in a wide slot: what the other ranks see */
	int may_wide, may_belt;         /* this rank offers a wide slot, one on the belt */
};

/* BUSY: a thread copies the result, and no other thread may take it. */
enum stage { UNUSED, OPEN, DONE, READABLE, BUSY };

/* An operation from its submission to its wait, or to the release of its result. Its index is its handle on the wire. */
struct operation {
	enum stage stage;
	uint32_t generation;
	int kind;
	int code;
	char *text;
	struct block *block;   /* the copy in the arena of memory that the daemon cannot see */
	void *staged, *target; /* where the copy is; where its content goes at the end, or NULL */
	size_t bytes;
	uint32_t took;   /* microseconds from when all ranks had submitted their parts */
	uint32_t region; /* of the result */
	const void *data;
	size_t data_bytes;
	int64_t rows;
	int64_t *counts;
	void *own; /* result memory in a world of one */
	struct slot *slot; /* its rank offers to take this one next time */
	int set, set_size; /* the process set that it adds or removes */
	gorun_done then; /* called with argument at the end */
	int counted;     /* its time is in the counters already */
	void *argument;
	struct operation *later; /* the next one in world.due */
	uint64_t name;     /* hash of its name, which is in flight until the rank has waited or tested; 0 for none */
	uint32_t next;     /* the next operation in its list of world.names: its index plus 1, or 0 */
};

/* A request for memory, until it is answered. */
struct request {
	uint32_t number;
	int answered, refused;
	char text[512];
	struct region region;
	struct request *next;
};

/* A thread that waits while another one receives. It sleeps until over(of). */
struct waiter {
	pthread_cond_t woken;
	int (*over)(const void *);
	const void *of;
	struct waiter *next;
};

enum { OUTSIDE, JOINING, JOINED, LEAVING, ENDED, FORKED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	int state;
	int inside; /* threads in a function of this library */
	int reading; /* one of them receives */
	struct waiter *waiters;
	struct slot *meeting; /* the slot that a thread is in */
	int goodbye; /* the daemon has answered BYE */
	int calling; /* the thread that calls back exists */
	pthread_t caller;
	int callbacks;                /* operations that it will call back for */
	struct operation *due, *last; /* a list of the ones that have ended */
	int polling, bell;            /* it waits for messages, and for this descriptor */
	uint32_t generation;
	int fd; /* -1 in a world of one */
	int rank, size, local_rank, local_size, cross_rank, cross_size;
	int lost; /* a gorun_code: why every call fails from now on, with lost_text */
	char lost_text[512];
	struct regions arena, results, seen; /* seen: the memory of other ranks */
	struct operation *operations; /* address space for MAX_IN_FLIGHT of them, so that none ever moves */
	uint32_t count, hint;
	uint32_t names[NAME_ROOM]; /* lists of operations whose names are in flight, by hash: the first index plus 1 */
	uint32_t request;         /* number of the last ALLOC */
	struct request *requests; /* not answered yet */
	unsigned char *in, *out;
	unsigned char *slots; /* NULL: there are none */
	uint64_t slots_bytes;
	struct slot **table; /* slots by the hash of their name, SLOT_ROOM of them */
	uint32_t slot_count;
	int slots_awaited;
	int batches; /* the daemon understands BATCH */
	int has_belt;   /* there is a belt, and no rank has given up on it */
	uint64_t parts; /* how many have gone over it */
	uint64_t goal;  /* the number of parts that the thread in a slot waits for */
	int left_slots; /* this rank has joined, and comes to no slot any more */
	int doorbell; /* a socket on which other ranks wake this one; -1: none */
	int yields; /* there are more ranks than CPUs: let others run while waiting */
	uint32_t set; /* the process set that operations are submitted to */
	int wire;
	struct set {
		uint32_t number;
		int size;
	} *sets; /* all but the world */
	size_t set_count;
} world = {.fd = -1, .doorbell = -1, .bell = -1, .rank = -1, .size = -1, .local_rank = -1, .local_size = -1,
	   .cross_rank = -1, .cross_size = -1};

static _Thread_local char error_text[9216]; /* a text of the daemon, up to 8 KiB, and who sent it */

__attribute__((format(printf, 2, 3))) static int fail(int code, const char *format, ...) {
	va_list args;
	va_start(args, format);
	vsnprintf(error_text, sizeof error_text, format, args);
	va_end(args);
	return code;
}

const char *gorun_error(void) { return error_text; }

static void wake(void);

/* lose ends the session for good: every later call fails with this error. */
__attribute__((format(printf, 2, 3))) static int lose(int code, const char *format, ...) {
	va_list args;
	va_start(args, format);
	vsnprintf(world.lost_text, sizeof world.lost_text, format, args);
	va_end(args);
	__atomic_store_n(&world.lost, code, __ATOMIC_RELAXED); /* a thread in a slot reads it without the lock */
	wake();
	return fail(code, "%s", world.lost_text);
}

static int ready(void) {
	switch (world.state) {
	case OUTSIDE:
	case JOINING:
		return fail(GORUN_INVALID, "call gorun: gorun_init comes first");
	case LEAVING:
		return fail(GORUN_SHUTDOWN, "call gorun: gorun_finalize has cut it short");
	case ENDED:
		return fail(GORUN_INVALID, "call gorun: after gorun_finalize");
	case FORKED:
		return fail(GORUN_INVALID, "call gorun: this process was forked after gorun_init and has no session of its own");
	case JOINED:
		break;
	}
	return world.lost ? fail(world.lost, "%s", world.lost_text) : GORUN_OK;
}

/* ---- threads ---- */

static pthread_cond_t emptied = PTHREAD_COND_INITIALIZER; /* only the thread in gorun_finalize is left */
static pthread_cond_t stirred = PTHREAD_COND_INITIALIZER; /* the thread that calls back has something to do */
static pthread_cond_t met = PTHREAD_COND_INITIALIZER;     /* no thread is in a slot any more */

static void acquire(void) { pthread_mutex_lock(&lock); }
static void let_go(void) { pthread_mutex_unlock(&lock); }

/* enter begins a call of this library, if there is a session; leave ends it and passes its code on. */
static int enter(void) {
	acquire();
	int code = ready();
	if (code)
		let_go();
	else
		world.inside++;
	return code;
}

static int leave(int code) {
	if (--world.inside == 1 && world.state == LEAVING)
		pthread_cond_signal(&emptied);
	let_go();
	return code;
}

/* stir wakes the thread that calls back, if it has something to do. */
static void stir(void) {
	int over = world.due || world.lost || world.state != JOINED;
	if (!world.calling || (!over && (world.reading || !world.callbacks)))
		return;
	if (world.polling)
		(void)!write(world.bell, &(uint64_t){1}, sizeof(uint64_t));
	else
		pthread_cond_signal(&stirred);
}

static void ring(int rank);

/* wake wakes the threads whose wait is over. */
static void wake(void) {
	for (struct waiter *w = world.waiters; w; w = w->next)
		if (world.lost || w->over(w->of))
			pthread_cond_signal(&w->woken);
	if (world.meeting && (world.lost || world.state != JOINED))
		ring(world.local_rank);
	stir();
}

/* appoint wakes one thread, which receives from now on. */
static void appoint(void) {
	for (struct waiter *w = world.waiters; w && !world.reading; w = w->next)
		if (!w->over(w->of)) {
			pthread_cond_signal(&w->woken);
			return;
		}
	if (!world.reading)
		stir();
}

static int receive(int flags, int *none);

/* until waits for over(of), or for the loss of the session, and receives meanwhile if no other thread does. */
static int until(int (*over)(const void *), const void *of) {
	int code = GORUN_OK;
	while (!over(of) && !code) {
		if (world.lost) {
			code = fail(world.lost, "%s", world.lost_text);
		} else if (world.reading) {
			struct waiter self = {.woken = PTHREAD_COND_INITIALIZER, .over = over, .of = of, .next = world.waiters}, **at = &world.waiters;
			world.waiters = &self;
			pthread_cond_wait(&self.woken, &lock);
			while (*at != &self)
				at = &(*at)->next;
			*at = self.next;
			pthread_cond_destroy(&self.woken);
		} else {
			world.reading = 1;
			while (!over(of) && !(code = receive(0, NULL)))
				;
			world.reading = 0;
		}
	}
	appoint();
	return code;
}

/* A child of fork has this thread alone, which holds the lock, so that the child's copy of the state is consistent. */
static void forked(void) {
	if (world.fd >= 0) /* so that the daemon sees the end of the parent */
		close(world.fd);
	if (world.doorbell >= 0)
		close(world.doorbell);
	world.fd = world.doorbell = -1;
	if (world.state == JOINED || world.state == JOINING || world.state == LEAVING)
		world.state = FORKED;
	world.inside = world.reading = 0;
	world.waiters = NULL, world.meeting = NULL;
	if (world.bell >= 0)
		close(world.bell);
	world.bell = -1, world.calling = world.polling = 0;
	emptied = stirred = met = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	let_go();
}

/* ---- socket ---- */

static int send_message(size_t n) {
	for (;;) {
		if (send(world.fd, world.out, n, MSG_NOSIGNAL) >= 0)
			return GORUN_OK;
		if (errno == EINTR)
			continue;
		/* The daemon closes the connection after GONE, which has the reason; receive reads it. */
		if (errno == EPIPE || errno == ECONNRESET)
			return GORUN_OK;
		return lose(GORUN_LOST, "send to gorun's daemon: %s", strerror(errno));
	}
}

static int send_pair(uint32_t type, uint32_t value) {
	put32(world.out, type);
	put32(world.out + 4, value);
	return send_message(8);
}

static int malformed(uint32_t type, size_t n) {
	return lose(GORUN_LOST, "receive from gorun's daemon: malformed message of type %u with %zu bytes", type, n);
}

static int map(int fd, uint64_t bytes, int protection, unsigned char **data) {
	void *p;
	if (fd < 0 || bytes == 0 || bytes > SIZE_MAX / 2)
		return malformed(REGION, 0);
	p = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return fail(GORUN_MEMORY, "map %llu bytes of shared memory: %s", (unsigned long long)bytes, strerror(errno));
	*data = p;
	return GORUN_OK;
}

static struct region *add_region(struct regions *r) {
	if (r->count == r->room) {
		size_t room = r->room ? 2 * r->room : 16;
		struct region *list = realloc(r->list, room * sizeof *list);
		if (!list)
			return NULL;
		r->list = list;
		r->room = room;
	}
	memset(&r->list[r->count], 0, sizeof *r->list);
	return &r->list[r->count++];
}

static struct operation *find(uint32_t handle) {
	struct operation *o = handle < world.count ? &world.operations[handle] : NULL;
	return o && o->stage == OPEN ? o : NULL;
}

static void ended_for_callback(uint64_t took);

/* end_operation notes that an operation has ended. */
static void end_operation(struct operation *o) {
	o->stage = DONE;
	if (!o->then)
		return;
	o->counted = 1;
	ended_for_callback((uint64_t)o->took * 1000);
	if (world.due)
		world.last->later = o;
	else
		world.due = o;
	world.last = o;
	o->later = NULL;
}

static int set_text(struct operation *o, int code, const unsigned char *text, size_t n) {
	o->code = code;
	o->text = malloc(n + 1);
	if (o->text) {
		memcpy(o->text, text, n);
		o->text[n] = 0;
	}
	return GORUN_OK;
}

static int has_tensor(int kind);

/* open_slot takes the slot that the daemon assigned to a name. */
static int open_slot(struct slot *l, uint64_t offset) {
	size_t ranks = (size_t)world.local_size, stride;
	int wide = offset & WIDE, belt = offset & ON_BELT;
	offset &= ~(uint64_t)(WIDE | ON_BELT);
	stride = wide || belt ? 0 : (l->bytes + LINE - 1) / LINE * LINE;
	if (wide ? !l->may_wide : belt ? !l->may_belt : l->bytes > MAX_SLOT_BYTES)
		return malformed(COMPLETE, 0);
	if (!world.slots || offset % LINE || offset > world.slots_bytes || offset < LINE * ranks ||
	    ranks * (LINE + 2 * stride) > world.slots_bytes - offset)
		return malformed(COMPLETE, 0);
	if (l->state != OFFERED)
		return GORUN_OK;
	l->words = world.slots + offset;
	l->buffers = l->words + LINE * ranks;
	l->stride = stride;
	l->use = 0;
	l->wide = wide, l->belt = belt;
	l->state = TAKEN;
	return GORUN_OK;
}

/* on_complete takes the end of an operation; fd is the descriptor of its result's memory, or -1. */
static int on_complete(const unsigned char *b, size_t n, int fd) {
	struct operation *o;
	uint64_t ndim, rows, text, offset, bytes, size;
	if (n < 56)
		return malformed(COMPLETE, n);
	ndim = get32(b + 32), rows = get32(b + 36), text = get32(b + 40);
	o = find(get32(b + 4));
	if (!o || 56 + 8 * (ndim + rows) + text != n)
		return malformed(COMPLETE, n);
	o->region = get32(b + 12);
	o->took = get32(b + 44) >> 1;
	end_operation(o);
	if (get32(b + 8))
		return set_text(o, (int)get32(b + 8), b + n - text, text);
	if (rows) {
		o->counts = malloc(rows * sizeof *o->counts);
		if (!o->counts) {
			o->code = GORUN_MEMORY;
			return GORUN_OK;
		}
		memcpy(o->counts, b + 56 + 8 * ndim, rows * sizeof *o->counts);
	}
	o->rows = ndim ? (int64_t)get64(b + 56) : has_tensor(o->kind) ? 0 : (int64_t)rows;
	if (o->region == NO_REGION)
		return o->slot && get64(b + 16) ? open_slot(o->slot, get64(b + 16)) : GORUN_OK;
	offset = get64(b + 16), bytes = get64(b + 24), size = get64(b + 48);
	if (offset > size || bytes > size - offset)
		return malformed(COMPLETE, n);
	for (size_t i = 0; i < world.results.count; i++) {
		struct region *r = &world.results.list[i];
		if (r->number == o->region && r->bytes == size) {
			o->data = r->data + offset;
			o->data_bytes = bytes;
			return GORUN_OK;
		}
	}
	unsigned char *data;
	int code = map(fd, size, PROT_READ, &data);
	struct region *r = code ? NULL : add_region(&world.results);
	if (!r)
		return lose(GORUN_LOST, "receive result: no memory to map it");
	*r = (struct region){.number = o->region, .data = data, .bytes = size};
	o->data = data + offset;
	o->data_bytes = bytes;
	return GORUN_OK;
}

/* seen_region finds memory of another rank. */
static struct region *seen_region(uint32_t rank, uint32_t number) {
	for (size_t i = 0; i < world.seen.count; i++)
		if ((uint32_t)world.seen.list[i].rank == rank && world.seen.list[i].number == number)
			return &world.seen.list[i];
	return NULL;
}

/* on_show maps memory that another rank shares. */
static int on_show(const unsigned char *b, size_t n, int fd) {
	uint32_t rank = n == 24 ? get32(b + 4) : UINT32_MAX;
	unsigned char *data;
	if (!world.slots || rank >= (uint32_t)world.local_size || rank == (uint32_t)world.local_rank || seen_region(rank, get32(b + 8)))
		return malformed(SHOW, n);
	int code = map(fd, get64(b + 16), PROT_READ | PROT_WRITE, &data);
	struct region *r = code ? NULL : add_region(&world.seen);
	if (!r)
		return lose(GORUN_LOST, "see the memory of rank %u of this host: no memory to map it", (unsigned)rank);
	*r = (struct region){.number = get32(b + 8), .data = data, .bytes = get64(b + 16), .rank = (int)rank};
	return GORUN_OK;
}

/* on_hide unmaps memory that another rank has freed. */
static int on_hide(const unsigned char *b, size_t n) {
	struct region *r = n == 12 ? seen_region(get32(b + 4), get32(b + 8)) : NULL;
	if (!r)
		return malformed(HIDE, n);
	munmap(r->data, r->bytes);
	*r = world.seen.list[--world.seen.count];
	return GORUN_OK;
}

/* asked finds the request with a number, if it is not answered yet. */
static struct request *asked(uint32_t number) {
	struct request *r = world.requests;
	while (r && (r->answered || r->number != number))
		r = r->next;
	return r;
}

static int on_message(const unsigned char *b, size_t n, int fd) {
	uint32_t type = get32(b);
	int code;
	switch (type) {
	case WELCOME:
		if (n != 60 || get32(b + 4) != VERSION)
			return malformed(type, n);
		world.rank = (int)get32(b + 12), world.size = (int)get32(b + 16);
		world.local_rank = (int)get32(b + 20), world.local_size = (int)get32(b + 24);
		world.cross_rank = (int)get32(b + 28), world.cross_size = (int)get32(b + 32);
		world.has_belt = (get32(b + 36) & BELT_THERE) != 0;
		world.batches = (get32(b + 36) & BATCH_TAKEN) != 0;
		world.slots_awaited = get32(b + 36) & SLOTS_THERE && world.local_rank >= 0 &&
				      world.local_rank < world.local_size && world.local_size <= MAX_SLOT_RANKS;
		return GORUN_OK;
	case SLOTS:
		if (n != 16 || !world.slots_awaited || get64(b + 8) < LINE * MAX_SLOT_RANKS ||
		    (world.has_belt && get64(b + 8) < BELT + (uint64_t)BELT_AREA * (uint64_t)world.local_size))
			return malformed(type, n);
		world.slots_awaited = 0;
		if ((code = map(fd, get64(b + 8), PROT_READ | PROT_WRITE, &world.slots)) == GORUN_OK)
			world.slots_bytes = get64(b + 8);
		return code;
	case WAKE:
		if (world.meeting)
			ring(world.local_rank);
		return n == 8 ? GORUN_OK : malformed(type, n);
	case SHOW:
		return on_show(b, n, fd);
	case HIDE:
		return on_hide(b, n);
	case REGION: {
		struct request *r = n == 24 ? asked(get32(b + 4)) : NULL;
		if (!r)
			return malformed(type, n);
		r->region.number = get32(b + 8);
		r->region.bytes = get64(b + 16);
		r->answered = 1;
		if ((r->refused = map(fd, r->region.bytes, PROT_READ | PROT_WRITE, &r->region.data)))
			snprintf(r->text, sizeof r->text, "%.500s", error_text);
		return GORUN_OK;
	}
	case FAIL: {
		struct operation *o;
		struct request *r;
		if (n < 20 || n != 20 + (size_t)get32(b + 16))
			return malformed(type, n);
		if (get32(b + 8) == SUBMIT) {
			if (!(o = find(get32(b + 4))))
				return malformed(type, n);
			end_operation(o);
			return set_text(o, (int)get32(b + 12), b + 20, n - 20);
		}
		if (get32(b + 8) == ALLOC && (r = asked(get32(b + 4)))) {
			r->answered = 1;
			r->refused = (int)get32(b + 12);
			snprintf(r->text, sizeof r->text, "%.*s", n < 520 ? (int)(n - 20) : 500, b + 20);
			return GORUN_OK;
		}
		return lose((int)get32(b + 12), "refused by gorun's daemon: %.*s", (int)(n - 20), b + 20);
	}
	case COMPLETE:
		return on_complete(b, n, fd);
	case COMPLETED:
		if (n != 8 + 8 * (size_t)get32(b + 4))
			return malformed(type, n);
		for (const unsigned char *at = b + 8; at < b + n; at += 8) {
			struct operation *o = find(get32(at));
			if (!o)
				return malformed(type, n);
			o->took = get32(at + 4) >> 1;
			end_operation(o);
		}
		return GORUN_OK;
	case GONE:
		if (n < 16 || n != 16 + (size_t)get32(b + 8))
			return malformed(type, n);
		return lose((int)get32(b + 4), "%.*s", (int)(n - 16), b + 16);
	case CHANGED: /* hosts came or went: a program that keeps its world ignores that */
		return n == 16 ? GORUN_OK : malformed(type, n);
	case GOODBYE:
		world.goodbye = 1;
		return GORUN_OK;
	default:
		return malformed(type, n);
	}
}

/* receive takes one message. With MSG_DONTWAIT it returns GORUN_OK and sets *none if there is none. Otherwise it releases the
 * lock and waits for one; its caller has set world.reading. */
static int receive(int flags, int *none) {
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {world.in, MAX_ANSWER};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n;
	int fd = -1, code, from = world.fd;
	if (!flags)
		let_go();
	do
		n = recvmsg(from, &message, MSG_CMSG_CLOEXEC | flags);
	while (n < 0 && errno == EINTR);
	int wrong = errno;
	if (!flags)
		acquire();
	if (n < 0 && flags && (wrong == EAGAIN || wrong == EWOULDBLOCK)) {
		*none = 1;
		return GORUN_OK;
	}
	if (n < 0 && wrong != ECONNRESET)
		return lose(GORUN_LOST, "receive from gorun's daemon: %s", strerror(wrong));
	if (n <= 0)
		return world.lost ? fail(world.lost, "%s", world.lost_text) : lose(GORUN_LOST, "gorun's daemon closed the connection");
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
			memcpy(&fd, CMSG_DATA(c), sizeof fd);
	code = n < 8 || message.msg_flags & MSG_TRUNC ? malformed(0, (size_t)n) : on_message(world.in, (size_t)n, fd);
	if (fd >= 0)
		close(fd);
	wake();
	return code;
}

/* ---- arena ---- */

#define ALIGNMENT 64
#define REGION_BYTES (16u << 20) /* of a region for small blocks; untouched pages cost nothing */
#define SPARE_BYTES (256u << 20)  /* bytes of empty regions that are kept */

/* take finds n bytes in a region, first fit. */
static struct block *take(struct region *r, size_t n) {
	int passed = 0; /* a free block that is too small */
	for (struct block *b = r->lowest; b; b = b->next) {
		if (b->used || b->bytes < n) {
			passed |= !b->used;
			if (!passed && b->next)
				r->lowest = b->next;
			continue;
		}
		if (b->bytes > n) {
			struct block *rest = malloc(sizeof *rest);
			if (!rest)
				return NULL;
			*rest = (struct block){b->offset + n, b->bytes - n, 0, b, b->next};
			if (rest->next)
				rest->next->before = rest;
			b->bytes = n;
			b->next = rest;
		}
		b->used = 1;
		return b;
	}
	return NULL;
}

/* holder returns the arena region that holds n bytes at p; p itself is in it even if n is 0, as regions may be neighbours. */
static struct region *holder(const void *p, size_t n) {
	for (size_t i = 0; i < world.arena.count; i++) {
		struct region *r = &world.arena.list[i];
		size_t at = (uintptr_t)p - (uintptr_t)r->data;
		if ((uintptr_t)p >= (uintptr_t)r->data && at < r->bytes && n <= r->bytes - at)
			return r;
	}
	return NULL;
}

static int answered(const void *request) { return ((const struct request *)request)->answered || world.state != JOINED; }

/* grow gets a region of at least n bytes from the daemon. */
static struct region *grow(size_t n) {
	struct region fresh = {0}, *r;
	if (n < REGION_BYTES)
		n = REGION_BYTES;
	if (world.fd < 0) {
		fresh.bytes = n;
		void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			fail(GORUN_MEMORY, "allocate %zu bytes: %s", n, strerror(errno));
			return NULL;
		}
		fresh.data = p;
	} else {
		struct request r = {.number = ++world.request, .next = world.requests}, **at = &world.requests;
		put32(world.out, ALLOC);
		put32(world.out + 4, r.number);
		put64(world.out + 8, n);
		world.requests = &r;
		int code = send_message(16);
		if (!code)
			code = until(answered, &r);
		while (*at != &r)
			at = &(*at)->next;
		*at = r.next;
		if (!code && r.refused && r.region.bytes) /* the daemon has made it, but this process cannot map it */
			send_pair(FREE, r.region.number);
		if (code || !r.answered || r.refused) {
			if (!code)
				r.answered ? fail(r.refused, "%s", r.text) : ready();
			return NULL;
		}
		fresh = r.region;
	}
	fresh.blocks = malloc(sizeof *fresh.blocks);
	if (!fresh.blocks || !(r = add_region(&world.arena))) {
		free(fresh.blocks);
		fail(GORUN_MEMORY, "allocate %zu bytes: out of memory", n);
		return NULL;
	}
	*fresh.blocks = (struct block){.bytes = fresh.bytes};
	fresh.lowest = fresh.blocks;
	*r = fresh;
	return r;
}

/* arena_take returns a block of at least the given size, and its address. */
static struct block *arena_take(size_t bytes, void **place) {
	struct region *r = NULL;
	struct block *b = NULL;
	if (bytes > SIZE_MAX / 4) {
		fail(GORUN_INVALID, "allocate %zu bytes of shared memory: too many", bytes);
		return NULL;
	}
	bytes = bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
	for (size_t i = 0; i < world.arena.count && !b; i++) {
		r = &world.arena.list[i];
		b = take(r, bytes);
	}
	if (!b && (r = grow(bytes)))
		b = take(r, bytes);
	if (b)
		*place = r->data + b->offset;
	return b;
}

static void discard(struct region *r) {
	for (struct block *b = r->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	munmap(r->data, r->bytes);
}

/* join_next merges a block with the free one after it. */
static void join_next(struct region *r, struct block *b) {
	struct block *next = b->next;
	if (r->lowest == next)
		r->lowest = b;
	b->bytes += next->bytes;
	b->next = next->next;
	if (b->next)
		b->next->before = b;
	free(next);
}

/* spare reports whether the empty regions are few enough to keep, which saves the kernel from making their pages again. */
static int spare(void) {
	size_t bytes = 0;
	for (size_t i = 1; i < world.arena.count; i++) {
		const struct block *b = world.arena.list[i].blocks;
		bytes += b->used || b->next ? 0 : world.arena.list[i].bytes;
	}
	return bytes <= SPARE_BYTES;
}

/* arena_give frees a block, merges it with its free neighbours, and gives an empty region back unless it is spare. */
static int arena_give(struct region *r, struct block *b) {
	b->used = 0;
	if (b->next && !b->next->used)
		join_next(r, b);
	if (b->before && !b->before->used) {
		b = b->before;
		join_next(r, b);
	}
	if (b->offset < r->lowest->offset)
		r->lowest = b;
	if (r == world.arena.list || r->blocks->used || r->blocks->next || spare())
		return GORUN_OK;
	uint32_t number = r->number;
	discard(r);
	*r = world.arena.list[--world.arena.count];
	return world.fd < 0 ? GORUN_OK : send_pair(FREE, number);
}

void *gorun_alloc_raw(size_t bytes) {
	void *p;
	if (enter())
		return NULL;
	struct block *b = arena_take(bytes, &p);
	leave(GORUN_OK);
	return b ? p : NULL;
}

void *gorun_alloc(size_t bytes) {
	void *p = gorun_alloc_raw(bytes);
	return p ? memset(p, 0, bytes) : NULL;
}

int gorun_free(void *memory) {
	int code = enter();
	if (code || !memory)
		return code ? code : leave(GORUN_OK);
	struct region *r = holder(memory, 0);
	for (struct block *b = r ? r->blocks : NULL; b; b = b->next)
		if (b->used && r->data + b->offset == (unsigned char *)memory)
			return leave(arena_give(r, b));
	return leave(fail(GORUN_INVALID, "free memory: %p is not from gorun_alloc, or freed already", memory));
}

/* ---- slots ---- */

/* How many seconds a rank polls before it sleeps; a wake-up takes about as long. It yields the CPU in the second part of them,
 * and in the first too if ranks outnumber CPUs. */
#define SPIN 50e-6
#define YIELD 200e-6

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the counters of this rank, in a page that its daemon reads: worker/counters ---- */

static uint64_t unseen[COUNT_PAGE_BYTES / 8], *counts = unseen;

static uint64_t stamp(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void count(int what, uint64_t n) { __atomic_fetch_add(&counts[what / 8], n, __ATOMIC_RELAXED); }
static void note(int what, uint64_t n) { __atomic_store_n(&counts[what / 8], n, __ATOMIC_RELAXED); }

/* A child of fork leaves the page to its parent. */
static void count_apart(void) { counts = unseen; }

__attribute__((visibility("hidden"))) void gorun_open_counters(void);

/* gorun_open_counters begins to count, once. A companion counts for its rank, beside the rank's own binding. */
void gorun_open_counters(void) {
	static int opened;
	const char *path = getenv("GORUN_COUNTERS");
	if (!path || !*path || opened || pthread_atfork(NULL, NULL, count_apart))
		return;
	opened = 1;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	void *page = mmap(NULL, COUNT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return;
	counts = page;
	if (!counts[COUNT_BEGAN / 8])
		note(COUNT_BEGAN, stamp());
}

/* waits notes that this rank waits, and returns the time. */
static uint64_t waits(void) {
	uint64_t began = stamp();
	note(COUNT_SINCE, began);
	note(COUNT_ACTIVITY, COUNT_WAITING_IN_GORUN);
	return began;
}

/* count_operation counts an operation that ran for took nanoseconds once all ranks had come, and how long this rank waited. */
static void count_operation(uint64_t blocked, uint64_t took) {
	uint64_t seen = blocked < took ? blocked : took;
	count(COUNT_OTHERS, blocked - seen);
	count(COUNT_COMMUNICATION, seen);
	count(COUNT_HIDDEN, took - seen);
	count(COUNT_OPERATIONS, 1);
}

/* waited counts a wait that waits has begun. */
static void waited(uint64_t began, uint64_t took) {
	count_operation(stamp() - began, took);
	note(COUNT_ACTIVITY, COUNT_COMPUTING);
}

/* No thread waits for an operation that gorun_then has a function for. While more of them are submitted, the program still
 * computes what these carry. So it waits from the last submission on, until all have ended. */
static struct {
	int open;
	uint64_t latest; /* stamp of the last submission */
} unwaited;

static void leave_to_callback(void) {
	unwaited.open++;
	unwaited.latest = stamp();
}

static void ended_for_callback(uint64_t took) { count_operation(--unwaited.open ? 0 : stamp() - unwaited.latest, took); }

/* What a graph of a framework tells beside its operations. contrib/python/gorun/tensorflow/engine.py has the numbers too. */
enum { EVENT_LOADS, EVENT_LOADED, EVENT_STEP };
__attribute__((visibility("hidden"))) void gorun_count_event(int event);

/* gorun_count_event counts steps, and time in which a graph waited for data. It notes no activity: a graph whose data has ended
 * stops in the middle. It takes no lock, which a child of fork could find locked: of two threads, one may have the later stamp
 * and come first. */
void gorun_count_event(int event) {
	static uint64_t loading, stepped;
	uint64_t at = stamp(), since = __atomic_exchange_n(event == EVENT_STEP ? &stepped : &loading, at, __ATOMIC_RELAXED);
	if (event == EVENT_STEP && !since)
		since = __atomic_load_n(&counts[COUNT_BEGAN / 8], __ATOMIC_RELAXED);
	uint64_t took = since && since < at ? at - since : 0;
	if (event == EVENT_LOADED)
		count(COUNT_DATA, took);
	if (event == EVENT_STEP) {
		count(COUNT_STEPS, 1);
		note(COUNT_STEP_TIME, took);
	}
}

/* missed counts a wait for ranks of which not all came. The daemon carries out the operation, and the wait for it counts it. */
static void missed(uint64_t began) {
	count(COUNT_OTHERS, stamp() - began);
	note(COUNT_ACTIVITY, COUNT_COMPUTING);
}

/* moved counts the time since waits in which this rank reduced with the others, after all had come. */
static void moved(uint64_t began) {
	count(COUNT_COMMUNICATION, stamp() - began);
	note(COUNT_ACTIVITY, COUNT_COMPUTING);
}

static uint64_t *word(const struct slot *l, int rank) { return (uint64_t *)(void *)(l->words + LINE * rank); }
static uint32_t *has_left(int rank) { return (uint32_t *)(void *)(world.slots + LINE * rank); }
static uint32_t *is_asleep(int rank) { return has_left(rank) + 1; }

/* is_over reports whether the world has ended: no operation completes in a slot any more, and GONE is on its way. */
static int is_over(void) { return __atomic_load_n(has_left(world.local_rank), __ATOMIC_ACQUIRE) == 2; }

static unsigned char *buffer(const struct slot *l, int rank, uint64_t use) {
	return l->buffers + l->stride * (2 * (size_t)rank + (use & 1));
}

static uint64_t hash_of(const char *name) {
	uint64_t hash = 14695981039346656037u;
	for (const char *c = name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	return hash;
}

/* slot_of finds the slot of a name; with add it makes one to offer. NULL: there is none, or no room. */
static struct slot *slot_of(const char *name, int add) {
	if (!world.slots || world.left_slots)
		return NULL;
	uint64_t hash = hash_of(name);
	uint32_t at = (uint32_t)(hash ^ hash >> 32) % SLOT_ROOM;
	for (; world.table[at]; at = (at + 1) % SLOT_ROOM)
		if (world.table[at]->hash == hash && !strcmp(world.table[at]->name, name))
			return world.table[at];
	if (!add || world.slot_count >= SLOT_ROOM / 2)
		return NULL;
	struct slot *l = calloc(1, sizeof *l);
	if (l)
		l->name = strdup(name);
	if (!l || !l->name) {
		free(l);
		return NULL;
	}
	l->hash = hash;
	world.table[at] = l;
	world.slot_count++;
	return l;
}

/* may_wide reports whether a wide slot suits a call: its rank waits for the end, and the other ranks can map its tensors. */
static int may_wide(const gorun_call *c, size_t bytes) {
	const unsigned char *in = c->in, *out = c->out;
	return bytes <= (world.yields ? MAX_CROWD_BYTES : MAX_WIDE_BYTES) && holder(in, bytes) && holder(out, bytes) &&
	       (in == out || in + bytes <= out || out + bytes <= in);
}

/* may_belt reports whether the belt suits a call: its tensors are where neither a wide slot nor the daemon is faster. */
static int may_belt(const gorun_call *c, size_t bytes) {
	const unsigned char *in = c->in, *out = c->out;
	return world.has_belt && bytes > MAX_SLOT_BYTES && bytes <= MAX_BELT_BYTES &&
	       (!holder(in, bytes) || !holder(out, bytes) || may_wide(c, bytes)) &&
	       (in == out || in + bytes <= out || out + bytes <= in);
}

static int fits(const struct slot *l, const gorun_call *c) {
	if (l->type != c->type || l->op != (int)c->op || l->wire != (int)c->wire || l->count != c->dims[0])
		return 0;
	if (l->belt)
		return may_belt(c, l->bytes);
	/* The other ranks can map this memory only. */
	return !l->wide || (may_wide(c, l->bytes) && holder(c->in, l->bytes)->number == l->in_region &&
			    holder(c->out, l->bytes)->number == l->out_region);
}

/* may_take reports whether slots suit a call. */
static int may_take(const gorun_call *c, size_t bytes) {
	if ((int)c->kind != ALLREDUCE || c->set || c->ndim != 1 || !bytes ||
	    (bytes > MAX_SLOT_BYTES && !may_wide(c, bytes) && !may_belt(c, bytes)) ||
	    c->prescale != 1 || c->postscale != 1 || c->root || c->follows || c->nfollowers)
		return 0;
	switch (c->type) {
	case GORUN_FLOAT32:
	case GORUN_FLOAT64:
		return c->op == GORUN_SUM || c->op == GORUN_AVERAGE;
	case GORUN_INT32:
	case GORUN_UINT32:
	case GORUN_INT64:
	case GORUN_UINT64:
		return c->op == GORUN_SUM;
	default:
		return 0;
	}
}

/* hang_doorbell makes the socket on which the other ranks wake this one, and publishes its name. */
static int hang_doorbell(void) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t n = sizeof address.sun_family; /* the kernel chooses a name */
	unsigned char *line = world.slots + LINE * world.local_rank;
	world.doorbell = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (world.doorbell < 0 || bind(world.doorbell, (struct sockaddr *)&address, n))
		return fail(GORUN_LOST, "join world: make a socket: %s", strerror(errno));
	n = sizeof address;
	if (getsockname(world.doorbell, (struct sockaddr *)&address, &n))
		return fail(GORUN_LOST, "join world: name of a socket: %s", strerror(errno));
	n -= (socklen_t)offsetof(struct sockaddr_un, sun_path);
	if (n > MAX_DOORBELL)
		return fail(GORUN_LOST, "join world: the name of a socket has %u bytes", (unsigned)n);
	memcpy(line + 9, address.sun_path, n);
	__atomic_store_n(line + 8, (unsigned char)n, __ATOMIC_RELEASE);
	return GORUN_OK;
}

/* ring wakes a rank. If its doorbell is full, it has been rung already. */
static void ring(int rank) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const unsigned char *line = world.slots + LINE * rank;
	unsigned char n = __atomic_load_n(line + 8, __ATOMIC_ACQUIRE);
	if (n > MAX_DOORBELL)
		return;
	memcpy(address.sun_path, line + 9, n);
	(void)!sendto(world.doorbell, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}

/* await_doorbell sleeps until the doorbell rings or the daemon has sent a message, and takes it. */
static int await_doorbell(void) {
	struct pollfd fds[] = {{world.doorbell, POLLIN, 0}, {world.fd, POLLIN, 0}};
	char byte;
	int none = 0, code = GORUN_OK, wrong = poll(fds, 2, -1) < 0 && errno != EINTR ? errno : 0;
	while (fds[0].revents && recv(world.doorbell, &byte, 1, MSG_DONTWAIT) >= 0)
		;
	if (!wrong && !fds[1].revents)
		return GORUN_OK;
	acquire();
	if (wrong)
		code = lose(GORUN_LOST, "wait for other ranks: %s", strerror(wrong));
	else if (!world.reading) /* otherwise the thread that receives takes it, and rings */
		code = receive(MSG_DONTWAIT, &none);
	let_go();
	return code;
}

static void rouse(void) {
	for (int r = 0; r < world.local_size; r++)
		if (r != world.local_rank && __atomic_load_n(is_asleep(r), __ATOMIC_SEQ_CST))
			ring(r);
}

/* announce publishes this rank's word, and wakes the ranks that sleep if they have waited for it. */
static void announce(struct slot *l, uint64_t value) {
	__atomic_store_n(word(l, world.local_rank), value, __ATOMIC_SEQ_CST);
	for (int r = 0; r < world.local_size; r++)
		if (__atomic_load_n(word(l, r), __ATOMIC_SEQ_CST) < value && value % 2 == 0)
			return; /* the last rank to come wakes them */
	rouse();
}

static void close_slot(struct slot *l) { l->state = ++l->closed < MAX_CLOSED ? OFFERED : CLOSED; }

/* leave_slot sends the other ranks to the daemon, where this one goes from now on. */
static void leave_slot(struct slot *l) {
	close_slot(l);
	announce(l, 2 * l->use + 1);
}

/* show publishes where this rank's tensors are. The others read that once they have seen its word, and this rank does not
 * come again before all of them are done. */
static void show(const struct slot *l, const gorun_call *c) {
	unsigned char *line = l->words + LINE * world.local_rank;
	put32(line + 16, l->in_region), put32(line + 20, l->out_region);
	put64(line + 24, (uint64_t)((const unsigned char *)c->in - holder(c->in, l->bytes)->data));
	put64(line + 32, (uint64_t)((const unsigned char *)c->out - holder(c->out, l->bytes)->data));
}

/* leave_slots gives all slots up for good: the others do not wait for a rank that has joined. */
static void leave_slots(void) {
	for (uint32_t i = 0; world.table && i < SLOT_ROOM; i++) {
		struct slot *l = world.table[i];
		if (l && l->state == TAKEN)
			announce(l, 2 * l->use + 1);
		if (l)
			l->state = CLOSED;
	}
	world.left_slots = 1;
}

static void enter_slot(struct slot *l, const gorun_call *c) {
	l->use++;
	if (l->wide)
		show(l, c);
	else if (!l->belt)
		memcpy(buffer(l, world.local_rank, l->use), c->in, l->bytes);
	announce(l, 2 * l->use);
}

/* all_here reports whether every rank has come: 1 yes, 0 not yet, -1 one of them never will. */
static int all_here(const struct slot *l) {
	uint64_t use = l->use;
	int here = 1;
	/* Look at all ranks, even if one is missing: the last to come wakes no others if one will never come. */
	for (int r = 0; r < world.local_size; r++) {
		uint64_t w = __atomic_load_n(word(l, r), __ATOMIC_ACQUIRE);
		if (w >= 2 * use)
			continue;
		if (w & 1)
			return -1;
		if (__atomic_load_n(has_left(r), __ATOMIC_ACQUIRE) != 1)
			here = 0;
		else if (__atomic_load_n(word(l, r), __ATOMIC_ACQUIRE) < 2 * use)
			return -1;
	}
	/* Look at this last. A rank that comes after the end of the world finds its mark; the operation may have failed on others. */
	return is_over() ? 0 : here;
}

/* What a rank adds up in a slot: the sources of all ranks, into its own result or into every rank's. */
struct sum {
	const unsigned char *in[MAX_SLOT_RANKS];
	unsigned char *out[MAX_SLOT_RANKS];
	int outs;
	size_t count;
};

/* ADD adds up the sources of all ranks. It keeps four vectors of the sum in registers, so that it loads and stores each byte
 * once, which compilers do not find by themselves. The last few elements go through a vector too. */
#define ADD(name, attribute, type, bytes, finish)                                                                     \
	attribute static void name(const struct sum *s, double average) {                                             \
		typedef type vector __attribute__((vector_size(bytes), aligned(sizeof(type)), may_alias));            \
		const size_t width = bytes / sizeof(type), n = s->count;                                              \
		const type by = (type)average;                                                                        \
		size_t at = 0;                                                                                        \
		for (; n - at >= 4 * width; at += 4 * width) {                                                        \
			const vector *in = (const vector *)(const void *)((const type *)(const void *)s->in[0] + at); \
			vector a = in[0], b = in[1], c = in[2], d = in[3];                                            \
			for (int r = 1; r < world.local_size; r++) {                                                  \
				in = (const vector *)(const void *)((const type *)(const void *)s->in[r] + at);       \
				a += in[0], b += in[1], c += in[2], d += in[3];                                       \
			}                                                                                             \
			finish(a);                                                                                    \
			finish(b);                                                                                    \
			finish(c);                                                                                    \
			finish(d);                                                                                    \
			for (int r = 0; r < s->outs; r++) {                                                           \
				vector *to = (vector *)(void *)((type *)(void *)s->out[r] + at);                      \
				to[0] = a, to[1] = b, to[2] = c, to[3] = d;                                           \
			}                                                                                             \
		}                                                                                                     \
		for (; at < n; at++) {                                                                                \
			vector a = {((const type *)(const void *)s->in[0])[at]};                                      \
			for (int r = 1; r < world.local_size; r++)                                                    \
				a[0] += ((const type *)(const void *)s->in[r])[at];                                   \
			finish(a);                                                                                    \
			for (int r = 0; r < s->outs; r++)                                                             \
				((type *)(void *)s->out[r])[at] = a[0];                                               \
		}                                                                                                     \
		(void)by;                                                                                             \
	}

/* An average is divided. Every NaN becomes the same one: all bits of x == x are set where x is not a NaN. */
#define NOT_A_NUMBER (float)__builtin_nan("")
#define SCALE(x)                                                                                                      \
	do {                                                                                                          \
		x *= by;                                                                                              \
		x = (vector)(((x == x) & (__typeof__(x == x))x) | ((x != x) & (__typeof__(x == x))((vector){0} + NOT_A_NUMBER))); \
	} while (0)
#define LEAVE(x) (void)(x)

/* ADD_ALL is ADD for all types in slots, with vectors of the given size. */
#define ADD_ALL(suffix, attribute, bytes)                                                                             \
	ADD(add_float32##suffix, attribute, float, bytes, SCALE)                                                      \
	ADD(add_float64##suffix, attribute, double, bytes, SCALE)                                                     \
	ADD(add_32##suffix, attribute, uint32_t, bytes, LEAVE)                                                        \
	ADD(add_64##suffix, attribute, uint64_t, bytes, LEAVE)                                                        \
	static void add##suffix(const struct slot *l, const struct sum *s) {                                          \
		double by = l->op == GORUN_AVERAGE ? 1.0 / world.size : 1.0;                                          \
		if (l->type == GORUN_FLOAT32)                                                                         \
			add_float32##suffix(s, by);                                                                   \
		else if (l->type == GORUN_FLOAT64)                                                                    \
			add_float64##suffix(s, by);                                                                   \
		else if (l->type == GORUN_INT32 || l->type == GORUN_UINT32)                                           \
			add_32##suffix(s, by);                                                                        \
		else                                                                                                  \
			add_64##suffix(s, by);                                                                        \
	}

ADD_ALL(_16, , 16)
#ifdef __x86_64__
ADD_ALL(_avx2, __attribute__((target("avx2"))), 32)
#endif

#ifdef __x86_64__
/* has_avx2 reports whether the CPU has AVX2 and the kernel saves its registers. The compiler's own function needs a library that
 * not every compiler has. */
static int has_avx2(void) {
	static int known; /* 1: no, 2: yes */
	int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
	if (!answer) {
		unsigned a, b, c, d, low = 0, high;
		answer = 1;
		if (__get_cpuid(1, &a, &b, &c, &d) && c & bit_OSXSAVE && c & bit_AVX)
			__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
		if ((low & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_AVX2)
			answer = 2;
		__atomic_store_n(&known, answer, __ATOMIC_RELAXED);
	}
	return answer == 2;
}
#endif

static void add(const struct slot *l, const struct sum *s) {
#ifdef __x86_64__
	if (has_avx2()) {
		add_avx2(l, s);
		return;
	}
#endif
	add_16(l, s);
}

static void reduce(const struct slot *l, void *out) {
	struct sum s = {.out = {out}, .outs = 1, .count = (size_t)l->count};
	for (int r = 0; r < world.local_size; r++)
		s.in[r] = buffer(l, r, l->use);
	add(l, &s);
}

static uint64_t *done(const struct slot *l, int rank) { return word(l, rank) + 1; }

/* tensor returns where another rank's tensor is mapped in this process, NULL if it is not. */
static unsigned char *tensor(const struct slot *l, int rank, size_t region, size_t offset) {
	const unsigned char *line = l->words + LINE * rank;
	const struct region *r = seen_region((uint32_t)rank, get32(line + region));
	uint64_t at = get64(line + offset);
	if (!r || l->bytes > r->bytes || at > r->bytes - l->bytes || at % sizes[l->type])
		return NULL;
	return r->data + at;
}

/* deserted reports whether a rank has left a wide slot before it reduced its slice. */
static int deserted(const struct slot *l, int rank) {
	return __atomic_load_n(has_left(rank), __ATOMIC_ACQUIRE) == 1 && __atomic_load_n(done(l, rank), __ATOMIC_ACQUIRE) < l->use;
}

/* all_reduced is all_here for the slices of an operation in a wide slot. The ranks that are alive write to this rank's tensor
 * until they are done, even if another one has left. */
static int all_reduced(const struct slot *l) {
	int how = 1;
	for (int r = 0; r < world.local_size; r++) {
		if (__atomic_load_n(done(l, r), __ATOMIC_ACQUIRE) >= l->use)
			continue;
		if (!deserted(l, r)) /* it is at work, or GONE is on its way */
			return 0;
		how = -1;
	}
	return how;
}

/* desert fails an operation in a wide slot, or on the belt, that a rank has left: the tensors are overwritten in part. */
static int desert(const struct slot *l, int (*gone)(const struct slot *, int)) {
	char who[8 * MAX_SLOT_RANKS] = "";
	size_t n = 0;
	for (int r = 0; r < world.local_size; r++)
		if (gone(l, r))
			n += (size_t)snprintf(who + n, sizeof who - n, "%s%d", n ? ", " : "", r);
	return fail(GORUN_ABORTED, "allreduce %s: rank %s of this host ended in the middle of it, and the tensor holds no result",
		    l->name, who);
}

/* aim finds this rank's slice of the tensors of all ranks. */
static int aim(const struct slot *l, const gorun_call *c, struct sum *s) {
	size_t ranks = (size_t)world.local_size;
	size_t share = ((l->bytes + ranks - 1) / ranks + LINE - 1) / LINE * LINE, lo = share * (size_t)world.local_rank;
	lo = lo < l->bytes ? lo : l->bytes;
	share = share < l->bytes - lo ? share : l->bytes - lo;
	*s = (struct sum){.outs = world.local_size, .count = share / sizes[l->type]};
	for (int r = 0; r < world.local_size; r++) {
		int self = r == world.local_rank;
		const unsigned char *in = self ? c->in : tensor(l, r, 16, 24);
		unsigned char *out = self ? c->out : tensor(l, r, 20, 32);
		if (!in || !out)
			return lose(GORUN_LOST, "allreduce %s: rank %d of this host shows no tensor", l->name, r);
		s->in[r] = in + lo, s->out[r] = out + lo;
	}
	return GORUN_OK;
}

/* reduce_slice reduces this rank's slice for all ranks, and publishes that it is done. */
static void reduce_slice(const struct slot *l, const struct sum *s) {
	add(l, s);
	__atomic_store_n(done(l, world.local_rank), l->use, __ATOMIC_SEQ_CST);
	if (all_reduced(l))
		rouse();
}

/* sleep_until waits for the doorbell or a message of the daemon, which it takes, unless look has an answer. */
static int sleep_until(int (*look)(const struct slot *), const struct slot *l) {
	__atomic_store_n(is_asleep(world.local_rank), 1, __ATOMIC_SEQ_CST);
	/* Look once more, now that others would ring. */
	int code = look(l) ? GORUN_OK : await_doorbell();
	__atomic_store_n(is_asleep(world.local_rank), 0, __ATOMIC_SEQ_CST);
	return code;
}

/* await calls look until it returns 1, or -1 because a rank will never come. It runs without the lock. */
static int await(int (*look)(const struct slot *), const struct slot *l, int *how) {
	double since = 0;
	int yields = world.yields, code;
	for (uint32_t turn = 0; !(*how = look(l)); turn++) {
		if (__atomic_load_n(&world.lost, __ATOMIC_RELAXED) || __atomic_load_n(&world.state, __ATOMIC_RELAXED) != JOINED) {
			acquire();
			code = ready();
			let_go();
			return code;
		}
		if (yields)
			sched_yield();
#if defined __x86_64__ || defined __i386__
		else
			__builtin_ia32_pause();
#endif
		if (turn % 64 != 63 && !yields)
			continue;
		double t = now();
		if (!since)
			since = t;
		yields = yields || t - since >= SPIN;
		if (t - since >= YIELD && (code = sleep_until(look, l)))
			return code;
	}
	return GORUN_OK;
}

/* ---- the belt: "The belt" in PROTOCOL.md ---- */

static unsigned char *area(int rank) { return world.slots + BELT + (size_t)BELT_AREA * (size_t)rank; }
static uint32_t *broken(int rank) { return (uint32_t *)(void *)area(rank); }
static uint64_t *filled(int rank) { return (uint64_t *)(void *)(area(rank) + BELT_FILLED); }
static uint64_t *reduced(int rank) { return (uint64_t *)(void *)(area(rank) + BELT_REDUCED); }

/* part_of returns the place of a part in the area of a rank. */
static unsigned char *part_of(int rank, uint64_t part) {
	return area(rank) + BELT_BUFFERS + part % BELT_DEPTH * (size_t)BELT_PART;
}

/* result_of returns the place of the share that a rank has reduced. */
static unsigned char *result_of(int rank, uint64_t part) {
	return area(rank) + BELT_RESULTS + part % BELT_DEPTH * (size_t)BELT_SHARE;
}

/* parted reports whether a rank will reduce no more shares. */
static int parted(int rank) {
	return (__atomic_load_n(broken(rank), __ATOMIC_ACQUIRE) || __atomic_load_n(has_left(rank), __ATOMIC_ACQUIRE) == 1) &&
	       __atomic_load_n(reduced(rank), __ATOMIC_ACQUIRE) < world.goal;
}

/* departed is parted without the ranks that failed only because another one did. */
static int departed(const struct slot *l, int rank) {
	(void)l;
	return parted(rank) && __atomic_load_n(broken(rank), __ATOMIC_ACQUIRE) != BELT_FAILED;
}

/* all_have is all_here for the parts that this rank waits for. */
static int all_have(uint64_t *(*count)(int)) {
	int how = 1;
	for (int r = 0; r < world.local_size; r++) {
		if (__atomic_load_n(count(r), __ATOMIC_ACQUIRE) >= world.goal)
			continue;
		if (parted(r))
			return -1;
		how = 0;
	}
	return how;
}

static int all_filled(const struct slot *l) {
	(void)l;
	return all_have(filled);
}

static int all_have_reduced(const struct slot *l) {
	(void)l;
	return all_have(reduced);
}

/* A part of a tensor, and the share of it that each rank reduces. */
struct part {
	uint64_t number; /* counted from the first one that went over the belt */
	size_t at, bytes, share;
};

/* share_of returns where a rank's share of a part begins, and sets its size. */
static size_t share_of(const struct part *p, int rank, size_t *bytes) {
	size_t lo = p->share * (size_t)rank;
	lo = lo < p->bytes ? lo : p->bytes;
	*bytes = p->share < p->bytes - lo ? p->share : p->bytes - lo;
	return lo;
}

static void publish(uint64_t *count, uint64_t part) {
	__atomic_store_n(count, part + 1, __ATOMIC_SEQ_CST);
	rouse();
}

/* fill_part copies a part of this rank's tensor to the belt, for the others to reduce. */
static void fill_part(const struct part *p, const gorun_call *c) {
	unsigned char *to = part_of(world.local_rank, p->number);
	for (int r = 0; r < world.local_size; r++) {
		size_t n, lo = share_of(p, r, &n);
		if (r != world.local_rank)
			memcpy(to + lo, (const unsigned char *)c->in + p->at + lo, n);
	}
	publish(filled(world.local_rank), p->number);
}

/* reduce_part reduces this rank's share, for itself and for the others. */
static void reduce_part(const struct slot *l, const struct part *p, const gorun_call *c) {
	size_t n, lo = share_of(p, world.local_rank, &n);
	struct sum s = {.outs = 2, .count = n / sizes[l->type]};
	for (int r = 0; r < world.local_size; r++)
		s.in[r] = r == world.local_rank ? (const unsigned char *)c->in + p->at + lo : part_of(r, p->number) + lo;
	s.out[0] = (unsigned char *)c->out + p->at + lo, s.out[1] = result_of(world.local_rank, p->number);
	add(l, &s);
	publish(reduced(world.local_rank), p->number);
}

/* take_part takes what the others have reduced. */
static void take_part(const struct part *p, const gorun_call *c) {
	for (int r = 0; r < world.local_size; r++) {
		size_t n, lo = share_of(p, r, &n);
		if (r != world.local_rank)
			memcpy((unsigned char *)c->out + p->at + lo, result_of(r, p->number), n);
	}
}

/* await_part waits until all ranks have filled, or reduced, a part. It sets *how to -1 if one never will. */
static int await_part(const struct slot *l, int (*look)(const struct slot *), const struct part *p, int *how) {
	world.goal = p->number + 1;
	return await(look, l, how);
}

/* pass_belt reduces a tensor part by part. Three parts are under way, so that ranks of equal speed never wait: while this rank
 * fills one, the others have filled the part before it and reduced the one before that. It runs without the lock. */
static int pass_belt(const struct slot *l, const gorun_call *c, int *how) {
	size_t count = (l->bytes + BELT_PART - 1) / BELT_PART, ranks = (size_t)world.local_size;
	struct part under_way[BELT_DEPTH];
	int code = GORUN_OK;
	for (size_t i = 0; !code && *how > 0 && i < count + 2; i++) {
		struct part *p = &under_way[i % BELT_DEPTH], *before = &under_way[(i + 2) % BELT_DEPTH];
		struct part *first = &under_way[(i + 1) % BELT_DEPTH];
		if (i < count) {
			*p = (struct part){.number = world.parts + i, .at = i * BELT_PART};
			p->bytes = l->bytes - p->at < BELT_PART ? l->bytes - p->at : BELT_PART;
			p->share = ((p->bytes + ranks - 1) / ranks + LINE - 1) / LINE * LINE;
			fill_part(p, c);
		}
		if (i >= 1 && i <= count && !(code = await_part(l, all_filled, before, how)) && *how > 0)
			reduce_part(l, before, c);
		if (i >= 2 && !code && *how > 0 && !(code = await_part(l, all_have_reduced, first, how)) && *how > 0)
			take_part(first, c);
	}
	world.parts += count;
	return code;
}

/* leave_belt closes the belt for good, because the ranks are at different parts. */
static void leave_belt(void) {
	world.has_belt = 0;
	__atomic_store_n(broken(world.local_rank), BELT_FAILED, __ATOMIC_SEQ_CST);
	rouse();
}

/* meet carries out a call in its slot. If a rank does not come, it sets *done to 0 and closes the slot. */
static int meet(struct slot *l, const gorun_call *c, int *done) {
	struct sum slice;
	int how = 0, code;
	*done = 1;
	world.meeting = l;
	enter_slot(l, c);
	let_go();
	uint64_t began = waits();
	code = await(all_here, l, &how);
	int came = !code && how > 0, apart = came && !l->wide && !l->belt;
	if (code || came)
		waited(began, 0);
	else
		missed(began);
	if (apart)
		reduce(l, c->out);
	else if (came)
		began = waits();
	if (came && l->belt)
		code = pass_belt(l, c, &how);
	acquire();
	if (came && l->belt) {
		if (!code && how < 0)
			code = desert(l, departed);
		if (code)
			leave_belt();
	} else if (came && l->wide && !(code = aim(l, c, &slice))) {
		let_go();
		reduce_slice(l, &slice);
		code = await(all_reduced, l, &how);
		acquire();
		if (!code && how < 0)
			code = desert(l, deserted);
	} else if (!code && how < 0) {
		close_slot(l);
		*done = 0;
	}
	if (came && !apart)
		moved(began);
	world.meeting = NULL;
	pthread_cond_broadcast(&met);
	return code;
}

/* ---- operations ---- */

static const char *const kinds[] = {"",		     "allreduce",	   "allgather", "broadcast", "barrier", "alltoall", "reducescatter",
				    "add process set", "remove process set", "join",	  "reduce",    "gather",  "scatter",  "send",
				    "recv",		     "peek"};

static int has_tensor(int kind) { return kind != BARRIER && kind != ADD_GROUP && kind != REMOVE_GROUP && kind != JOIN && kind != PEEK; }
static int reduces(int kind) { return kind == ALLREDUCE || kind == REDUCESCATTER || kind == REDUCE; }
static int has_numbers(int kind) { return kind == ADD_GROUP || kind == JOIN || kind == PEEK; }
static int has_result(int kind) { return has_tensor(kind) && kind != ALLREDUCE && kind != BROADCAST && kind != SEND && kind != RECV; }

static int has_target(int kind) { return kind == ALLREDUCE || kind == BROADCAST || kind == RECV; }

/* measure checks the memory of a call, and sets its size. */
static int measure(const gorun_call *c, size_t *bytes) {
	const char *kind = kinds[(int)c->kind];
	uint64_t n;
	if (!c->name || !*c->name || strlen(c->name) > MAX_NAME)
		return fail(GORUN_INVALID, "submit %s: a name has 1 to %d bytes", kind, MAX_NAME);
	if ((c->nsplits && !c->splits) || (c->nfollowers && !c->followers) || (c->ndim && !c->dims) ||
	    c->nsplits < 0 || c->nfollowers < 0 || c->ndim < 0)
		return fail(GORUN_INVALID, "submit %s %s: a list is missing", kind, c->name);
	if ((size_t)c->nsplits + (size_t)c->nfollowers > (MAX_MESSAGE - 128 - MAX_NAME - 8 * MAX_DIMS) / 4)
		return fail(GORUN_INVALID, "submit %s %s: splits for %d ranks do not fit a message", kind, c->name, c->nsplits + c->nfollowers);
	if (((int)c->kind != ALLREDUCE || c->nsplits) && (c->follows || c->nfollowers))
		return fail(GORUN_INVALID, "submit %s %s: only an allreduce follows, or is followed", kind, c->name);
	*bytes = 0;
	if (!has_tensor((int)c->kind))
		return GORUN_OK;
	if (c->type < GORUN_UINT8 || c->type > GORUN_COMPLEX128)
		return fail(GORUN_INVALID, "submit %s %s: unknown element type %d", kind, c->name, (int)c->type);
	if (c->ndim > MAX_DIMS)
		return fail(GORUN_INVALID, "submit %s %s: %d dimensions", kind, c->name, c->ndim);
	n = sizes[c->type];
	for (int i = 0; i < c->ndim; i++) {
		if (c->dims[i] < 0)
			return fail(GORUN_INVALID, "submit %s %s: %lld elements", kind, c->name, (long long)c->dims[i]);
		if (c->dims[i] && n > SIZE_MAX / 4 / (uint64_t)c->dims[i])
			return fail(GORUN_INVALID, "submit %s %s: too many elements", kind, c->name);
		n *= (uint64_t)c->dims[i];
	}
	if (n && !c->in && (int)c->kind != RECV && ((int)c->kind != BROADCAST || c->root == world.rank))
		return fail(GORUN_INVALID, "submit %s %s: no memory for %llu bytes", kind, c->name, (unsigned long long)n);
	if (n && !c->out && has_target((int)c->kind))
		return fail(GORUN_INVALID, "submit %s %s: no memory for the result of %llu bytes", kind, c->name,
			    (unsigned long long)n);
	*bytes = (size_t)n;
	return GORUN_OK;
}

/* open_operation finds a free place. */
static struct operation *open_operation(int kind, gorun_handle *handle) {
	struct operation *o = NULL;
	if (!world.operations) {
		void *p = mmap(NULL, MAX_IN_FLIGHT * sizeof *o, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED) {
			fail(GORUN_MEMORY, "submit operation: out of memory");
			return NULL;
		}
		world.operations = p;
	}
	for (uint32_t i = 0; !o && i < world.count; i++) {
		world.hint = world.hint + 1 < world.count ? world.hint + 1 : 0;
		if (world.operations[world.hint].stage == UNUSED)
			o = &world.operations[world.hint];
	}
	if (!o && world.count == MAX_IN_FLIGHT) {
		fail(GORUN_INVALID, "submit operation: %d operations are in flight already", MAX_IN_FLIGHT);
		return NULL;
	}
	if (!o) {
		world.hint = world.count;
		world.count = world.count ? 2 * world.count : 64;
		o = &world.operations[world.hint];
	}
	memset(o, 0, sizeof *o);
	o->generation = world.generation = (world.generation + 1) & INT32_MAX;
	o->kind = kind;
	o->region = NO_REGION;
	o->stage = OPEN;
	*handle = (int64_t)o->generation << 32 | (o - world.operations);
	return o;
}

static void unstage(struct operation *o) {
	if (o->staged)
		arena_give(holder(o->staged, 0), o->block);
	o->staged = NULL;
}

/* key_of returns the hash by which ranks know an operation: each set has its own names, and so has each pair of ranks. */
static uint64_t key_of(const gorun_call *c) {
	uint64_t hash = hash_of(c->name) ^ (uint64_t)(uint32_t)c->set << 32;
	if ((int)c->kind == SEND || (int)c->kind == RECV)
		hash ^= (uint64_t)c->root + 1;
	if ((int)c->kind == SEND || (int)c->kind == RECV || (int)c->kind == ADD_GROUP || (int)c->kind == REMOVE_GROUP || (int)c->kind == JOIN)
		hash ^= (uint64_t)c->kind << 56;
	hash *= 1099511628211u;
	return hash ? hash : 1;
}

/* in_flight reports whether a name is in flight, which ends when this rank has waited for it, however fast the others are. */
static int in_flight(uint64_t key) {
	for (uint32_t at = world.names[key % NAME_ROOM]; at; at = world.operations[at - 1].next)
		if (world.operations[at - 1].name == key)
			return 1;
	return 0;
}

static void take_name(struct operation *o, uint64_t key) {
	uint32_t *list = &world.names[key % NAME_ROOM];
	o->name = key;
	o->next = *list;
	*list = (uint32_t)(o - world.operations) + 1;
}

static void free_name(struct operation *o) {
	uint32_t *at = &world.names[o->name % NAME_ROOM];
	if (!o->name)
		return;
	while (*at != (uint32_t)(o - world.operations) + 1)
		at = &world.operations[*at - 1].next;
	*at = o->next;
	o->name = 0;
}

static void close_operation(struct operation *o) {
	free_name(o);
	unstage(o);
	free(o->text);
	free(o->counts);
	free(o->own);
	o->text = NULL, o->counts = NULL, o->own = NULL;
	o->stage = UNUSED;
}

/* defined_for reports whether a reduction is defined for a type, by the rules that the engine has in larger worlds. */
static int defined_for(int op, gorun_type type, int kind) {
	if (op == GORUN_ADASUM)
		return kind == ALLREDUCE && type >= GORUN_FLOAT16 && type <= GORUN_FLOAT64;
	if (op >= GORUN_BIT_AND && op <= GORUN_LOGICAL_XOR)
		return type < GORUN_FLOAT16 || type == GORUN_BOOL;
	if (op == GORUN_MIN || op == GORUN_MAX)
		return type < GORUN_COMPLEX64;
	return op >= GORUN_AVERAGE && op <= GORUN_PRODUCT;
}

static float bits_float(uint32_t bits) {
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

static uint32_t float_bits(float f) {
	uint32_t bits;
	memcpy(&bits, &f, 4);
	return bits;
}

static float from_half(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
	float f = rest < 0x400 ? (float)rest * 0x1p-24f : bits_float(rest >= 0x7c00 ? 0x7f800000 | rest << 13 : (rest << 13) + (112u << 23));
	return bits_float(sign | float_bits(f));
}

/* Rounds to the nearest, to even if halfway, as to_brain does. */
static uint16_t to_half(float f) {
	uint32_t bits = float_bits(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (rest >= 0x477ff000) /* 65520: halfway to the first number that is too large */
		return (uint16_t)(sign | 0x7c00);
	if (rest < 0x38800000) /* below 2**-14 numbers are 2**-24 apart: adding a float with that spacing rounds to it */
		return (uint16_t)(sign | (float_bits(bits_float(rest) + 0.5f) - float_bits(0.5f)));
	return (uint16_t)(sign | (rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13);
}

static uint16_t to_brain(float f) {
	uint32_t bits = float_bits(f);
	if (f != f)
		return 0x7fc0;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define SCALE_ALL(type, load, store)                                                                                  \
	for (type *x = data, *end = x + bytes / sizeof *x; x < end; x++)                                              \
	*x = (type)store((double)load(*x) * by)
#define SAME(x) (x)
#define FROM_BRAIN(x) bits_float((uint32_t)(x) << 16)
#define TO_HALF(x) to_half((float)(x))
#define TO_BRAIN(x) to_brain((float)(x))

/* scale multiplies a tensor in a world of one, as the engine does in larger ones. */
static int scale(const gorun_call *c, void *data, size_t bytes) {
	double by = c->prescale * c->postscale;
	if (by == 1)
		return GORUN_OK;
	switch (c->type) {
	case GORUN_UINT8: SCALE_ALL(uint8_t, SAME, SAME); break;
	case GORUN_INT8: SCALE_ALL(int8_t, SAME, SAME); break;
	case GORUN_UINT16: SCALE_ALL(uint16_t, SAME, SAME); break;
	case GORUN_INT16: SCALE_ALL(int16_t, SAME, SAME); break;
	case GORUN_UINT32: SCALE_ALL(uint32_t, SAME, SAME); break;
	case GORUN_INT32: SCALE_ALL(int32_t, SAME, SAME); break;
	case GORUN_UINT64: SCALE_ALL(uint64_t, SAME, SAME); break;
	case GORUN_INT64: SCALE_ALL(int64_t, SAME, SAME); break;
	case GORUN_FLOAT16: SCALE_ALL(uint16_t, from_half, TO_HALF); break;
	case GORUN_BFLOAT16: SCALE_ALL(uint16_t, FROM_BRAIN, TO_BRAIN); break;
	case GORUN_FLOAT32: case GORUN_COMPLEX64: SCALE_ALL(float, SAME, SAME); break;
	case GORUN_FLOAT64: case GORUN_COMPLEX128: SCALE_ALL(double, SAME, SAME); break;
	default: return fail(GORUN_INVALID, "submit %s %s: element type %d cannot be scaled", kinds[(int)c->kind], c->name, (int)c->type);
	}
	return GORUN_OK;
}

/* alone completes an operation in a world of one, where every reduction is the input. */
static int alone(struct operation *o, const gorun_call *c, size_t bytes) {
	const char *kind = kinds[(int)c->kind];
	int k = (int)c->kind, rows = k == ALLGATHER || k == ALLTOALL || k == REDUCESCATTER || k == GATHER || k == SCATTER;
	if (reduces(k) && !defined_for((int)c->op, c->type, k))
		return fail(GORUN_INVALID, "submit %s %s: reduction %d is not defined for type %d", kind, c->name, (int)c->op, (int)c->type);
	if (k == SEND || k == RECV || k == ADD_GROUP || k == REMOVE_GROUP)
		return fail(GORUN_INVALID, "submit %s %s: there is nobody else in a world of 1", kind, c->name);
	if ((k == BROADCAST || k == REDUCE || k == GATHER || k == SCATTER) && c->root != 0)
		return fail(GORUN_INVALID, "submit %s %s: root rank %d is not in a world of 1", kind, c->name, c->root);
	if (rows && !c->ndim)
		return fail(GORUN_INVALID, "submit %s %s: a scalar has no rows: give it one", kind, c->name);
	if (c->nsplits && (c->nsplits != 1 || c->splits[0] != c->dims[0]))
		return fail(GORUN_INVALID, "submit %s %s: splits are %d rows of %lld", kind, c->name, (int)c->splits[0],
			    (long long)c->dims[0]);
	if (c->set)
		return fail(GORUN_INVALID, "submit %s %s: there is no process set %d in a world of 1", kind, c->name, c->set);
	end_operation(o);
	if (k == ALLREDUCE && bytes)
		memmove(c->out, c->in, bytes);
	if (k == ALLREDUCE && bytes)
		return scale(c, c->out, bytes);
	if (k == JOIN) {
		if (!(o->counts = calloc(1, sizeof *o->counts)))
			return fail(GORUN_MEMORY, "submit %s: out of memory", kind);
		o->rows = 1;
		return GORUN_OK;
	}
	if (!has_result(k))
		return GORUN_OK;
	o->own = malloc(bytes ? bytes : 1);
	o->counts = reduces(k) ? NULL : malloc(sizeof *o->counts);
	if (!o->own || (!reduces(k) && !o->counts))
		return fail(GORUN_MEMORY, "submit %s %s: out of memory", kind, c->name);
	if (bytes)
		memcpy(o->own, c->in, bytes);
	o->data = o->own;
	o->data_bytes = bytes;
	o->rows = c->ndim ? c->dims[0] : 1;
	if (o->counts)
		o->counts[0] = c->dims[0];
	return reduces(k) ? scale(c, o->own, bytes) : GORUN_OK;
}

/* stage copies a tensor that the daemon cannot see into the arena. It releases the lock meanwhile. */
static int stage(struct operation *o, gorun_call *c, size_t bytes) {
	int receives = (int)c->kind == BROADCAST && c->root != world.rank;
	if (!bytes || ((!c->in || holder(c->in, bytes)) && (!c->out || holder(c->out, bytes))))
		return GORUN_OK;
	if (!(o->block = arena_take(bytes, &o->staged)))
		return GORUN_MEMORY;
	if (!receives && c->in) {
		let_go();
		memcpy(o->staged, c->in, bytes);
		acquire();
	}
	o->bytes = bytes;
	o->target = c->out;
	if (c->in)
		c->in = o->staged;
	if (c->out)
		c->out = o->staged;
	return ready();
}

static void put_place(unsigned char *region, unsigned char *place, const void *p, size_t bytes) {
	struct region *r = p && bytes ? holder(p, bytes) : NULL;
	put32(region, r ? r->number : NO_REGION);
	put64(place, r ? (uint64_t)((const unsigned char *)p - r->data) : 0);
	put64(place + 8, bytes);
}

static int submit(struct operation *o, const gorun_call *c, size_t bytes) {
	unsigned char *b = world.out, *end;
	size_t name = strlen(c->name);
	memset(b, 0, 84);
	put32(b, SUBMIT);
	put32(b + 4, (uint32_t)(o - world.operations));
	b[8] = (unsigned char)((int)c->kind | (o->slot ? TAKES_SLOT : 0)), b[9] = (unsigned char)c->type;
	b[10] = (unsigned char)((int)c->op | (int)c->wire << WIRE_BITS);
	b[11] = (unsigned char)(c->ndim | (o->slot && o->slot->may_wide ? TAKES_WIDE : 0) |
				(o->slot && o->slot->may_belt ? TAKES_BELT : 0));
	put32(b + 12, (uint32_t)c->root);
	put32(b + 16, (uint32_t)c->set);
	put_place(b + 20, b + 52, c->in, bytes);
	put_place(b + 24, b + 68, c->out, c->out ? bytes : 0);
	put32(b + 28, (uint32_t)name);
	put32(b + 32, (uint32_t)(c->nsplits + c->nfollowers + (c->follows ? 1 : 0)));
	memcpy(b + 36, &c->prescale, 8);
	memcpy(b + 44, &c->postscale, 8);
	end = b + 84;
	for (int i = 0; i < c->ndim; i++, end += 8)
		put64(end, (uint64_t)c->dims[i]);
	for (int i = 0; i < c->nsplits; i++, end += 4)
		put32(end, (uint32_t)c->splits[i]);
	for (int i = 0; i < c->nfollowers; i++, end += 4)
		put32(end, (uint32_t)c->followers[i]); /* the low half is the number on the wire */
	if (c->follows) {
		put32(end, FOLLOWS);
		end += 4;
	}
	memcpy(end, c->name, name);
	return send_message((size_t)(end + name - b));
}

/* set_size returns how many ranks are in a set. */
static int set_size(uint32_t set) {
	for (size_t i = 0; i < world.set_count; i++)
		if (world.sets[i].number == set)
			return world.sets[i].size;
	return set ? 0 : world.size;
}

#define MET -1     /* the handle of an operation that was carried out in a slot */
#define CURRENT -1 /* the set or compression that gorun_use_set or gorun_use_wire has chosen */

static struct operation *held(gorun_handle handle, enum stage most) {
	uint32_t at = (uint32_t)handle;
	struct operation *o = at < world.count ? &world.operations[at] : NULL;
	if (o && o->stage != UNUSED && o->stage <= most && (uint32_t)(handle >> 32) == o->generation)
		return o;
	fail(GORUN_INVALID, "wait for operation: handle %lld is none, or was waited for", (long long)handle);
	return NULL;
}

/* choose fills in what a call leaves to the session, and checks everything but its memory. */
static int choose(gorun_call *c) {
	int k = (int)c->kind, sole = k == SEND || k == RECV || k == REMOVE_GROUP || k == JOIN || k == PEEK;
	if (k < ALLREDUCE || k > PEEK)
		return fail(GORUN_INVALID, "submit operation: unknown kind %d", k);
	if (c->set == CURRENT)
		c->set = sole || k == ADD_GROUP ? 0 : (int)world.set;
	if ((int)c->wire == CURRENT || !reduces(k))
		c->wire = reduces(k) ? (gorun_wire)world.wire : GORUN_WIRE_DEFAULT;
	if (c->set < 0 || (sole && c->set))
		return fail(GORUN_INVALID, "submit %s: not in process set %d", kinds[k], c->set);
	if ((int)c->wire < GORUN_WIRE_DEFAULT || c->wire > GORUN_WIRE_INT8)
		return fail(GORUN_INVALID, "submit %s: unknown wire compression %d", kinds[k], (int)c->wire);
	if ((int)c->op < 0 || c->op > GORUN_LOGICAL_XOR)
		return fail(GORUN_INVALID, "submit %s %s: unknown reduction %d", kinds[k], c->name ? c->name : "", (int)c->op);
	for (int i = 0; i < c->nfollowers && c->followers; i++)
		if (!held(c->followers[i], DONE))
			return GORUN_INVALID;
	return GORUN_OK;
}

/* submit_call starts an operation. If its rank waits for it at once, it may be carried out in a slot right here. */
static int submit_call(gorun_call c, int stays, gorun_handle *handle) {
	struct operation *o;
	size_t bytes = 0;
	int code = handle ? choose(&c) : fail(GORUN_INVALID, "submit operation: no place for the handle");
	if (code || (code = measure(&c, &bytes)))
		return code;
	if ((int)c.kind == JOIN) {
		while (world.meeting)
			pthread_cond_wait(&met, &lock);
		if ((code = ready()))
			return code;
		leave_slots();
	}
	uint64_t key = key_of(&c);
	int takes = stays && may_take(&c, bytes), done = 0;
	/* Sets, and pairs of ranks, have names of their own. */
	struct slot *l = c.set || (int)c.kind == SEND || (int)c.kind == RECV ? NULL : slot_of(c.name, takes);
	if (in_flight(key) || (l && l == world.meeting))
		return fail(GORUN_INVALID, "submit %s %s: an operation of this name is in flight", kinds[(int)c.kind], c.name);
	if (l && l->state == TAKEN && takes && !world.meeting && fits(l, &c)) {
		*handle = MET;
		code = meet(l, &c, &done);
		if (code || done)
			return code;
	} else if (l && l->state == TAKEN)
		leave_slot(l);
	if (!(o = open_operation((int)c.kind, handle)))
		return GORUN_MEMORY;
	take_name(o, key);
	o->set = (int)c.kind == REMOVE_GROUP ? c.root : c.set, o->set_size = c.nsplits;
	if (l && l->state == OFFERED && takes) {
		o->slot = l;
		l->type = c.type, l->op = (int)c.op, l->wire = (int)c.wire, l->count = c.dims[0], l->bytes = bytes;
		l->may_belt = may_belt(&c, bytes);
		if ((l->may_wide = l->closed < MAX_WIDENED && may_wide(&c, bytes))) /* the memory stays until the operation has ended */
			l->in_region = holder(c.in, bytes)->number, l->out_region = holder(c.out, bytes)->number;
	}
	if (world.fd < 0)
		code = alone(o, &c, bytes);
	else if (!(code = stage(o, &c, bytes)))
		code = submit(o, &c, bytes);
	if (code)
		close_operation(o);
	return code;
}

static int ended(const void *operation) { return ((const struct operation *)operation)->stage != OPEN || world.state != JOINED; }

/* desert_followers fails the operations that follow a head which could not be submitted: it submits one that must fail. */
static void desert_followers(const gorun_call *c) {
	static const int64_t one = 1;
	gorun_handle handle;
	gorun_call head = {.kind = (gorun_kind)ALLREDUCE, .name = "interrupted", .dims = &one, .ndim = 1,
			   .type = GORUN_FLOAT32, .op = GORUN_SUM, .prescale = 1, .postscale = 1,
			   .followers = c->followers, .nfollowers = c->nfollowers};
	struct operation *o = world.fd < 0 ? NULL : open_operation(ALLREDUCE, &handle);
	if (o && !submit(o, &head, 0))
		until(ended, o);
	if (o && !ready())
		close_operation(o);
}

static int start(gorun_call c, int stays, gorun_handle *handle) {
	int code = enter();
	if (code)
		return code;
	code = submit_call(c, stays, handle);
	if (code && c.nfollowers && c.followers && !world.lost && world.state == JOINED) {
		char why[sizeof error_text];
		memcpy(why, error_text, sizeof why);
		desert_followers(&c);
		memcpy(error_text, why, sizeof why);
	}
	return leave(code);
}

static int begin(gorun_call c, gorun_handle *handle) {
	c.set = CURRENT, c.wire = (gorun_wire)CURRENT;
	c.prescale = c.postscale = 1;
	return start(c, 0, handle);
}

int gorun_start(const gorun_call *call, gorun_handle *handle) {
	if (!call || call->size != sizeof *call)
		return fail(GORUN_INVALID, "submit operation: gorun_call is not the one of this library");
	return start(*call, 0, handle);
}

int gorun_test(gorun_handle handle, int *done) {
	int code = enter(), none = 0;
	struct operation *o;
	if (code)
		return code;
	if (!done || !(o = held(handle, DONE)))
		return leave(done ? GORUN_INVALID : fail(GORUN_INVALID, "test operation: no place for the answer"));
	while (o->stage == OPEN && !none && !world.reading)
		if ((code = receive(MSG_DONTWAIT, &none)))
			return leave(code);
	*done = o->stage == DONE;
	if (*done)
		free_name(o);
	return leave(GORUN_OK);
}

/* give_back frees a result. */
static int give_back(struct operation *o) {
	int code = GORUN_OK;
	if (world.fd >= 0 && o->region != NO_REGION)
		code = send_pair(RELEASE, (uint32_t)(o - world.operations));
	close_operation(o);
	return code;
}

/* note_set remembers the size of a set that was added, or forgets a set that was removed. */
static int note_set(const struct operation *o) {
	if (o->kind == REMOVE_GROUP) {
		for (size_t i = 0; i < world.set_count; i++)
			if (world.sets[i].number == (uint32_t)o->set)
				world.sets[i] = world.sets[--world.set_count];
		if (world.set == (uint32_t)o->set)
			world.set = 0;
		return GORUN_OK;
	}
	if (o->kind != ADD_GROUP || !o->counts)
		return GORUN_OK;
	struct set *sets = realloc(world.sets, (world.set_count + 1) * sizeof *sets);
	if (!sets)
		return fail(GORUN_MEMORY, "add process set: out of memory");
	world.sets = sets;
	sets[world.set_count++] = (struct set){(uint32_t)o->counts[0], o->set_size};
	return GORUN_OK;
}

/* finish ends an operation for its caller, and hands over the result. */
static int finish(struct operation *o, gorun_handle handle, gorun_result *result) {
	int code = o->code;
	if (code) {
		fail(code, "%s", o->text ? o->text : "wait for operation: out of memory");
		close_operation(o);
		return code;
	}
	if (o->target) {
		o->stage = BUSY;
		let_go();
		memcpy(o->target, o->staged, o->bytes);
		acquire();
	}
	if ((code = note_set(o)) || (!has_result(o->kind) && !has_numbers(o->kind))) {
		close_operation(o);
		return code;
	}
	if (!result)
		return give_back(o);
	unstage(o);
	free_name(o);
	o->stage = READABLE;
	*result = (gorun_result){o->data, o->data_bytes, o->rows, o->counts, handle};
	return GORUN_OK;
}

int gorun_wait(gorun_handle handle, gorun_result *result) {
	int code = enter();
	struct operation *o;
	if (code)
		return code;
	if (!(o = held(handle, DONE)))
		return leave(GORUN_INVALID);
	if (o->then)
		return leave(fail(GORUN_INVALID, "wait for operation: it is for the function that gorun_then has named"));
	if (o->counted)
		return leave(finish(o, handle, result));
	uint64_t began = waits();
	if (o->stage == OPEN && ((code = until(ended, o)) || (code = ready()))) {
		waited(began, 0);
		return leave(code);
	}
	if (!(o = held(handle, DONE))) { /* another thread waited for it too, and was first: it has counted the wait */
		note(COUNT_ACTIVITY, COUNT_COMPUTING);
		return leave(GORUN_INVALID);
	}
	waited(began, (uint64_t)o->took * 1000);
	return leave(finish(o, handle, result));
}

int gorun_release(gorun_result *result) {
	int code = enter();
	struct operation *o;
	if (code)
		return code;
	if (!result || !(o = held(result->handle, READABLE)) || o->stage != READABLE)
		return leave(fail(GORUN_INVALID, "release result: not a result, or released already"));
	code = give_back(o);
	memset(result, 0, sizeof *result);
	return leave(code);
}

/* ---- callbacks ---- */

/* next_due returns an operation to call back for, or NULL. At the end of the session all operations are due. */
static struct operation *next_due(void) {
	struct operation *o = world.due;
	if (o && !(world.due = o->later))
		world.last = NULL;
	for (uint32_t i = 0; !o && world.callbacks && (world.lost || world.state != JOINED) && i < world.count; i++)
		if (world.operations[i].then && world.operations[i].stage != UNUSED)
			o = &world.operations[i];
	return o;
}

/* attend receives messages until an operation is due. */
static void attend(void) {
	world.reading = 1;
	while (!world.due && !world.lost && world.state == JOINED) {
		struct pollfd fds[] = {{world.fd, POLLIN, 0}, {world.bell, POLLIN, 0}};
		uint64_t rings;
		int none = 0;
		if (receive(MSG_DONTWAIT, &none) || !none)
			continue;
		world.polling = 1;
		let_go();
		int wrong = poll(fds, 2, -1) < 0 && errno != EINTR ? errno : 0;
		acquire();
		world.polling = 0;
		if (fds[1].revents)
			(void)!read(world.bell, &rings, sizeof rings);
		if (wrong)
			lose(GORUN_LOST, "wait for gorun's daemon: %s", strerror(wrong));
	}
	world.reading = 0;
	appoint();
}

static void *call_back(void *unused) {
	acquire();
	for (;;) {
		struct operation *o = next_due();
		if (o) {
			gorun_done then = o->then;
			void *argument = o->argument;
			o->then = NULL;
			world.callbacks--;
			let_go();
			then(argument);
			acquire();
		} else if (world.state != JOINED)
			break;
		else if (world.callbacks && !world.lost && !world.reading)
			attend();
		else
			pthread_cond_wait(&stirred, &lock);
	}
	let_go();
	return unused;
}

/* employ starts the thread that calls back. It blocks all signals, which are for the threads of the program. */
static int employ(void) {
	sigset_t all, before;
	if (world.calling)
		return GORUN_OK;
	if ((world.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
		return fail(GORUN_MEMORY, "call back: eventfd: %s", strerror(errno));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int wrong = pthread_create(&world.caller, NULL, call_back, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (wrong) {
		close(world.bell);
		world.bell = -1;
		return fail(GORUN_MEMORY, "call back: start thread: %s", strerror(wrong));
	}
	world.calling = 1;
	return GORUN_OK;
}

/* dismiss ends that thread, which first calls back for all operations. */
static void dismiss(void) {
	if (!world.calling)
		return;
	stir();
	let_go();
	pthread_join(world.caller, NULL);
	acquire();
	close(world.bell);
	world.bell = -1;
	world.calling = 0;
}

int gorun_then(gorun_handle handle, gorun_done then, void *argument) {
	int code = enter();
	struct operation *o;
	if (code)
		return code;
	if (!(o = held(handle, DONE)))
		return leave(GORUN_INVALID);
	if (!then || o->then)
		return leave(fail(GORUN_INVALID, then ? "call back: this operation has a function already" : "call back: no function"));
	if ((code = employ()))
		return leave(code);
	o->then = then, o->argument = argument;
	world.callbacks++;
	leave_to_callback();
	if (o->stage == DONE)
		end_operation(o);
	stir();
	return leave(GORUN_OK);
}

/* ---- kinds ---- */

int gorun_start_allreduce(const char *name, const void *in, void *out, int64_t count, gorun_type type, gorun_op op,
			  gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_ALLREDUCE, .name = name, .in = in, .out = out,
				  .dims = &count, .ndim = 1, .type = type, .op = op}, handle);
}

int gorun_start_broadcast(const char *name, void *data, int64_t count, gorun_type type, int root, gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_BROADCAST, .name = name, .in = data, .out = data,
				  .dims = &count, .ndim = 1, .type = type, .op = GORUN_SUM, .root = root}, handle);
}

int gorun_start_barrier(const char *name, gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_BARRIER, .name = name, .op = GORUN_SUM}, handle);
}

int gorun_start_allgather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type,
			  gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	return begin((gorun_call){.kind = GORUN_ALLGATHER, .name = name, .in = in,
				  .dims = dims, .ndim = 2, .type = type, .op = GORUN_SUM}, handle);
}

/* current_size returns the size of the set that splits are for. */
static int current_size(void) {
	acquire();
	int size = set_size(world.set);
	let_go();
	return size;
}

int gorun_start_alltoall(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits,
			 gorun_type type, gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	return begin((gorun_call){.kind = GORUN_ALLTOALL, .name = name, .in = in, .dims = dims, .ndim = 2, .type = type, .op = GORUN_SUM,
				  .splits = splits, .nsplits = splits ? current_size() : 0}, handle);
}

int gorun_start_reducescatter(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_op op,
			      gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	return begin((gorun_call){.kind = GORUN_REDUCESCATTER, .name = name, .in = in,
				  .dims = dims, .ndim = 2, .type = type, .op = op}, handle);
}

int gorun_start_reduce(const char *name, const void *in, int64_t count, gorun_type type, gorun_op op, int root,
		       gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_REDUCE, .name = name, .in = in,
				  .dims = &count, .ndim = 1, .type = type, .op = op, .root = root}, handle);
}

int gorun_start_gather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, int root,
		       gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	return begin((gorun_call){.kind = GORUN_GATHER, .name = name, .in = in,
				  .dims = dims, .ndim = 2, .type = type, .op = GORUN_SUM, .root = root}, handle);
}

int gorun_start_scatter(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type,
			int root, gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	const int32_t *own = root == gorun_rank() ? splits : NULL;
	return begin((gorun_call){.kind = GORUN_SCATTER, .name = name, .in = in, .dims = dims, .ndim = 2,
				  .type = type, .op = GORUN_SUM, .root = root,
				  .splits = own, .nsplits = own ? current_size() : 0}, handle);
}

int gorun_start_send(const char *name, const void *data, int64_t count, gorun_type type, int to, gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_SEND, .name = name, .in = data,
				  .dims = &count, .ndim = 1, .type = type, .op = GORUN_SUM, .root = to}, handle);
}

int gorun_start_recv(const char *name, void *data, int64_t count, gorun_type type, int from, gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_RECV, .name = name, .out = data,
				  .dims = &count, .ndim = 1, .type = type, .op = GORUN_SUM, .root = from}, handle);
}

/* number runs an operation whose result is a number. */
static int number(gorun_call c, int *n) {
	gorun_handle h = 0;
	gorun_result r;
	int code = n ? begin(c, &h) : fail(GORUN_INVALID, "submit %s: no place for the answer", kinds[(int)c.kind]);
	if (code || (code = gorun_wait(h, &r)))
		return code;
	if (r.counts)
		*n = (int)r.counts[0];
	return gorun_release(&r);
}

int gorun_join(int *last) { return number((gorun_call){.kind = GORUN_JOIN, .name = "join", .op = GORUN_SUM}, last); }

int gorun_add_set(const int *ranks, int count, int *set) {
	int code;
	if (count < 1 || !ranks)
		return fail(GORUN_INVALID, "add process set: %d ranks", count);
	int32_t *list = malloc(sizeof *list * (size_t)count);
	if (!list)
		return fail(GORUN_MEMORY, "add process set: out of memory");
	for (int i = 0; i < count; i++)
		list[i] = ranks[i];
	code = number((gorun_call){.kind = GORUN_ADD_GROUP, .name = "process sets", .op = GORUN_SUM, .splits = list, .nsplits = count}, set);
	free(list);
	return code;
}

int gorun_remove_set(int set) {
	gorun_handle h = 0;
	int code = begin((gorun_call){.kind = GORUN_REMOVE_GROUP, .name = "process sets", .op = GORUN_SUM, .root = set}, &h);
	return code ? code : gorun_wait(h, NULL);
}

int gorun_use_set(int set) {
	int code = enter();
	if (code)
		return code;
	if (set < 0 || !set_size((uint32_t)set))
		return leave(fail(GORUN_INVALID, "use process set: there is none with number %d", set));
	world.set = (uint32_t)set;
	return leave(GORUN_OK);
}

int gorun_use_wire(gorun_wire wire) {
	int code = enter();
	if (code)
		return code;
	if (wire < GORUN_WIRE_DEFAULT || wire > GORUN_WIRE_INT8)
		return leave(fail(GORUN_INVALID, "use wire compression: unknown number %d", (int)wire));
	world.wire = (int)wire;
	return leave(GORUN_OK);
}

/* then_wait takes a pointer to the handle, because C does not define the order in which arguments are evaluated. */
static int then_wait(int code, const gorun_handle *handle, gorun_result *result) {
	return code || *handle == MET ? code : gorun_wait(*handle, result);
}

int gorun_allreduce(const char *name, const void *in, void *out, int64_t count, gorun_type type, gorun_op op) {
	gorun_handle h = 0;
	gorun_call c = {.kind = GORUN_ALLREDUCE, .name = name, .in = in, .out = out, .dims = &count, .ndim = 1, .type = type, .op = op,
			.set = CURRENT, .wire = (gorun_wire)CURRENT, .prescale = 1, .postscale = 1};
	return then_wait(start(c, 1, &h), &h, NULL);
}

int gorun_broadcast(const char *name, void *data, int64_t count, gorun_type type, int root) {
	gorun_handle h = 0;
	return then_wait(gorun_start_broadcast(name, data, count, type, root, &h), &h, NULL);
}

int gorun_barrier(const char *name) {
	gorun_handle h = 0;
	return then_wait(gorun_start_barrier(name, &h), &h, NULL);
}

int gorun_allgather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_allgather(name, in, rows, width, type, &h), &h, result);
}

int gorun_alltoall(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type,
		   gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_alltoall(name, in, rows, width, splits, type, &h), &h, result);
}

int gorun_reducescatter(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_op op,
			gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_reducescatter(name, in, rows, width, type, op, &h), &h, result);
}

int gorun_reduce(const char *name, const void *in, int64_t count, gorun_type type, gorun_op op, int root, gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_reduce(name, in, count, type, op, root, &h), &h, result);
}

int gorun_gather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, int root, gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_gather(name, in, rows, width, type, root, &h), &h, result);
}

int gorun_scatter(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type, int root,
		  gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_scatter(name, in, rows, width, splits, type, root, &h), &h, result);
}

int gorun_send(const char *name, const void *data, int64_t count, gorun_type type, int to) {
	gorun_handle h = 0;
	return then_wait(gorun_start_send(name, data, count, type, to, &h), &h, NULL);
}

int gorun_recv(const char *name, void *data, int64_t count, gorun_type type, int from) {
	gorun_handle h = 0;
	return then_wait(gorun_start_recv(name, data, count, type, from, &h), &h, NULL);
}

/* ---- the world ---- */

/* place reads a number of the world, which WELCOME sets. */
static int place(const int *number) {
	acquire();
	int n = *number;
	let_go();
	return n;
}

int gorun_joined(void) { return place(&world.state) == JOINED; }
int gorun_rank(void) { return place(&world.rank); }
int gorun_size(void) { return place(&world.size); }
int gorun_local_rank(void) { return place(&world.local_rank); }
int gorun_local_size(void) { return place(&world.local_size); }
int gorun_cross_rank(void) { return place(&world.cross_rank); }
int gorun_cross_size(void) { return place(&world.cross_size); }

/* hello writes the first message from the environment. */
static int hello(unsigned char *b, int companion) {
	const char *token = getenv("GORUN_TOKEN"), *rank = getenv("GORUN_PROCESS");
	if (!token || !rank || strlen(token) != 64)
		return fail(GORUN_INVALID, "join world: GORUN_TOKEN or GORUN_PROCESS is missing or wrong");
	memset(b, 0, 64);
	memcpy(b, "GORUNRK1", 8);
	put32(b + 8, VERSION);
	put32(b + 12, (uint32_t)strtoul(rank, NULL, 10));
	put32(b + 16, (uint32_t)getpid());
	put32(b + 20, companion ? COMPANION : 0);
	for (int i = 0; i < 32; i++) {
		char digits[3] = {token[2 * i], token[2 * i + 1], 0}, *end;
		b[24 + i] = (unsigned char)strtoul(digits, &end, 16);
		if (*end)
			return fail(GORUN_INVALID, "join world: GORUN_TOKEN is not hexadecimal");
	}
	return GORUN_OK;
}

static int dial(const char *name) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	if (n + 1 > sizeof address.sun_path)
		return fail(GORUN_INVALID, "join world: GORUN_SOCKET is too long");
	memcpy(address.sun_path + 1, name, n);
	world.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (world.fd < 0)
		return fail(GORUN_LOST, "join world: socket: %s", strerror(errno));
	int failed;
	do
		failed = connect(world.fd, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
	while (failed && errno == EINTR);
	return failed ? fail(GORUN_LOST, "join world: connect to gorun's daemon: %s", strerror(errno)) : GORUN_OK;
}

/* drop frees what the session had. */
static void drop(void) {
	for (uint32_t i = 0; i < world.count; i++) {
		world.operations[i].staged = NULL; /* it goes with the arena */
		if (world.operations[i].stage != UNUSED)
			close_operation(&world.operations[i]);
	}
	for (size_t i = 0; i < world.arena.count; i++)
		discard(&world.arena.list[i]);
	for (size_t i = 0; i < world.results.count; i++)
		discard(&world.results.list[i]);
	for (size_t i = 0; i < world.seen.count; i++)
		discard(&world.seen.list[i]);
	for (uint32_t i = 0; world.table && i < SLOT_ROOM; i++)
		if (world.table[i]) {
			free(world.table[i]->name);
			free(world.table[i]);
		}
	free(world.table);
	if (world.slots)
		munmap(world.slots, world.slots_bytes);
	world.table = NULL, world.slots = NULL, world.slot_count = 0, world.left_slots = 0, world.slots_awaited = 0;
	free(world.sets);
	world.sets = NULL, world.set_count = 0, world.set = 0, world.wire = 0;
	if (world.operations)
		munmap(world.operations, MAX_IN_FLIGHT * sizeof *world.operations);
	free(world.arena.list);
	free(world.results.list);
	free(world.seen.list);
	free(world.in);
	free(world.out);
	world.operations = NULL, world.in = NULL, world.out = NULL, world.due = world.last = NULL, world.callbacks = 0;
	world.arena = world.results = world.seen = (struct regions){0};
	world.count = 0;
	if (world.fd >= 0)
		close(world.fd);
	if (world.doorbell >= 0)
		close(world.doorbell);
	world.fd = world.doorbell = -1;
}

static int welcomed(const void *unused) { return unused || world.size >= 1; }
static int slots_came(const void *unused) { return unused || !world.slots_awaited; }
static int said_goodbye(const void *unused) { return unused || world.goodbye; }

/* connect_daemon opens the session. */
static int connect_daemon(const char *name, int companion) {
	int code = GORUN_OK;
	cpu_set_t cpus;
	world.in = malloc(MAX_ANSWER);
	world.out = malloc(MAX_MESSAGE);
	if (!world.in || !world.out)
		return fail(GORUN_MEMORY, "join world: out of memory");
	if ((code = hello(world.out, companion)) || (code = dial(name)) || (code = send_message(64)) || (code = until(welcomed, NULL)))
		return code;
	if (world.batches && (code = send_pair(BATCH, 0)))
		return code;
	world.yields = sched_getaffinity(0, sizeof cpus, &cpus) || CPU_COUNT(&cpus) < world.local_size;
	if (!world.slots_awaited)
		return GORUN_OK;
	world.table = calloc(SLOT_ROOM, sizeof *world.table);
	code = world.table ? send_pair(SLOTS, 0) : fail(GORUN_MEMORY, "join world: out of memory");
	if (code || (code = until(slots_came, NULL)))
		return code;
	return world.slots ? hang_doorbell() : GORUN_OK;
}

static int join_world(int companion) {
	static int watching;
	const char *name = getenv("GORUN_SOCKET");
	int code = GORUN_OK;
	acquire();
	gorun_open_counters(); /* before handlers of fork want the lock, as it adds one */
	if (world.state != OUTSIDE && world.state != ENDED)
		code = fail(GORUN_INVALID, world.state == FORKED ? "join world: this process was forked after gorun_init"
								 : "join world: gorun_init was called already");
	else if (!watching && pthread_atfork(acquire, let_go, forked))
		code = fail(GORUN_MEMORY, "join world: out of memory");
	if (code) {
		let_go();
		return code;
	}
	watching = 1;
	world.lost = world.goodbye = 0;
	world.rank = world.local_rank = world.cross_rank = world.size = world.local_size = world.cross_size = -1;
	world.state = JOINING;
	unwaited.open = 0;
	if (name && *name) {
		code = connect_daemon(name, companion);
	} else {
		world.rank = world.local_rank = world.cross_rank = 0;
		world.size = world.local_size = world.cross_size = 1;
	}
	if (code) {
		drop();
		world.rank = world.local_rank = world.cross_rank = world.size = world.local_size = world.cross_size = -1;
	}
	__atomic_store_n(&world.state, code ? OUTSIDE : JOINED, __ATOMIC_RELAXED);
	let_go();
	return code;
}

int gorun_init(void) { return join_world(0); }
int gorun_init_companion(void) { return join_world(1); }

int gorun_finalize(void) {
	int code = GORUN_OK;
	acquire();
	if (world.state == ENDED) {
		let_go();
		return GORUN_OK;
	}
	if (world.state != JOINED)
		code = ready();
	else if (world.calling && pthread_equal(pthread_self(), world.caller))
		code = fail(GORUN_INVALID, "leave world: gorun_finalize inside of a function that gorun_then has named");
	if (code) {
		let_go();
		return code;
	}
	world.inside++;
	__atomic_store_n(&world.state, LEAVING, __ATOMIC_RELAXED);
	wake();
	dismiss();
	if (world.fd >= 0 && world.lost) /* there is no daemon to say goodbye to, and nothing to wait for */
		shutdown(world.fd, SHUT_RDWR);
	else if (world.fd >= 0 && !(code = send_pair(BYE, 0)))
		code = until(said_goodbye, NULL);
	while (world.inside > 1) /* the other threads notice that the session is over */
		pthread_cond_wait(&emptied, &lock);
	drop();
	world.inside = 0;
	world.state = ENDED;
	let_go();
	return code;
}

int gorun_library(void) { return GORUN_LIBRARY; }
