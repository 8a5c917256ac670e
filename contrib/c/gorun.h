/* gorun.h: collectives of a gorun job from C11 or C++, on Linux.
 *
 * Copy gorun.h, gorun.c and the directory session into your program. Compile gorun.c with it, without -ffast-math; it needs libc with
 * its threads (-pthread) and nothing else. Start the program with `gorun -np 4 ./program`. Started without gorun it is a world of one rank.
 *
 *     float *x = gorun_alloc(n * sizeof *x);
 *     if (gorun_allreduce("grad", x, x, n, GORUN_FLOAT32, GORUN_SUM)) fprintf(stderr, "%s\n", gorun_error());
 *
 * Functions return 0, or a gorun_code whose text gorun_error() has. Any thread may call them at any time, apart from
 * gorun_init and gorun_finalize, for which the others wait. Ranks meet by name: all ranks submit the same name, in any
 * order, and a rank may use a name again when gorun_wait or gorun_test has reported the end of the operation. A failed
 * operation leaves the job usable; GORUN_ABORTED and GORUN_LOST do not.
 *
 * What a rank has started goes on in gorun's daemon while the rank computes. gorun_allreduce, which waits, is the fastest for
 * a small tensor: the ranks of one host then reduce it by themselves, one thread of each at a time.
 *
 * Memory from gorun_alloc is shared with gorun's daemon and is used in place. Any other memory works too, at the cost
 * of a copy in and a copy out. Until an operation is complete its memory must not be touched, nor freed.
 *
 * A process that was forked after gorun_init has no session: all functions return GORUN_INVALID there, and the memory
 * from gorun_alloc is the parent's. Fork before gorun_init, or exec.
 */
#ifndef GORUN_H
#define GORUN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default) /* what a shared library exports */

typedef enum {
	/* begin table: codes GORUN_ */
	GORUN_OK = 0,
	GORUN_INVALID = 1, /* this rank's own arguments, or a function out of turn */
	GORUN_MISMATCH = 2, /* ranks submitted different things under one name */
	GORUN_SHUTDOWN = 3, /* a rank left before it contributed */
	GORUN_ABORTED = 4, /* the world has ended: a host died */
	GORUN_INTERNAL = 5,
	/* end table */
	GORUN_LOST = 6, /* no connection to the daemon */
	GORUN_MEMORY = 7
} gorun_code;

typedef enum {
	/* begin table: elements GORUN_ */
	GORUN_UINT8 = 1,
	GORUN_INT8 = 2,
	GORUN_UINT16 = 3,
	GORUN_INT16 = 4,
	GORUN_UINT32 = 5,
	GORUN_INT32 = 6,
	GORUN_UINT64 = 7,
	GORUN_INT64 = 8,
	GORUN_FLOAT16 = 9,
	GORUN_BFLOAT16 = 10,
	GORUN_FLOAT32 = 11,
	GORUN_FLOAT64 = 12,
	GORUN_BOOL = 13,
	GORUN_COMPLEX64 = 14,
	GORUN_COMPLEX128 = 15,
	/* end table */
} gorun_type;

typedef enum {
	/* begin table: reductions GORUN_ */
	GORUN_AVERAGE = 0,
	GORUN_SUM = 1,
	GORUN_ADASUM = 2, /* of allreduce, for floats */
	GORUN_MIN = 3,
	GORUN_MAX = 4,
	GORUN_PRODUCT = 5,
	GORUN_BIT_AND = 6, /* these six for integers and bool */
	GORUN_BIT_OR = 7,
	GORUN_BIT_XOR = 8,
	GORUN_LOGICAL_AND = 9,
	GORUN_LOGICAL_OR = 10,
	GORUN_LOGICAL_XOR = 11,
	/* end table */
} gorun_op;

/* How sums and averages of float32 and float64 travel between hosts. */
typedef enum {
	/* begin table: codings GORUN_WIRE_ */
	GORUN_WIRE_DEFAULT = 0, /* as the job says: gorun --wire-compression */
	GORUN_WIRE_NONE = 1,
	GORUN_WIRE_FLOAT16 = 2,
	GORUN_WIRE_BFLOAT16 = 3,
	GORUN_WIRE_INT8 = 4,
	/* end table */
} gorun_wire;

