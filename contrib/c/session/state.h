/* A part of gorun.c: what the library knows: operations, slots, memory, and the world they belong to. */

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
	int pinned;           /* a device sees it: it stays */
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
	size_t bytes, stride;
	uint64_t use;
	unsigned char *words, *buffers;
	int wide, belt;
	uint64_t shape; /* hash */
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
	gorun_piece *pieces;   /* in place of target */
	int npieces;
	size_t bytes;
	uint32_t took;   /* microseconds from when all ranks had submitted their parts */
	uint32_t region; /* of the result */
	const void *data;
	size_t data_bytes;
	int64_t rows;
	int64_t *counts;
	int64_t ncounts;
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

/* What a binding asks for: news of hosts, and when operations have ended. */
struct news {
	uint64_t flags, stamp;
};
struct end {
	int64_t handle, stamp, took;
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
	int alone; /* the process was forked in a world of one, and may begin another */
	int rank, size, local_rank, local_size, cross_rank, cross_size;
	uint32_t epoch;
	struct news *news; /* not asked for yet */
	size_t news_count;
	struct end *ends; /* the same; room is 0 while no one asks */
	size_t ends_count, ends_room;
	int kept; /* the daemon knows that something was committed in this world */
	int lost; /* a gorun_code: why every call fails from now on, with lost_text */
	char lost_text[512];
	struct regions arena, results, seen; /* seen: the memory of other ranks */
	struct regions left;                 /* of earlier worlds, with blocks in use */
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
	int mail_awaited; /* and MAILBOX, whose answer has not come */
	unsigned char *mailbox; /* NULL: messages go by the socket */
	uint64_t mailbox_bytes;
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

/* leave_mailbox unmaps the mailbox. */
static void leave_mailbox(void) {
	if (world.mailbox)
		munmap(world.mailbox, world.mailbox_bytes);
	world.mailbox = NULL;
}

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
