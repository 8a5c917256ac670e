/* gorun.h: collectives of a gorun job from C11 or C++, on Linux.
 *
 * Copy gorun.h, gorun.c and the directory session into your program. Compile gorun.c with it, without -ffast-math; it needs libc with
 * its threads (-pthread) and nothing else. Start the program with `gorun -np 4 ./program`. Started without gorun it is a world of one rank.
 *
 *     float *x = gorun_alloc(n * sizeof *x);
 *     if (gorun_allreduce("grad", x, x, n, GORUN_FLOAT32, GORUN_SUM)) fprintf(stderr, "%s\n", gorun_error());
 *
 * Functions return 0, or a gorun_code; gorun_error() returns its text. Any thread may call them at any time, apart from
 * gorun_init and gorun_finalize, for which the others wait. Ranks match operations by name: all ranks submit the
 * same names, in any order. A rank may use a name again once gorun_wait or gorun_test has reported the end of its operation.
 * The job stays usable after a failed operation, but not after GORUN_ABORTED or GORUN_LOST.
 *
 * An operation that a rank starts runs in gorun's daemon while the rank computes. For a small tensor gorun_allreduce, which
 * waits, is fastest: the ranks of one host then reduce it without the daemon, one thread of each at a time.
 *
 * Memory from gorun_alloc is shared with gorun's daemon and is used in place. Any other memory works too, at the cost
 * of a copy in and a copy out. Until an operation is complete its memory must not be touched, nor freed.
 *
 * A process that was forked after gorun_init has no session: all functions return GORUN_INVALID there, and the memory
 * from gorun_alloc is the parent's. Fork before gorun_init, or exec. Outside of a job, the process may call gorun_init again.
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
	GORUN_MEMORY = 7,
	GORUN_BUSY = 8 /* an operation of this name is in flight */
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
	GORUN_FLOAT8_E4M3FN = 16,
	GORUN_FLOAT8_E4M3FNUZ = 17,
	GORUN_FLOAT8_E5M2 = 18,
	GORUN_FLOAT8_E5M2FNUZ = 19,
	GORUN_FLOAT8_E8M0FNU = 20,
	GORUN_COMPLEX32 = 21,
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

/* The result of an operation, in memory of the library: read it, but do not write it, until gorun_release. */
typedef struct {
	const void *data;
	size_t bytes;
	int64_t rows;          /* number of rows of the result */
	const int64_t *counts; /* how many rows came from each rank; NULL for reducescatter and reduce */
	gorun_handle handle;
} gorun_result;

/* Joins the job, and waits until all hosts have started. GORUN_LOST: no daemon; GORUN_INVALID: called twice. After
 * gorun_finalize it joins the next world of an elastic job. */
int gorun_init(void);

/* Leaves the job. Operations that need this rank fail on the other ranks. Waits of other threads here return
 * GORUN_SHUTDOWN. Memory from gorun_alloc stays until gorun_free; operations of a later
 * world copy it, as any other memory. */
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
void *gorun_alloc_raw(size_t bytes); /* not zeroed: its content is undefined */
int gorun_free(void *memory);

/* Tensors are `count` elements, or `rows` of `width` elements each; the first dimension of the rank protocol is rows.
 * `in` and `out` are the same memory or do not overlap. Memory is aligned to its element. `root` is a rank.
 *
 * These return when the operation is complete. */
int gorun_allreduce(const char *name, const void *in, void *out, int64_t count, gorun_type type, gorun_op op);
int gorun_broadcast(const char *name, void *data, int64_t count, gorun_type type, int root);
int gorun_barrier(const char *name);

/* Joins the rows of all ranks, in rank order. Ranks may pass different numbers of rows. */
int gorun_allgather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_result *result);

/* Sends splits[r] rows to rank r: the first rows to rank 0, the next ones to rank 1. If splits is NULL, all ranks get the same
 * number. */
int gorun_alltoall(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type,
		   gorun_result *result);

/* Reduces over all ranks; the result is this rank's share of the rows. If the rows do not divide evenly, each of the first
 * ranks gets one more. */
int gorun_reducescatter(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_op op,
			gorun_result *result);

/* Reduces over all ranks; root gets the result, the others get no bytes. */
int gorun_reduce(const char *name, const void *in, int64_t count, gorun_type type, gorun_op op, int root, gorun_result *result);