typedef enum {
	/* begin table: kinds GORUN_ */
	GORUN_ALLREDUCE = 1,
	GORUN_ALLGATHER = 2,
	GORUN_BROADCAST = 3,
	GORUN_BARRIER = 4,
	GORUN_ALLTOALL = 5,
	GORUN_REDUCESCATTER = 6,
	GORUN_ADD_GROUP = 7,
	GORUN_REMOVE_GROUP = 8,
	GORUN_JOIN = 9,
	GORUN_REDUCE = 10,
	GORUN_GATHER = 11,
	GORUN_SCATTER = 12,
	GORUN_SEND = 13,
	GORUN_RECV = 14,
	GORUN_PEEK = 15,
	/* end table */
} gorun_kind;

/* An operation under way, valid until gorun_wait. */
typedef int64_t gorun_handle;

/* The result of an operation that brings its own memory. It may be read, not written, until gorun_release. */
typedef struct {
	const void *data;
	size_t bytes;
	int64_t rows;          /* of the result */
	const int64_t *counts; /* how many of them came from each rank; NULL for reducescatter and reduce */
	gorun_handle handle;
} gorun_result;

/* Joins the job, and waits until all hosts have started. GORUN_LOST: no daemon; GORUN_INVALID: called twice. After
 * gorun_finalize it joins the next world of an elastic job. */
int gorun_init(void);

/* Joins beside another session of this process, such as Python's: this library then has memory and operations of its own in
 * the same rank, and leaves with that session at the latest. Process sets and gorun_join belong to that session, apart from
 * sets that only their members declare. Both sessions share names: a name in flight in one is refused in the other.
 * GORUN_INVALID: there is no such session. */
int gorun_init_companion(void);

/* Leaves the job: what other ranks still want from this one fails, and so does what other threads wait for (GORUN_SHUTDOWN).
 * All memory from gorun_alloc is gone afterwards. */
int gorun_finalize(void);

/* The text of the last failure in this thread; it stays until the next one. */
const char *gorun_error(void);

/* Reports whether this process has joined, and has not left. */
int gorun_joined(void);

/* The world; -1 before gorun_init. "Local" counts the ranks of this host, "cross" the hosts. */
int gorun_rank(void);
int gorun_size(void);
int gorun_local_rank(void);
int gorun_local_size(void);
int gorun_cross_rank(void);
int gorun_cross_size(void);

/* Zeroed memory that operations use in place, aligned to 64 bytes; NULL on failure. */
void *gorun_alloc(size_t bytes);
void *gorun_alloc_raw(size_t bytes); /* not zeroed: it may hold what was there before */
int gorun_free(void *memory);

/* Tensors are `count` elements, or `rows` of `width` elements each; the first dimension of the rank protocol is rows.
 * `in` and `out` are the same memory or do not overlap. Memory is aligned to its element. `root` is a rank.
 *
 * These return when the operation is complete. */
int gorun_allreduce(const char *name, const void *in, void *out, int64_t count, gorun_type type, gorun_op op);
int gorun_broadcast(const char *name, void *data, int64_t count, gorun_type type, int root);
int gorun_barrier(const char *name);

/* Rows of all ranks, in the order of ranks. Ranks may bring different numbers of rows. */
int gorun_allgather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_result *result);

/* splits[r] rows go to rank r, from the first row on; NULL is the same number for all. */
int gorun_alltoall(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type,
		   gorun_result *result);

/* This rank's share of the rows of the sum; the first ranks get one more row if they do not divide. */
int gorun_reducescatter(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_op op,
			gorun_result *result);

/* The reduction of all ranks at root; others get no bytes. */
int gorun_reduce(const char *name, const void *in, int64_t count, gorun_type type, gorun_op op, int root, gorun_result *result);

/* Rows of all ranks at root, in the order of ranks; others get no bytes. */
int gorun_gather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, int root, gorun_result *result);

/* root's rows: splits[r] of them for rank r, or as many for each, and one more for the first ones, if splits is NULL. The
 * others bring no rows, but the width. */
int gorun_scatter(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type, int root,
		  gorun_result *result);

/* From one rank to another, which both name the other and the operation. Both end together: ranks that send to each other
 * start before they wait. */
int gorun_send(const char *name, const void *data, int64_t count, gorun_type type, int to);
int gorun_recv(const char *name, void *data, int64_t count, gorun_type type, int from);

/* Declares that this rank has no more data: the allreduces of others go on with zeros for it until all ranks have joined.
 * *last is the last rank that did. */
