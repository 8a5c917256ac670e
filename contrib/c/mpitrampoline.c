/* MPI for programs of JAX: jaxlib contains MPItrampoline, which takes its MPI from the library that MPITRAMPOLINE_LIB names
 * (gorun --jax-engine gorun). These are the functions that XLA's collectives call, and a few like them, on gorun's engine. Any
 * other prints its name and ends the program. A communicator is a process set. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "gorun.h"
#include "mpitrampoline_names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Handles are pointers or numbers, as wide as a pointer; constants are read through a pointer of their own type, which may be
 * narrower. */
typedef uintptr_t handle;

/* ---- constants ---- */

#define NUMBER(name) NUMBER_##name,
#define CONSTANT(name) EXPORT uint64_t MPIABI_##name = 1000 + NUMBER_##name;
enum { OTHER_CONSTANTS(NUMBER) };
OTHER_CONSTANTS(CONSTANT)

#define UNDEFINED (-601)
#define PROC_NULL (-2)
#define ANY (-1)
#define IN_PLACE ((const void *)1)
#define WORLD 1
#define ALONE 2 /* MPI_COMM_SELF */
#define SETS (1 << 20) /* where the numbers of process sets begin: torch.distributed counts from 0 */
#define MULTIPLE 3

EXPORT uint64_t MPIABI_SUCCESS = 0, MPIABI_BOTTOM = 0, MPIABI_STATUS_IGNORE = 0, MPIABI_STATUSES_IGNORE = 0;
EXPORT uint64_t MPIABI_COMM_NULL = 0, MPIABI_COMM_WORLD = WORLD, MPIABI_COMM_SELF = ALONE, MPIABI_REQUEST_NULL = 0;
EXPORT uint64_t MPIABI_THREAD_SINGLE = 0, MPIABI_THREAD_FUNNELED = 1, MPIABI_THREAD_SERIALIZED = 2, MPIABI_THREAD_MULTIPLE = MULTIPLE;
EXPORT uint64_t MPIABI_IN_PLACE = 1;
EXPORT int64_t MPIABI_UNDEFINED = UNDEFINED, MPIABI_PROC_NULL = PROC_NULL, MPIABI_ANY_SOURCE = ANY, MPIABI_ANY_TAG = ANY;

/* ---- the version of the ABI ---- */

/* MPItrampoline takes a library of its own major number whose minor number is not smaller than its own. jaxlib does not export
 * its number. It looks up all names that it needs, and ends the program if one is missing. */
EXPORT int mpiabi_version_major = 2, mpiabi_version_minor = 99, mpiabi_version_patch = 0;
EXPORT int mpiwrapper_version_major = 2, mpiwrapper_version_minor = 10, mpiwrapper_version_patch = 0;
EXPORT void mpiwrapper_export_fortran_constants_(void) {}

/* ---- what is missing ---- */

#define MISSING 70 /* an exit code: the error is in the software */

static _Noreturn void missing(const char *what) {
	fprintf(stderr,
		"gorun: error: --jax-engine gorun: the program uses %s, which gorun's engine does not have\n"
		"gorun: hint: report this line, with the version of jaxlib, in gorun's issue tracker; the program runs without "
		"--jax-engine and with JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo\n",
		what);
	fflush(stderr);
	_exit(MISSING);
}

#define STUB(name)                                     \
	EXPORT int MPIABI_##name(void);                \
	EXPORT int MPIABI_##name(void) { missing("MPI_" #name); }
OTHER_FUNCTIONS(STUB)

EXPORT int MPIXABI_Query_cuda_support(void) { return 0; }
EXPORT int MPIXABI_Query_hip_support(void) { return 0; }
EXPORT int MPIXABI_Query_ze_support(void) { return 0; }

/* ---- types and reductions ---- */