/* Joins the rows of all ranks, in rank order; root gets the result, the others get no bytes. */
int gorun_gather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, int root, gorun_result *result);

/* Distributes root's rows: rank r gets splits[r] of them. If splits is NULL, all get equal shares, and each of the first ranks
 * one more row if they do not divide evenly. The other ranks pass the width, and no rows. */
int gorun_scatter(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type, int root,
		  gorun_result *result);

/* Move a tensor from one rank to another. Both pass the other's rank and the same name. The calls return together, so two ranks
 * that send to each other must start both operations before they wait. */
int gorun_send(const char *name, const void *data, int64_t count, gorun_type type, int to);
int gorun_recv(const char *name, void *data, int64_t count, gorun_type type, int from);

/* Declares that this rank has no more data, and waits until all ranks have joined. Until then this rank contributes zeros to
 * the allreduces of the others. *last is the last rank that joined. */
int gorun_join(int *last);

/* A process set is some of the ranks, with operations of their own. All ranks of the world add and remove sets, one at a time
 * and in the same order. gorun_use_set selects the set of all operations that this rank then submits, on all threads, except by
 * gorun_start; 0 is the world. Roots are ranks of the world; splits and counts are in the order of the set's ranks. */
int gorun_add_set(const int *ranks, int count, int *set);
int gorun_remove_set(int set);
int gorun_use_set(int set);

/* Chooses how sums that this rank submits from now on travel between hosts. All ranks must choose the same. */
int gorun_use_wire(gorun_wire wire);

/* Start the operations above and return at once. Call gorun_wait exactly once for each handle. */
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

/* A piece of a tensor that lies in several places. */
typedef struct {
	const void *in;
	void *out;
	size_t bytes;
} gorun_piece;

/* Any operation, with all its options. Begin with gorun_call_of, then set what the kind needs. The rules of the functions above
 * apply. */
typedef struct {
	size_t size; /* of this struct */
	gorun_kind kind;
	gorun_type type;
	gorun_op op;
	gorun_wire wire;
	const char *name;
	const void *in;
	void *out;             /* allreduce, broadcast, recv; the other kinds bring memory for their results */
	const int64_t *dims;   /* the shape, which ranks compare; the first dimension is rows */
	int ndim;              /* up to 32 */
	int root;              /* remove group: the group */
	int set;               /* process set; add group: from GORUN_DECLARED on, a set that only its members declare */
	int nsplits;           /* as many as the set has ranks */
	const int32_t *splits; /* alltoall, scatter: rows for each rank; add group: its ranks */
	double prescale, postscale; /* reductions: factors of the input and of the result */
	int npieces; /* allreduce, broadcast: in place of in and out, pieces that make up the tensor one after the other */
	const gorun_piece *pieces;
	int follows;                /* allreduce: a later one lists it in followers; it begins when that succeeds, and fails with it */
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

/* Starts the operation. Submit followers before the operation that lists them; they fail if it does. The caller may free all
 * lists at once. */
int gorun_start(const gorun_call *call, gorun_handle *handle);

/* Calls done(arg) once, on a thread of this library, when gorun_wait for the handle would return at once: when the operation
 * has ended, successful or not, or the session has. From then on only done, or code that it triggers, may wait for the handle.
 * Callbacks run one at a time, so do long work elsewhere. */
typedef void (*gorun_done)(void *arg);
int gorun_then(gorun_handle handle, gorun_done done, void *arg);

/* Sets *done to whether the operation has ended, successful or not. It does not wait. */
int gorun_test(gorun_handle handle, int *done);

/* Does what gorun_test does, but waits for the end so many seconds, and no longer than until a signal has come to this thread. */
int gorun_test_for(gorun_handle handle, double seconds, int *done);

/* Waits for the end of an operation and returns its code. result is NULL for kinds without a result. After a join, counts[0] is
 * the last rank; after add group, the set; after peek, counts holds `rows` ranks. */
int gorun_wait(gorun_handle handle, gorun_result *result);

/* Gives back the memory of a result. */
int gorun_release(gorun_result *result);

/* The version of this interface. It changes when programs compiled with an earlier gorun.h would no longer work. */
#define GORUN_LIBRARY 2
int gorun_library(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