int gorun_join(int *last);

/* Process sets: some of the ranks, with operations of their own. All ranks of the world add and remove sets, one at a time
 * and in the same order. After gorun_use_set this rank submits operations of that set, on all threads, except by
 * gorun_start; 0 is the world. Roots are ranks of the world; splits and counts are in the order of the set's ranks. */
int gorun_add_set(const int *ranks, int count, int *set);
int gorun_remove_set(int set);
int gorun_use_set(int set);

/* Sets how sums that this rank submits from now on travel between hosts; all ranks set the same. */
int gorun_use_wire(gorun_wire wire);

/* The same, started: exactly one gorun_wait must follow for each handle. */
int gorun_start_allreduce(const char *name, const void *in, void *out, int64_t count, gorun_type type, gorun_op op,
			  gorun_handle *handle);
int gorun_start_broadcast(const char *name, void *data, int64_t count, gorun_type type, int root, gorun_handle *handle);
int gorun_start_barrier(const char *name, gorun_handle *handle);
int gorun_start_allgather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type,
			  gorun_handle *handle);
int gorun_start_alltoall(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits,
			 gorun_type type, gorun_handle *handle);
int gorun_start_reducescatter(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_op op,
			      gorun_handle *handle);

int gorun_start_reduce(const char *name, const void *in, int64_t count, gorun_type type, gorun_op op, int root,
		       gorun_handle *handle);
int gorun_start_gather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, int root,
		       gorun_handle *handle);
int gorun_start_scatter(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type,
			int root, gorun_handle *handle);
int gorun_start_send(const char *name, const void *data, int64_t count, gorun_type type, int to, gorun_handle *handle);
int gorun_start_recv(const char *name, void *data, int64_t count, gorun_type type, int from, gorun_handle *handle);

/* Any operation, with all its options. Begin with gorun_call_of, and set what the kind needs; the rules of the functions
 * above hold for it. */
typedef struct {
	size_t size; /* of this struct */
	gorun_kind kind;
	gorun_type type;
	gorun_op op;
	gorun_wire wire;
	const char *name;
	const void *in;
	void *out;             /* of allreduce, broadcast and recv; results of the others have memory of their own */
	const int64_t *dims;   /* the shape, which ranks compare; the first dimension is rows */
	int ndim;              /* up to 32 */
	int root;              /* remove group: the group */
	int set;               /* process set; with GORUN_ADD_GROUP from GORUN_DECLARED on: a set that its members alone declare */
	int nsplits;           /* as many as the set has ranks */
	const int32_t *splits; /* alltoall, scatter: rows for each rank; add group: its ranks */
	double prescale, postscale; /* reductions: factors of the input and of the result */
	int follows;                /* allreduce: it begins, or fails, with a later one that lists it in followers */
	int nfollowers;
	const gorun_handle *followers;
} gorun_call;

#define GORUN_DECLARED (1 << 30)

static inline gorun_call gorun_call_of(gorun_kind kind, const char *name) {
	gorun_call c;
	memset(&c, 0, sizeof c);
	c.size = sizeof c;
	c.kind = kind;
	c.op = GORUN_SUM;
	c.name = name;
	c.prescale = c.postscale = 1;
	return c;
}

/* Starts it. An operation with followers is submitted after them, and they fail if it does. Lists may be freed at once. */
int gorun_start(const gorun_call *call, gorun_handle *handle);

/* Calls done(arg) once, on a thread of this library, when gorun_wait on the handle would return at once: at the end of the
 * operation, good or bad, or of the session. Only done, or what it causes, may wait for the handle then. While done runs no other
 * callback does, so long work belongs elsewhere. */
typedef void (*gorun_done)(void *arg);
int gorun_then(gorun_handle handle, gorun_done done, void *arg);

/* Sets *done to whether the operation has ended, well or not, without waiting. */
int gorun_test(gorun_handle handle, int *done);

/* Waits for the end of an operation and returns how it ended. result is NULL for the kinds without one. Of a join, counts[0]
 * is the last rank; of add group, the set; of peek, counts has `rows` ranks. */
int gorun_wait(gorun_handle handle, gorun_result *result);

/* Gives back the memory of a result. */
int gorun_release(gorun_result *result);

/* Changes when programs that were compiled with an earlier gorun.h would not work. */
#define GORUN_LIBRARY 1
int gorun_library(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