static gorun_type type_of(handle type, size_t *bytes) {
	static const struct {
		const uint64_t *name;
		gorun_type type;
		size_t bytes;
	} types[] = {
		{&MPIABI_FLOAT, GORUN_FLOAT32, 4},     {&MPIABI_DOUBLE, GORUN_FLOAT64, 8},   {&MPIABI_INT8_T, GORUN_INT8, 1},
		{&MPIABI_UINT8_T, GORUN_UINT8, 1},     {&MPIABI_INT16_T, GORUN_INT16, 2},    {&MPIABI_UINT16_T, GORUN_UINT16, 2},
		{&MPIABI_INT32_T, GORUN_INT32, 4},     {&MPIABI_UINT32_T, GORUN_UINT32, 4},  {&MPIABI_INT64_T, GORUN_INT64, 8},
		{&MPIABI_UINT64_T, GORUN_UINT64, 8},   {&MPIABI_BYTE, GORUN_UINT8, 1},	     {&MPIABI_CHAR, GORUN_INT8, 1},
		{&MPIABI_C_BOOL, GORUN_BOOL, 1},       {&MPIABI_INT, GORUN_INT32, 4},	     {&MPIABI_UNSIGNED, GORUN_UINT32, 4},
		{&MPIABI_LONG_LONG, GORUN_INT64, 8},   {&MPIABI_C_COMPLEX, GORUN_COMPLEX64, 8},
		{&MPIABI_C_FLOAT_COMPLEX, GORUN_COMPLEX64, 8}, {&MPIABI_C_DOUBLE_COMPLEX, GORUN_COMPLEX128, 16},
	};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (*types[i].name == type) {
			*bytes = types[i].bytes;
			return types[i].type;
		}
	missing("an MPI_Datatype of another kind");
}

static gorun_op op_of(handle op) {
	static const struct {
		const uint64_t *name;
		gorun_op op;
	} ops[] = {
		{&MPIABI_SUM, GORUN_SUM},      {&MPIABI_MIN, GORUN_MIN},	 {&MPIABI_MAX, GORUN_MAX},
		{&MPIABI_PROD, GORUN_PRODUCT}, {&MPIABI_BAND, GORUN_BIT_AND},	 {&MPIABI_BOR, GORUN_BIT_OR},
		{&MPIABI_BXOR, GORUN_BIT_XOR}, {&MPIABI_LAND, GORUN_LOGICAL_AND}, {&MPIABI_LOR, GORUN_LOGICAL_OR},
		{&MPIABI_LXOR, GORUN_LOGICAL_XOR},
	};
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		if (*ops[i].name == op)
			return ops[i].op;
	missing("an MPI_Op of another kind");
}

/* ---- communicators ---- */

