/* A part of gorun.c: the messages of the rank protocol: types, offsets, and the kinds of operations. */

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
	MAILBOX = 15, /* both ways */
	MAIL = 16,
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
	COUNT_PAGE_BYTES = 4096, /* size of the page */
	COUNT_BEGAN = 0, /* offsets in the page: stamp of when the rank began to count */
	COUNT_STEPS = 8,
	COUNT_STEP_TIME = 16, /* length of the last step */
	COUNT_DATA = 24, /* waiting for input data */
	COUNT_OTHERS = 32, /* waiting for other ranks */
	COUNT_COMMUNICATION = 40, /* waiting while an operation ran */
	COUNT_HIDDEN = 48, /* operations that ran while the rank did something else */
	COUNT_OPERATIONS = 56,
	COUNT_ACTIVITY = 64,
	COUNT_SINCE = 72, /* stamp of when the activity began */
	COUNT_SIGNAL = 80, /* number of the signal that asks for stacks */
	COUNT_MAIN_SIGNAL = 88, /* number of the signal that asks for the main thread's stack alone */
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
#define NO_REGION 4294967295u /* the number of no region */
#define SLOTS_THERE 2 /* flag of WELCOME: there are slots */
#define BATCH_TAKEN 4 /* flag of WELCOME: the daemon understands BATCH */
#define TAKES_SLOT 128 /* added to SUBMIT's kind: the rank would take a slot */
#define TAKES_WIDE 128 /* added to SUBMIT's number of dimensions: also a wide slot */
#define TAKES_BELT 64 /* added to SUBMIT's number of dimensions: also a slot on the belt */
#define BELT_THERE 8 /* flag of WELCOME: there is a belt */
#define MAIL_TAKEN 16 /* flag of WELCOME: the daemon understands MAILBOX */
#define WIRE_BITS 4 /* bits of SUBMIT's reduction; those above are the coding */
/* end table */
/* begin table: limits define */
#define MAX_MESSAGE 65536 /* bytes of a message from a rank */
#define MAX_ANSWER 262144 /* bytes of a message from the daemon: numbers for 16384 ranks */
#define MAX_NAME 4096 /* bytes of a name */
#define MAX_DIMS 32 /* dimensions of a tensor */
#define MAX_IN_FLIGHT 65536 /* operations of a rank */
/* end table */
/* begin table: mailbox define */
#define MAILBOX_BYTES 131072 /* bytes of messages in a mailbox, a power of two */
#define MAILBOX_PUT 0 /* offsets in the mailbox: how many bytes the rank has put there */
#define MAILBOX_TAKEN 64 /* how many the daemon has taken */
#define MAILBOX_ASLEEP 72 /* the daemon wants to be woken */
#define MAILBOX_DATA 128 /* the messages */
/* end table */
/* begin table: slots define */
#define LINE 64 /* bytes of a cache line */
#define RANK_LEFT 1 /* in a rank's line: the rank has left */
#define WORLD_GONE 2 /* in a rank's line: the world has ended */
#define WIDE 1 /* added to the offset of a slot: it is a wide one */
#define ON_BELT 2 /* added to the offset of a slot: it is on the belt */
#define MAX_SLOTS 4096 /* names that have a slot */
#define MAX_SLOT_RANKS 16 /* ranks of a host that has slots */
#define MAX_SLOT_BYTES 65536 /* bytes of a tensor in a slot */
#define MAX_WIDE_BYTES 33554432 /* bytes of a tensor in a wide slot */
#define MAX_CROWD_BYTES 4194304 /* the same, if ranks outnumber CPUs */
#define BELT 33554432 /* offset of the belt in the memory of slots */
#define MAX_BELT_BYTES 1073741824 /* bytes of a tensor in a slot on the belt */
#define BELT_PART 524288 /* bytes of a part of a tensor on the belt */
#define BELT_DEPTH 3 /* parts in the area of a rank */
#define BELT_AREA 2363392 /* bytes of the area of a rank */
#define BELT_LEFT 1 /* at the start of an area: the rank has given up */
#define BELT_FAILED 2 /* at the start of an area: it has given up because another rank had */
#define BELT_FILLED 64 /* offset in an area: number of parts that the rank has put there */
#define BELT_REDUCED 72 /* offset in an area: number of parts whose share the rank has reduced */
#define BELT_BUFFERS 4096 /* offset in an area: the parts */
#define BELT_RESULTS 1576960 /* offset in an area: the reduced shares */
#define BELT_SHARE 262144 /* bytes of a share at most */
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
	1, /* float8_e4m3fn */
	1, /* float8_e4m3fnuz */
	1, /* float8_e5m2 */
	1, /* float8_e5m2fnuz */
	1, /* float8_e8m0fnu */
	4, /* complex32 */
	/* end table */
};

__attribute__((visibility("hidden"))) size_t gorun_element_bytes(int type);

/* gorun_element_bytes is for the other files of the library. */
size_t gorun_element_bytes(int type) { return type > 0 && (size_t)type < sizeof sizes ? sizes[type] : 0; }

static const char *const kinds[] = {"",		     "allreduce",	   "allgather", "broadcast", "barrier", "alltoall", "reducescatter",
				    "add process set", "remove process set", "join",	  "reduce",    "gather",  "scatter",  "send",
				    "recv",		     "peek"};

static int has_tensor(int kind) { return kind != BARRIER && kind != ADD_GROUP && kind != REMOVE_GROUP && kind != JOIN && kind != PEEK; }
static int reduces(int kind) { return kind == ALLREDUCE || kind == REDUCESCATTER || kind == REDUCE; }
static int has_numbers(int kind) { return kind == ADD_GROUP || kind == JOIN || kind == PEEK; }
static int has_result(int kind) { return has_tensor(kind) && kind != ALLREDUCE && kind != BROADCAST && kind != SEND && kind != RECV; }

static int has_target(int kind) { return kind == ALLREDUCE || kind == BROADCAST || kind == RECV; }