struct comm {
	struct comm *next;
	int number;   /* the same on all ranks; operation names contain it */
	int set;      /* the process set */
	int size, rank;
	int *ranks;   /* ranks of the world, in the order of the communicator */
	int *places;  /* where each of them is among the set's ranks, which are in the order of the world */
	int *at;      /* the inverse of places */
	int in_order; /* both orders are the same */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms; /* all communicators: the same ranks get the same set */
static int comm_count, split_count, is_mine;
static atomic_int is_up;

/* absent returns why this process has no session. A child of fork has none, and must not take the lock: the thread that held it
 * during the fork is not in the child. */
static int absent(void) { return gorun_joined() ? GORUN_OK : gorun_barrier("mpi"); }

static int out_of_memory(void) {
	fprintf(stderr, "gorun: error: --jax-engine gorun: out of memory\n");
	_exit(1);
}

static void *room(size_t n) {
	void *p = calloc(n ? n : 1, 1);
	if (!p)
		out_of_memory();
	return p;
}

static struct comm *comm_of(handle h) {
	if (h != WORLD && h != ALONE)
		return (struct comm *)(void *)h;
	for (struct comm *c = comms; c; c = c->next)
		if (c->number == (int)h)
			return c;
	missing("a communicator before MPI_Init");
}

/* add_comm makes a communicator of some ranks of the world. */
static struct comm *add_comm(int number, int set, const int *ranks, int size) {
	struct comm *c = room(sizeof *c);
	*c = (struct comm){.next = comms, .number = number, .set = set, .size = size, .rank = -1, .in_order = 1};
	c->ranks = room((size_t)size * sizeof *ranks);
	c->places = room((size_t)size * sizeof *ranks);
	c->at = room((size_t)size * sizeof *ranks);
	memcpy(c->ranks, ranks, (size_t)size * sizeof *ranks);
	for (int i = 0; i < size; i++) {
		if (ranks[i] == gorun_rank())
			c->rank = i;
		for (int j = 0; j < size; j++)
			c->places[i] += ranks[j] < ranks[i];
		c->at[c->places[i]] = i;
		c->in_order &= c->places[i] == i;
	}
	comms = c;
	return c;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* set_of finds or declares the process set of some ranks, including this one. A new set has the communicator's number. */
static int set_of(const int *ranks, int size, int number, int *set) {
	int *sorted = room((size_t)size * sizeof *ranks), code = GORUN_OK, found = 0;
	memcpy(sorted, ranks, (size_t)size * sizeof *ranks);
	qsort(sorted, (size_t)size, sizeof *sorted, by_number);
	if (size == gorun_size())
		*set = 0, found = 1;
	for (struct comm *c = comms; c && !found; c = c->next) {
		int same = c->size == size && c->number != ALONE;
		for (int i = 0; i < size && same; i++)
			same = c->ranks[i] == sorted[c->places[i]];
		if (same)
			*set = c->set, found = 1;
	}
	if (!found) {
		gorun_call call = gorun_call_of(GORUN_ADD_GROUP, "process sets");
		gorun_handle h;
		call.set = *set = GORUN_DECLARED + SETS + number;
		call.splits = sorted, call.nsplits = size;
		if (!(code = gorun_start(&call, &h)))
			code = gorun_wait(h, NULL);
	}
	free(sorted);
	return code;
}

EXPORT int MPIABI_Comm_rank(handle comm, int *rank) {
	*rank = comm_of(comm)->rank;
	return 0;
}

EXPORT int MPIABI_Comm_size(handle comm, int *size) {
	*size = comm_of(comm)->size;
	return 0;
}

/* What a rank contributes to a split. */
struct wish {
	int32_t color, key, rank;
};

static int by_wish(const void *a, const void *b) {
	const struct wish *x = a, *y = b;
	if (x->color != y->color)
		return x->color < y->color ? -1 : 1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->rank - y->rank;
}

/* split makes the communicator of this rank's color. All ranks number the communicators of all colors, in the same way. */
static int split(const struct comm *parent, int color, int key, struct comm **mine) {
	char name[64];
	struct wish wish = {color, key, gorun_rank()}, *all;
	gorun_result result;
	int code;
	*mine = NULL;
	if (parent->set || parent->size != gorun_size())
		missing("MPI_Comm_split of a part of the world");
	snprintf(name, sizeof name, "mpi.split.%d", split_count++);
	if ((code = gorun_allgather(name, &wish, 1, 3, GORUN_INT32, &result)))
		return code;
	size_t count = result.bytes / sizeof wish;
	all = room(result.bytes);
	memcpy(all, result.data, result.bytes);
	code = gorun_release(&result);
	qsort(all, count, sizeof *all, by_wish);
	int *ranks = room(count * sizeof *ranks);
	for (size_t from = 0, to; from < count && !code; from = to) {
		int size = 0, set = 0;
		for (to = from; to < count && all[to].color == all[from].color; to++)
			ranks[size++] = all[to].rank;
		if (all[from].color == UNDEFINED || (++comm_count && all[from].color != color))
			continue;
		if (!(code = set_of(ranks, size, comm_count, &set)))
			*mine = add_comm(comm_count, set, ranks, size);
	}
	free(ranks);
	free(all);
	return code;
}

EXPORT int MPIABI_Comm_split(handle comm, int color, int key, handle *out) {
	struct comm *mine = NULL;
	int code = absent();
	*out = 0;
	if (code)
		return code;
	pthread_mutex_lock(&lock);
	code = split(comm_of(comm), color, key, &mine);
	pthread_mutex_unlock(&lock);
	*out = (handle)(void *)mine;
	return code;
}

EXPORT int MPIABI_Comm_dup(handle comm, handle *out) {
	const struct comm *c = comm_of(comm);
	int code = absent();
	*out = 0;
	if (code)
		return code;
	pthread_mutex_lock(&lock);
	*out = (handle)(void *)add_comm(++comm_count, c->set, c->ranks, c->size);
	pthread_mutex_unlock(&lock);
	return 0;
}

/* The set of a communicator stays for the next one of the same ranks: all ranks of the world would have to remove it. */
EXPORT int MPIABI_Comm_free(handle *comm) {
	*comm = 0;
	return 0;
}

/* ---- the beginning and the end ---- */

static int begin(void) {
	int code = GORUN_OK, *ranks, self;
	if (is_up)
		return absent();
	pthread_mutex_lock(&lock);
	if (!is_up) {
		if (gorun_rank() < 0)
			is_mine = !(code = gorun_init());
		if (code) {
			fprintf(stderr, "gorun: error: --jax-engine gorun: %s\n", gorun_error());
		} else {
			ranks = room((size_t)gorun_size() * sizeof *ranks);
			for (int i = 0; i < gorun_size(); i++)
				ranks[i] = i;
			add_comm(WORLD, 0, ranks, gorun_size());
			self = gorun_rank();
			add_comm(ALONE, 0, &self, 1);
			comm_count = ALONE;
			free(ranks);
			is_up = 1;
		}
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int MPIABI_Init(int *argc, char ***argv) {
	(void)argc, (void)argv;
	return begin();
}

EXPORT int MPIABI_Init_thread(int *argc, char ***argv, int required, int *provided) {
	(void)argc, (void)argv, (void)required;
	*provided = MULTIPLE;
	return begin();
}

EXPORT int MPIABI_Initialized(int *flag) {
	*flag = is_up;
	return 0;
}

EXPORT int MPIABI_Finalized(int *flag) {
	*flag = 0;
	return 0;
}

/* JAX calls it at the end of a child of fork too. */
EXPORT int MPIABI_Finalize(void) { return is_mine && gorun_joined() ? gorun_finalize() : 0; }

EXPORT int MPIABI_Query_thread(int *provided) {
	*provided = MULTIPLE;
	return 0;
}

/* Any thread may call MPI: XLA asks for that before it makes a communicator. */
EXPORT int MPIABI_Is_thread_main(int *flag) {
	*flag = 1;
	return 0;
}

EXPORT int MPIABI_Get_version(int *version, int *subversion) {
	*version = 3, *subversion = 1;
	return 0;
}

static void say(char *text, int *n, const char *what) { *n = snprintf(text, 256, "%.255s", what); }

EXPORT int MPIABI_Get_library_version(char *version, int *n) {
	say(version, n, "gorun");
	return 0;
}

EXPORT int MPIABI_Error_string(int error, char *text, int *n) {
	say(text, n, error ? gorun_error() : "");
	*n = *n > 255 ? 255 : *n;
	return 0;
}

EXPORT int MPIABI_Abort(handle comm, int code) {
	(void)comm;
	_exit(code);
}

/* ---- operations ---- */

#define PIECE_BYTES ((size_t)8 << 20) /* bytes of a piece of an allreduce */

/* called names an operation. A communicator runs one operation of a kind and size at a time, so names repeat. This lets ranks of one
 * host add up small tensors without the daemon. */
static const char *called(char *name, size_t n, const struct comm *c, const char *kind, long long size, int type) {
	snprintf(name, n, "mpi.%d.%s.%d.%lld", c->number, kind, type, size);
	return name;
}

#define NAMED(c, kind, size, type) called((char[96]){0}, 96, c, kind, (long long)(size), type)

static int copied(const void *in, void *out, size_t bytes) {
	if (in != IN_PLACE && bytes)
		memmove(out, in, bytes);
	return 0;
}

/* of describes an operation of a communicator on rows of a width; rows may be 0. */
static gorun_call of(const struct comm *c, gorun_kind kind, const char *name, gorun_type type, const void *in, int64_t dims[2], int ndim) {
	gorun_call call = gorun_call_of(kind, name);
	call.set = c->set, call.type = type, call.in = in, call.dims = dims, call.ndim = ndim;
	return call;
}

static int run(const gorun_call *call, gorun_result *result) {
	gorun_handle h;
	int code = gorun_start(call, &h);
	return code ? code : gorun_wait(h, result);
}

/* in_pieces runs an allreduce. While a piece is reduced, others are copied to the arena and out of it. */
static int in_pieces(gorun_call call, size_t bytes) {
	const char *in = call.in, *whole = call.name;
	char *out = call.out, name[128];
	gorun_handle open[4];
	int64_t left = call.dims[0], most = (int64_t)(PIECE_BYTES / bytes), count;
	int begun = 0, ended = 0, code = GORUN_OK, one;
	for (; !code && left > 0; begun++, left -= count) {
		if (begun - ended == 4)
			code = gorun_wait(open[ended++ % 4], NULL);
		count = left < most ? left : most;
		snprintf(name, sizeof name, "%s.%d", whole, begun);
		call.name = name, call.in = in, call.out = out, call.dims = &count;
		if (code || (code = gorun_start(&call, &open[begun % 4])))
			break;
		in += (size_t)count * bytes, out += (size_t)count * bytes;
	}
	while (ended < begun)
		if ((one = gorun_wait(open[ended++ % 4], NULL)) && !code)
			code = one;
	return code;
}

EXPORT int MPIABI_Allreduce(const void *in, void *out, int count, handle type, handle op, handle comm) {
	const struct comm *c = comm_of(comm);
	size_t bytes;
	gorun_type t = type_of(type, &bytes);
	if (c->size == 1)
		return copied(in, out, (size_t)count * bytes);
	if (in == IN_PLACE)
		in = out;
	const char *name = NAMED(c, "allreduce", count, (int)t);
	if (!c->set && (size_t)count * bytes <= PIECE_BYTES) /* the ranks of one host may do it without the daemon */
		return gorun_allreduce(name, in, out, count, t, op_of(op));
	gorun_call call = of(c, GORUN_ALLREDUCE, name, t, in, (int64_t[2]){count}, 1);
	call.op = op_of(op), call.out = out;
	return in_pieces(call, bytes);
}

/* place copies the blocks of a result from the order of the set's ranks into the order of the communicator's. */
static int place(const struct comm *c, const gorun_call *call, void *out, size_t bytes) {
	gorun_result result;
	int code = run(call, &result);
	if (code)
		return code;
	if (result.bytes != bytes * (size_t)c->size)
		missing("different counts on the ranks");
	if (c->in_order && result.bytes)
		memcpy(out, result.data, result.bytes);
	for (int i = 0; i < c->size && !c->in_order; i++)
		memcpy((char *)out + (size_t)i * bytes, (const char *)result.data + (size_t)c->places[i] * bytes, bytes);
	return gorun_release(&result);
}

/* in_set_order returns the blocks of a rank in the order of the set's ranks; the caller frees *own. */
static const void *in_set_order(const struct comm *c, const void *in, size_t bytes, void **own) {
	*own = NULL;
	if (c->in_order)
		return in;
	*own = room(bytes * (size_t)c->size);
	for (int i = 0; i < c->size; i++)
		memcpy((char *)*own + (size_t)c->places[i] * bytes, (const char *)in + (size_t)i * bytes, bytes);
	return *own;
}

EXPORT int MPIABI_Allgather(const void *in, int count, handle type, void *out, int each, handle out_type, handle comm) {
	const struct comm *c = comm_of(comm);
	size_t bytes, one;
	gorun_type t = type_of(out_type, &one);
	bytes = one * (size_t)each;
	if (in == IN_PLACE)
		in = (char *)out + bytes * (size_t)c->rank;
	else if (type_of(type, &one) != t || count != each)
		missing("MPI_Allgather with two types");
	if (c->size == 1)
		return copied(in, out, bytes);
	gorun_call call = of(c, GORUN_ALLGATHER, NAMED(c, "allgather", each, (int)t), t, in, (int64_t[2]){1, each}, 2);
	return place(c, &call, out, bytes);
}

EXPORT int MPIABI_Alltoall(const void *in, int count, handle type, void *out, int each, handle out_type, handle comm) {
	const struct comm *c = comm_of(comm);
	size_t one;
	gorun_type t = type_of(out_type, &one);
	void *own;
	if (in == IN_PLACE || type_of(type, &one) != t || count != each)
		missing("MPI_Alltoall in place, or with two types");
	if (c->size == 1)
		return copied(in, out, one * (size_t)each);
	in = in_set_order(c, in, one * (size_t)each, &own);
	int32_t *splits = room((size_t)c->size * sizeof *splits);
	for (int i = 0; i < c->size; i++)
		splits[i] = 1;
	gorun_call call = of(c, GORUN_ALLTOALL, NAMED(c, "alltoall", each, (int)t), t, in, (int64_t[2]){c->size, each}, 2);
	call.splits = splits, call.nsplits = c->size;
	int code = place(c, &call, out, one * (size_t)each);
	free(splits);
	free(own);
	return code;
}

EXPORT int MPIABI_Alltoallv(const void *in, const int *counts, const int *starts, handle type, void *out, const int *out_counts,
			    const int *out_starts, handle out_type, handle comm) {
	const struct comm *c = comm_of(comm);
	size_t one, rows = 0;
	gorun_type t = type_of(out_type, &one);
	gorun_result result;
	int code = GORUN_OK;
	if (in == IN_PLACE || type_of(type, &one) != t)
		missing("MPI_Alltoallv in place, or with two types");
	for (int i = 0; i < c->size; i++)
		rows += (size_t)counts[i];
	char *packed = room(rows * one);
	int32_t *splits = room((size_t)c->size * sizeof *splits);
	size_t at = 0;
	for (int p = 0; p < c->size; p++) {
		int i = c->at[p];
		splits[p] = counts[i];
		copied((const char *)in + (size_t)starts[i] * one, packed + at, (size_t)counts[i] * one);
		at += (size_t)counts[i] * one;
	}
	if (c->size == 1) {
		copied(packed, (char *)out + (size_t)out_starts[0] * one, at);
	} else {
		gorun_call call = of(c, GORUN_ALLTOALL, NAMED(c, "alltoallv", 0, (int)t), t, packed, (int64_t[2]){(int64_t)rows, 1}, 2);
		call.splits = splits, call.nsplits = c->size;
		if (!(code = run(&call, &result))) {
			at = 0;
			for (int p = 0; p < c->size; p++) {
				int i = c->at[p];
				size_t n = (size_t)out_counts[i] * one;
				if (result.counts[p] != out_counts[i])
					missing("MPI_Alltoallv with counts that differ between ranks");
				copied((const char *)result.data + at, (char *)out + (size_t)out_starts[i] * one, n);
				at += n;
			}
			code = gorun_release(&result);
		}
	}
	free(packed);
	free(splits);
	return code;
}

EXPORT int MPIABI_Reduce_scatter_block(const void *in, void *out, int count, handle type, handle op, handle comm) {
	const struct comm *c = comm_of(comm);
	size_t one;
	gorun_type t = type_of(type, &one);
	gorun_result result;
	void *own;
	if (in == IN_PLACE)
		missing("MPI_Reduce_scatter in place");
	if (c->size == 1)
		return copied(in, out, one * (size_t)count);
	in = in_set_order(c, in, one * (size_t)count, &own);
	gorun_call call = of(c, GORUN_REDUCESCATTER, NAMED(c, "reducescatter", count, (int)t), t, in, (int64_t[2]){c->size, count}, 2);
	call.op = op_of(op);
	int code = run(&call, &result);
	if (!code) {
		copied(result.data, out, result.bytes);
		code = gorun_release(&result);
	}
	free(own);
	return code;
}

EXPORT int MPIABI_Reduce_scatter(const void *in, void *out, const int *counts, handle type, handle op, handle comm) {
	const struct comm *c = comm_of(comm);
	for (int i = 1; i < c->size; i++)
		if (counts[i] != counts[0])
			missing("MPI_Reduce_scatter with different counts");
	return MPIABI_Reduce_scatter_block(in, out, counts[0], type, op, comm);
}

EXPORT int MPIABI_Bcast(void *data, int count, handle type, int root, handle comm) {
	const struct comm *c = comm_of(comm);
	size_t one;
	gorun_type t = type_of(type, &one);
	if (c->size == 1)
		return 0;
	gorun_call call = of(c, GORUN_BROADCAST, NAMED(c, "broadcast", count, (int)t), t, data, (int64_t[2]){count}, 1);
	call.out = data, call.root = c->ranks[root];
	return run(&call, NULL);
}

EXPORT int MPIABI_Barrier(handle comm) {
	const struct comm *c = comm_of(comm);
	if (c->size == 1)
		return 0;
	gorun_call call = of(c, GORUN_BARRIER, NAMED(c, "barrier", 0, 0), GORUN_UINT8, NULL, NULL, 0);
	return run(&call, NULL);
}

/* ---- from rank to rank ---- */

/* A line counts the messages that one rank sends another with one tag. They arrive in order, so both ends count alike. */
struct line {
	struct line *next;
	int comm, from, to, tag;
	unsigned count;
};

static struct line *lines;

static unsigned next_of(int comm, int from, int to, int tag) {
	struct line *l = lines;
	while (l && (l->comm != comm || l->from != from || l->to != to || l->tag != tag))
		l = l->next;
	if (!l) {
		l = room(sizeof *l);
		*l = (struct line){lines, comm, from, to, tag, 0};
		lines = l;
	}
	return l->count++;
}

/* pass starts one end of a message; *request stays 0 if there is no other end. */
static int pass(int sends, void *data, int count, handle type, int peer, int tag, handle comm, handle *request) {
	const struct comm *c = comm_of(comm);
	size_t one;
	gorun_type t = type_of(type, &one);
	gorun_handle h = 0;
	char name[96];
	int code, other, self = gorun_rank();
	*request = 0;
	if (peer == PROC_NULL)
		return 0;
	if (peer < 0 || peer >= c->size || (!sends && tag == ANY))
		missing("MPI_ANY_SOURCE or MPI_ANY_TAG");
	other = c->ranks[peer];
	if (other == self)
		missing("a message of a rank to itself");
	if ((code = absent()))
		return code;
	pthread_mutex_lock(&lock);
	snprintf(name, sizeof name, "mpi.%d.message.%d.%d.%d.%u", c->number, sends ? self : other, sends ? other : self, tag,
		 next_of(c->number, sends ? self : other, sends ? other : self, tag));
	code = sends ? gorun_start_send(name, data, count, t, other, &h) : gorun_start_recv(name, data, count, t, other, &h);
	pthread_mutex_unlock(&lock);
	if (code)
		return code;
	gorun_handle *kept = room(sizeof *kept);
	*kept = h;
	*request = (handle)(void *)kept;
	return 0;
}

static int await(handle *request) {
	if (!*request)
		return 0;
	gorun_handle *kept = (gorun_handle *)(void *)*request;
	int code = gorun_wait(*kept, NULL);
	free(kept);
	*request = 0;
	return code;
}

/* The fields of a status differ between versions of the ABI, and XLA ignores them. */
static void ignored(const void *status) {
	if (status)
		missing("an MPI_Status");
}

EXPORT int MPIABI_Isend(const void *data, int count, handle type, int to, int tag, handle comm, handle *request) {
	return pass(1, (void *)(uintptr_t)data, count, type, to, tag, comm, request);
}

EXPORT int MPIABI_Irecv(void *data, int count, handle type, int from, int tag, handle comm, handle *request) {
	return pass(0, data, count, type, from, tag, comm, request);
}

EXPORT int MPIABI_Wait(handle *request, void *status) {
	ignored(status);
	return await(request);
}

EXPORT int MPIABI_Waitall(int count, handle *requests, void *statuses) {
	int code = 0, one;
	ignored(statuses);
	for (int i = 0; i < count; i++)
		if ((one = await(&requests[i])) && !code)
			code = one;
	return code;
}

EXPORT int MPIABI_Send(const void *data, int count, handle type, int to, int tag, handle comm) {
	handle request;
	int code = MPIABI_Isend(data, count, type, to, tag, comm, &request);
	return code ? code : await(&request);
}

EXPORT int MPIABI_Recv(void *data, int count, handle type, int from, int tag, handle comm, void *status) {
	handle request;
	ignored(status);
	int code = MPIABI_Irecv(data, count, type, from, tag, comm, &request);
	return code ? code : await(&request);
}

EXPORT int MPIABI_Sendrecv(const void *out, int out_count, handle out_type, int to, int out_tag, void *in, int in_count,
			   handle in_type, int from, int in_tag, handle comm, void *status) {
	handle requests[2] = {0, 0};
	ignored(status);
	int code = MPIABI_Irecv(in, in_count, in_type, from, in_tag, comm, &requests[0]);
	if (!code)
		code = MPIABI_Isend(out, out_count, out_type, to, out_tag, comm, &requests[1]);
	int ended = MPIABI_Waitall(2, requests, NULL);
	return code ? code : ended;
}
