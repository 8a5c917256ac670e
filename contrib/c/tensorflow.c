/* gorun's operations as operations of TensorFlow, by TensorFlow's C interface for ops and kernels.
 *
 * When tf.load_op_library() loads this library, it registers them. TensorFlow's functions are looked up then, and
 * the types that they need are declared here, so the library is built without TensorFlow and also loads without it.
 * The operations are for CPUs. They are not stateful: TensorFlow would run stateful ones one after the other, in a
 * different order on each rank, and ranks would wait for each other for ever.
 *
 * A kernel submits and returns. When an operation ends, a thread of this file copies the result and tells
 * TensorFlow. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "gorun.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- TensorFlow's C interface ---- */

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct {
	const char *data;
	size_t len;
} TF_StringView;

/* The types that this file names itself. */
enum { TF_INT32 = 3, TF_UINT8 = 4 };

enum {
	TF_UNKNOWN = 2,
	TF_INVALID_ARGUMENT = 3,
	TF_RESOURCE_EXHAUSTED = 8,
	TF_FAILED_PRECONDITION = 9,
	TF_INTERNAL = 13
};

typedef void *create_function(TF_OpKernelConstruction *);
typedef void compute_function(void *, TF_OpKernelContext *);
typedef void async_function(void *, TF_OpKernelContext *, void *done);
typedef void delete_function(void *);
typedef void shape_function(TF_ShapeInferenceContext *, TF_Status *);

#define FUNCTIONS(F) \
	F(TF_Status *, TF_NewStatus, (void)) \
	F(void, TF_DeleteStatus, (TF_Status *)) \
	F(void, TF_SetStatus, (TF_Status *, int, const char *)) \
	F(int, TF_GetCode, (const TF_Status *)) \
	F(const char *, TF_Message, (const TF_Status *)) \
	F(void, TF_DeleteTensor, (TF_Tensor *)) \
	F(int, TF_TensorType, (const TF_Tensor *)) \
	F(int, TF_NumDims, (const TF_Tensor *)) \
	F(int64_t, TF_Dim, (const TF_Tensor *, int)) \
	F(size_t, TF_TensorByteSize, (const TF_Tensor *)) \
	F(void *, TF_TensorData, (const TF_Tensor *)) \
	F(int, TF_NumInputs, (TF_OpKernelContext *)) \
	F(void, TF_GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *)) \
	F(TF_Tensor *, TF_AllocateOutput, (TF_OpKernelContext *, int, int, const int64_t *, int, size_t, TF_Status *)) \
	F(TF_Tensor *, TF_ForwardInputOrAllocateOutput, \
	  (TF_OpKernelContext *, const int *, int, int, const int64_t *, int, int *, TF_Status *)) \
	F(void, TF_OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *)) \
	F(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *)) \
	F(TF_StringView, TF_OpKernelConstruction_GetName, (TF_OpKernelConstruction *)) \
	F(void, TF_OpKernelConstruction_GetAttrSize, \
	  (TF_OpKernelConstruction *, const char *, int32_t *, int32_t *, TF_Status *)) \
	F(void, TF_OpKernelConstruction_GetAttrString, \
	  (TF_OpKernelConstruction *, const char *, char *, size_t, TF_Status *)) \
	F(void, TF_OpKernelConstruction_GetAttrInt32, (TF_OpKernelConstruction *, const char *, int32_t *, TF_Status *)) \
	F(void, TF_OpKernelConstruction_GetAttrFloat, (TF_OpKernelConstruction *, const char *, float *, TF_Status *)) \
	F(TF_KernelBuilder *, TF_NewKernelBuilder, \
	  (const char *, const char *, create_function *, compute_function *, delete_function *)) \
	F(void, TF_RegisterKernelBuilder, (const char *, TF_KernelBuilder *, TF_Status *)) \
	F(TF_OpDefinitionBuilder *, TF_NewOpDefinitionBuilder, (const char *)) \
	F(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *)) \
	F(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *)) \
	F(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *)) \
	F(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *)) \
	F(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, _Bool)) \
	F(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder *, shape_function *)) \
	F(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext *)) \
	F(TF_ShapeHandle *, TF_NewShapeHandle, (void)) \
	F(void, TF_DeleteShapeHandle, (TF_ShapeHandle *)) \
	F(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *)) \
	F(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *)) \
	F(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))

/* TensorFlow has these from 2.13 on; without them kernels block a thread of TensorFlow. */
#define ASYNC_FUNCTIONS(F) \
	F(TF_KernelBuilder *, TF_NewAsyncKernelBuilder, \
	  (const char *, const char *, create_function *, async_function *, delete_function *)) \
	F(void, TF_RunAsyncOpKernelDoneCallback, (void *))

static struct {
#define MEMBER(type, name, arguments) type(*name) arguments;
	FUNCTIONS(MEMBER)
	ASYNC_FUNCTIONS(MEMBER)
} tf;

/* ---- the library with the session ---- */

/* The functions that kernels call. They belong to the copy of this library that has the session, which need not be the copy
 * that TensorFlow loaded. */
static struct engine {
	int (*start)(const gorun_call *, gorun_handle *);
	int (*then)(gorun_handle, gorun_done, void *);
	int (*wait)(gorun_handle, gorun_result *);
	int (*release)(gorun_result *);
	void *(*alloc)(size_t);
	int (*free)(void *);
	const char *(*error)(void);
} engine = {gorun_start, gorun_then, gorun_wait, gorun_release, gorun_alloc_raw, gorun_free, gorun_error};

#define JOINS 6 /* the fact that begins counts anew */
#define COUNTS 1000 /* facts from here on count the operations without a name in a process set: this plus their kind */

/* Facts about the world and its process sets, and counts. Python sets them, and operations read them when they run. */
static struct fact {
	struct fact *next;
	int what, set, value;
} *facts;
static pthread_mutex_t facts_mu = PTHREAD_MUTEX_INITIALIZER;

/* gorun_tensorflow_engine sets the functions to call, in the order of struct engine, and begins a world. */
#pragma GCC visibility push(default)
void gorun_tensorflow_engine(void *const *functions);
int gorun_tensorflow_fact(int what, int set, int value);
#pragma GCC visibility pop

void gorun_tensorflow_engine(void *const *functions) {
	memcpy(&engine, functions, sizeof engine);
	gorun_tensorflow_fact(JOINS, 0, 0);
}

/* fact returns the fact with a number, which is 0 at first; NULL: out of memory. The caller holds the lock. */
static struct fact *fact(int what, int set) {
	struct fact *f;
	for (f = facts; f && (f->what != what || f->set != set);)
		f = f->next;
	if (!f && (f = calloc(1, sizeof *f))) {
		f->what = what, f->set = set, f->next = facts;
		facts = f;
	}
	return f;
}

/* gorun_tensorflow_fact sets what GorunWorld answers. After a join ranks have made different calls: they count anew. */
int gorun_tensorflow_fact(int what, int set, int value) {
	pthread_mutex_lock(&facts_mu);
	struct fact *f = fact(what, set);
	if (f)
		f->value = value;
	for (struct fact *count = facts; what == JOINS && count; count = count->next)
		if (count->what >= COUNTS)
			count->value = 0;
	pthread_mutex_unlock(&facts_mu);
	return f ? GORUN_OK : GORUN_MEMORY;
}

/* known returns the value of a fact, and then adds to it. */
static int known(int what, int set, int more) {
	pthread_mutex_lock(&facts_mu);
	struct fact *f = fact(what, set);
	int value = f ? f->value : -1;
	if (f)
		f->value += more;
	pthread_mutex_unlock(&facts_mu);
	return value;
}

/* gorun.c has these. */
__attribute__((visibility("hidden"))) void gorun_open_counters(void);
__attribute__((visibility("hidden"))) void gorun_count_event(int event);
__attribute__((visibility("hidden"))) size_t gorun_element_bytes(int type);

/* ---- kernels ---- */

enum { ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, KINDS };

static const struct kind {
	const char *op, *name;
	gorun_kind kind;
} kinds[KINDS] = {
	{"GorunAllreduce", "allreduce", GORUN_ALLREDUCE},
	{"GorunAllgather", "allgather", GORUN_ALLGATHER},
	{"GorunBroadcast", "broadcast", GORUN_BROADCAST},
	{"GorunAlltoall", "alltoall", GORUN_ALLTOALL},
	{"GorunReducescatter", "reducescatter", GORUN_REDUCESCATTER},
};

struct kernel {
	int kind;
	char *name; /* NULL: count */
	int32_t op, root, set;
	float prescale, postscale;
};

#define MAX_DIMS 32

/* A tensor on its way through an operation. */
struct item {
	TF_Tensor *in, *out;
	int type, ndim;
	int64_t dims[MAX_DIMS];
	size_t bytes, at; /* at: its place in the block of its part */
	int part;
};

/* A part is one operation of the library: a tensor, or several of one type in a block. */
struct part {
	gorun_handle handle;
	int started, type;
	unsigned char *block;
	size_t bytes;
};

struct job {
	struct job *next;
	TF_OpKernelContext *ctx;
	const struct kernel *kernel;
	void *done[4]; /* TensorFlow's callback, moved here */
	int waited;    /* there is none: the kernel waits for the end */
	int ended;     /* the end has come */
	int n, parts;
	int ranks; /* of the process set */
	struct item *items;
	struct part *part;
	atomic_int open; /* parts that have not ended */
	int code;
	char text[1024];
};

static int element(int type) {
	static const unsigned char elements[] = {
		[1] = GORUN_FLOAT32, [2] = GORUN_FLOAT64, [3] = GORUN_INT32, [4] = GORUN_UINT8, [5] = GORUN_INT16,
		[6] = GORUN_INT8, [8] = GORUN_COMPLEX64, [9] = GORUN_INT64, [10] = GORUN_BOOL, [14] = GORUN_BFLOAT16,
		[17] = GORUN_UINT16, [18] = GORUN_COMPLEX128, [19] = GORUN_FLOAT16, [22] = GORUN_UINT32, [23] = GORUN_UINT64,
	};
	return type > 0 && (size_t)type < sizeof elements ? elements[type] : 0;
}

static void note(struct job *j, int code, const char *text) {
	if (j->code)
		return;
	j->code = code;
	snprintf(j->text, sizeof j->text, "gorun: %s", text);
}

static void note_engine(struct job *j, int rc) {
	note(j,
	     rc == GORUN_MISMATCH  ? TF_FAILED_PRECONDITION
	     : rc == GORUN_INVALID ? TF_INVALID_ARGUMENT
	     : rc == GORUN_MEMORY  ? TF_RESOURCE_EXHAUSTED
	     : rc == GORUN_INTERNAL ? TF_INTERNAL
				    : TF_UNKNOWN,
	     engine.error());
}

/* noted keeps an error of TensorFlow. */
static int noted(struct job *j, TF_Status *s) {
	int code = tf.TF_GetCode(s);
	if (code)
		note(j, code, tf.TF_Message(s));
	return code;
}

/* ---- ends ---- */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER, came = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;
static int threads;

#define FINISHERS 2 /* threads that copy results */

static void output(struct job *j, int index, const int64_t *dims, int ndim, int type, const void *data, size_t bytes) {
	TF_Status *s = tf.TF_NewStatus();
	TF_Tensor *t = tf.TF_AllocateOutput(j->ctx, index, type, dims, ndim, bytes, s);
	if (!noted(j, s) && t && bytes)
		memcpy(tf.TF_TensorData(t), data, bytes);
	if (t)
		tf.TF_DeleteTensor(t);
	tf.TF_DeleteStatus(s);
}

/* deliver makes TensorFlow's tensors from a result with memory of its own. The second output of a gather is the number of
 * rows from each rank. */
static void deliver(struct job *j, int index, const gorun_result *r) {
	struct item *t = &j->items[index];
	int64_t ranks = j->ranks;
	t->dims[0] = r->rows;
	output(j, index, t->dims, t->ndim, t->type, r->data, r->bytes);
	if (j->kernel->kind == REDUCESCATTER)
		return;
	int32_t *rows = calloc((size_t)ranks + 1, sizeof *rows);
	if (!rows) {
		note(j, TF_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	for (int64_t i = 0; r->counts && i < ranks; i++)
		rows[i] = (int32_t)r->counts[i];
	output(j, j->n + index, &ranks, 1, TF_INT32, rows, (size_t)ranks * sizeof *rows);
	free(rows);
}

/* collect waits for the parts of a job, which have ended, and copies their results. */
static void collect(struct job *j) {
	int brings = j->kernel->kind != ALLREDUCE && j->kernel->kind != BROADCAST;
	for (int i = 0; i < j->parts; i++) {
		struct part *p = &j->part[i];
		gorun_result r = {0};
		int rc = p->started ? engine.wait(p->handle, brings ? &r : NULL) : 0;
		if (rc)
			note_engine(j, rc);
		if (p->started && !rc && brings) {
			if (!j->code)
				deliver(j, i, &r);
			engine.release(&r);
		}
		for (int k = 0; p->block && p->started && !rc && k < j->n; k++)
			if (j->items[k].part == i && j->items[k].bytes)
				memcpy(tf.TF_TensorData(j->items[k].out), p->block + j->items[k].at, j->items[k].bytes);
		if (p->block)
			engine.free(p->block);
	}
}

/* end reports the end of a job to TensorFlow. */
static void end(struct job *j) {
	void *done[4];
	int waited = j->waited;
	collect(j);
	if (j->code) {
		TF_Status *s = tf.TF_NewStatus();
		tf.TF_SetStatus(s, j->code, j->text);
		tf.TF_OpKernelContext_Failure(j->ctx, s);
		tf.TF_DeleteStatus(s);
	}
	for (int i = 0; i < j->n; i++) {
		if (j->items[i].in)
			tf.TF_DeleteTensor(j->items[i].in);
		if (j->items[i].out)
			tf.TF_DeleteTensor(j->items[i].out);
	}
	free(j->items);
	free(j->part);
	if (waited) {
		pthread_mutex_lock(&mu);
		j->ended = 1;
		pthread_cond_broadcast(&came);
		pthread_mutex_unlock(&mu);
		return;
	}
	memcpy(done, j->done, sizeof done);
	free(j);
	tf.TF_RunAsyncOpKernelDoneCallback(done);
	void (*manager)(void *, void *, int) = *(void (**)(void *, void *, int))&done[2];
	manager(done, done, 3); /* 3: destroy it */
}

static void *finish(void *unused) {
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&mu);
		while (!first)
			pthread_cond_wait(&finished, &mu);
		struct job *j = first;
		if (!(first = j->next))
			last = &first;
		pthread_mutex_unlock(&mu);
		end(j);
	}
	return NULL;
}

/* A child of fork has neither the threads nor the jobs of its parent, and its copy of the state is consistent. */
static void hold(void) {
	pthread_mutex_lock(&mu);
	pthread_mutex_lock(&facts_mu);
}

static void let_go(void) {
	pthread_mutex_unlock(&facts_mu);
	pthread_mutex_unlock(&mu);
}

static void forked(void) {
	threads = 0;
	first = NULL, last = &first;
	finished = came = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	let_go();
}

/* one_ended notes the end of a part. After the last one a finisher takes the job, as this thread belongs to the library. */
static void one_ended(void *job) {
	struct job *j = job;
	if (atomic_fetch_sub(&j->open, 1) > 1)
		return;
	pthread_mutex_lock(&mu);
	j->next = NULL;
	*last = j;
	last = &j->next;
	while (threads < FINISHERS) {
		pthread_t t;
		if (pthread_create(&t, NULL, finish, NULL))
			break;
		pthread_detach(t);
		threads++;
	}
	int alone = !threads;
	if (alone && !(first = j->next))
		last = &first;
	pthread_cond_signal(&finished);
	pthread_mutex_unlock(&mu);
	if (alone)
		end(j);
}

/* ---- beginnings ---- */

static uint32_t mix(uint32_t hash, uint64_t value) {
	for (int i = 0; i < 8; i++, value >>= 8)
		hash = (hash ^ (uint32_t)(value & 255)) * 16777619u;
	return hash;
}

/* signature returns 31 bits of the tensors that travel as one, for ranks to compare. */
static int signature(const struct job *j) {
	uint32_t hash = 2166136261u;
	for (int i = 0; i < j->n; i++) {
		hash = mix(mix(hash, (uint64_t)j->items[i].type), (uint64_t)j->items[i].ndim);
		for (int k = 0; k < j->items[i].ndim; k++)
			hash = mix(hash, (uint64_t)j->items[i].dims[k]);
	}
	return (int)(hash & 0x7fffffff);
}

/* take gets an input. If the result has the same shape it also gets an output, in the input's memory if nothing else needs
 * that. */
static int take(struct job *j, int index, TF_Status *s) {
	struct item *t = &j->items[index];
	int kind = j->kernel->kind, forwarded = -1;
	tf.TF_GetInput(j->ctx, index, &t->in, s);
	if (noted(j, s))
		return -1;
	t->type = tf.TF_TensorType(t->in);
	t->ndim = tf.TF_NumDims(t->in);
	t->bytes = tf.TF_TensorByteSize(t->in);
	if (!element(t->type) || t->ndim > MAX_DIMS) {
		note(j, TF_INVALID_ARGUMENT, "tensors of this type, or of so many dimensions, are not supported");
		return -1;
	}
	for (int i = 0; i < t->ndim; i++)
		t->dims[i] = tf.TF_Dim(t->in, i);
	if (kind != ALLREDUCE && kind != BROADCAST)
		return 0;
	tf.TF_DeleteTensor(t->in);
	t->in = NULL;
	t->out = tf.TF_ForwardInputOrAllocateOutput(j->ctx, &index, 1, index, t->dims, t->ndim, &forwarded, s);
	if (noted(j, s))
		return -1;
	if (forwarded < 0)
		tf.TF_GetInput(j->ctx, index, &t->in, s);
	return noted(j, s);
}

static const void *data_of(const struct item *t) { return tf.TF_TensorData(t->in ? t->in : t->out); }

/* lay_out makes the parts of a job: one for each type of an allreduce, one for a broadcast, otherwise one for each tensor. */
static int lay_out(struct job *j) {
	int kind = j->kernel->kind, together = kind == ALLREDUCE && j->kernel->op != GORUN_ADASUM;
	for (int i = 0; i < j->n; i++) {
		struct item *t = &j->items[i];
		int type = kind == BROADCAST && j->n > 1 ? TF_UINT8 : t->type, p = kind == BROADCAST ? 0 : i;
		if (together)
			for (p = 0; p < j->parts && j->part[p].type != type;)
				p++;
		if (p >= j->parts)
			j->parts = p + 1;
		t->part = p;
		t->at = j->part[p].bytes;
		j->part[p].type = type;
		j->part[p].bytes += kind == BROADCAST ? (t->bytes + 63) / 64 * 64 : t->bytes;
	}
	if (j->n == 1 || (kind != ALLREDUCE && kind != BROADCAST) || (kind == ALLREDUCE && !together))
		return 0;
	for (int p = 0; p < j->parts; p++)
		if (!(j->part[p].block = engine.alloc(j->part[p].bytes ? j->part[p].bytes : 1))) {
			note(j, TF_RESOURCE_EXHAUSTED, engine.error());
			return -1;
		}
	int root = kind != BROADCAST || known(0, 0, 0) == j->kernel->root;
	for (int i = 0; root && i < j->n; i++)
		if (j->items[i].bytes)
			memcpy(j->part[j->items[i].part].block + j->items[i].at, data_of(&j->items[i]), j->items[i].bytes);
	return 0;
}

/* submit starts a part. */
static int submit(struct job *j, int index, const char *name, const int32_t *splits, int nsplits,
		  const gorun_handle *followers, int nfollowers) {
	const struct kernel *k = j->kernel;
	struct part *p = &j->part[index];
	struct item *t = &j->items[index];
	char full[4096];
	int64_t all;
	int n = snprintf(full, sizeof full, index ? "tf.%s.%s.%d" : "tf.%s.%s", kinds[k->kind].name, name, index + 1);
	gorun_call c = gorun_call_of(kinds[k->kind].kind, full);
	if (n >= (int)sizeof full) {
		note(j, TF_INVALID_ARGUMENT, "the name is too long");
		return -1;
	}
	c.type = (gorun_type)element(p->type);
	c.set = k->set;
	if (k->kind == ALLREDUCE || k->kind == REDUCESCATTER) {
		c.op = (gorun_op)k->op;
		c.prescale = k->prescale, c.postscale = k->postscale;
	}
	if (k->kind == BROADCAST)
		c.root = k->root;
	if (p->block) {
		all = (int64_t)(p->bytes / gorun_element_bytes(element(p->type)));
		c.in = c.out = p->block;
		c.dims = &all, c.ndim = 1;
		if (k->kind == ALLREDUCE)
			c.root = signature(j); /* an allreduce has no root: ranks compare the signature instead */
		else
			c.prescale = 1.0 + signature(j);
	} else {
		c.dims = t->dims, c.ndim = t->ndim;
		c.in = data_of(t);
		if (t->out) {
			c.out = tf.TF_TensorData(t->out);
			if (k->kind == BROADCAST && c.in != c.out && t->bytes) {
				memcpy(c.out, c.in, t->bytes);
				c.in = c.out;
			}
		}
	}
	c.splits = splits, c.nsplits = nsplits;
	c.follows = index > 0 && p->block;
	c.followers = followers, c.nfollowers = nfollowers;
	int rc = engine.start(&c, &p->handle);
	if (rc)
		note_engine(j, rc);
	p->started = !rc;
	return rc;
}

/* launch submits what a kernel was called for. */
static void launch(struct job *j) {
	const struct kernel *k = j->kernel;
	TF_Status *s = tf.TF_NewStatus();
	TF_Tensor *world = NULL, *splits = NULL;
	int inputs = tf.TF_NumInputs(j->ctx), nsplits = 0;
	const int32_t *split = NULL;
	gorun_handle *followers = NULL;
	char counted[32];
	const char *name = k->name;

	atomic_store(&j->open, 1);
	j->n = inputs - (k->kind == ALLTOALL ? 2 : 1);
	j->items = calloc((size_t)j->n + 1, sizeof *j->items);
	j->part = calloc((size_t)j->n + 1, sizeof *j->part);
	followers = calloc((size_t)j->n + 1, sizeof *followers);
	if (!j->items || !j->part || !followers) {
		j->n = 0;
		note(j, TF_RESOURCE_EXHAUSTED, "out of memory");
		goto out;
	}
	if (!name) {
		int joins = known(JOINS, 0, 0);
		int at = joins ? snprintf(counted, sizeof counted, "noname.%d.", joins) : snprintf(counted, sizeof counted, "noname.");
		snprintf(counted + at, sizeof counted - (size_t)at, "%d", known(COUNTS + k->kind, k->set, 1));
		name = counted;
	}
	tf.TF_GetInput(j->ctx, inputs - 1, &world, s);
	if (noted(j, s))
		goto out;
	j->ranks = *(const int32_t *)tf.TF_TensorData(world);
	for (int i = 0; i < j->n; i++)
		if (take(j, i, s))
			goto out;
	if (k->kind == ALLTOALL) {
		tf.TF_GetInput(j->ctx, 1, &splits, s);
		if (noted(j, s))
			goto out;
		if (tf.TF_TensorType(splits) != TF_INT32 || tf.TF_NumDims(splits) != 1) {
			note(j, TF_INVALID_ARGUMENT, "alltoall expects splits to be a vector of 32-bit integers");
			goto out;
		}
		nsplits = (int)tf.TF_Dim(splits, 0);
		split = nsplits ? tf.TF_TensorData(splits) : NULL;
	}
	if (lay_out(j))
		goto out;
	atomic_fetch_add(&j->open, j->parts);
	int going = 0;
	for (int i = j->parts - 1; i >= 0; i--) {
		int leads = i == 0 && j->part[0].block && j->parts > 1;
		if (submit(j, i, name, split, nsplits, leads ? followers : NULL, leads ? going : 0))
			break;
		followers[going++] = j->part[i].handle;
	}
	for (int i = 0; i < j->parts; i++)
		if (!j->part[i].started || engine.then(j->part[i].handle, one_ended, j))
			atomic_fetch_sub(&j->open, 1);
out:
	free(followers);
	if (world)
		tf.TF_DeleteTensor(world);
	if (splits)
		tf.TF_DeleteTensor(splits);
	tf.TF_DeleteStatus(s);
	one_ended(j);
}

/* movable reports whether a callback of TensorFlow has the form that it has had in all versions so far: a std::function of
 * libstdc++, which is four words, and the last two are functions of one library, the manager and the invoker. All callbacks
 * have the same two, which are remembered: dladdr() searches the symbols of TensorFlow, for a millisecond. */
static int movable(void *const *done) {
	static void *moved[2];
	Dl_info manager, invoker;
	pthread_mutex_lock(&mu);
	int known = done[2] && done[2] == moved[0] && done[3] == moved[1];
	pthread_mutex_unlock(&mu);
	if (known)
		return 1;
	if (!done[2] || !done[3] || !dladdr(done[2], &manager) || !dladdr(done[3], &invoker) || !manager.dli_fbase ||
	    manager.dli_fbase != invoker.dli_fbase)
		return 0;
	pthread_mutex_lock(&mu);
	moved[0] = done[2], moved[1] = done[3];
	pthread_mutex_unlock(&mu);
	return 1;
}

static struct job *begin(const void *kernel, TF_OpKernelContext *ctx) {
	struct job *j = calloc(1, sizeof *j);
	if (!j) {
		TF_Status *s = tf.TF_NewStatus();
		tf.TF_SetStatus(s, TF_RESOURCE_EXHAUSTED, "gorun: out of memory");
		tf.TF_OpKernelContext_Failure(ctx, s);
		tf.TF_DeleteStatus(s);
		return NULL;
	}
	j->kernel = kernel;
	j->ctx = ctx;
	return j;
}

/* compute waits for the end. */
static void compute(void *kernel, TF_OpKernelContext *ctx) {
	struct job *j = begin(kernel, ctx);
	if (!j)
		return;
	j->waited = 1;
	launch(j);
	pthread_mutex_lock(&mu);
	while (!j->ended)
		pthread_cond_wait(&came, &mu);
	pthread_mutex_unlock(&mu);
	free(j);
}

/* compute_async moves TensorFlow's callback, which lies on the caller's stack, and returns. */
static void compute_async(void *kernel, TF_OpKernelContext *ctx, void *done) {
	struct job *j;
	if (!movable(done)) {
		compute(kernel, ctx);
		tf.TF_RunAsyncOpKernelDoneCallback(done);
		return;
	}
	if (!(j = begin(kernel, ctx))) {
		tf.TF_RunAsyncOpKernelDoneCallback(done);
		return;
	}
	memcpy(j->done, done, sizeof j->done);
	((void **)done)[2] = ((void **)done)[3] = NULL; /* the caller's is empty now */
	launch(j);
}

static char *text_of(TF_OpKernelConstruction *c, const char *name, TF_Status *s) {
	int32_t list, size;
	tf.TF_OpKernelConstruction_GetAttrSize(c, name, &list, &size, s);
	char *text = tf.TF_GetCode(s) ? NULL : calloc(1, (size_t)size + 1);
	if (text)
		tf.TF_OpKernelConstruction_GetAttrString(c, name, text, (size_t)size, s);
	return text;
}

static void *create(TF_OpKernelConstruction *c, int kind) {
	struct kernel *k = calloc(1, sizeof *k);
	TF_Status *s = tf.TF_NewStatus();
	char *name = text_of(c, "tensor_name", s);
	if (k && name) {
		k->kind = kind;
		k->prescale = k->postscale = 1;
		tf.TF_OpKernelConstruction_GetAttrInt32(c, "process_set", &k->set, s);
		if (kind == ALLREDUCE || kind == REDUCESCATTER) {
			tf.TF_OpKernelConstruction_GetAttrInt32(c, "reduce_op", &k->op, s);
			tf.TF_OpKernelConstruction_GetAttrFloat(c, "prescale_factor", &k->prescale, s);
			tf.TF_OpKernelConstruction_GetAttrFloat(c, "postscale_factor", &k->postscale, s);
		}
		if (kind == BROADCAST)
			tf.TF_OpKernelConstruction_GetAttrInt32(c, "root_rank", &k->root, s);
		if (!name[0]) { /* take the name of the node */
			TF_StringView node = tf.TF_OpKernelConstruction_GetName(c);
			free(name);
			if ((name = calloc(1, node.len + 1)))
				memcpy(name, node.data, node.len);
		}
		if (name && !strcmp(name, "#")) { /* called eagerly, without a name */
			free(name);
			name = NULL;
		}
		k->name = name;
	} else if (!tf.TF_GetCode(s))
		tf.TF_SetStatus(s, TF_RESOURCE_EXHAUSTED, "gorun: out of memory");
	if (tf.TF_GetCode(s))
		tf.TF_OpKernelConstruction_Failure(c, s);
	tf.TF_DeleteStatus(s);
	return k;
}

static void delete_kernel(void *kernel) {
	struct kernel *k = kernel;
	if (k)
		free(k->name);
	free(k);
}

static void *create_allreduce(TF_OpKernelConstruction *c) { return create(c, ALLREDUCE); }
static void *create_allgather(TF_OpKernelConstruction *c) { return create(c, ALLGATHER); }
static void *create_broadcast(TF_OpKernelConstruction *c) { return create(c, BROADCAST); }
static void *create_alltoall(TF_OpKernelConstruction *c) { return create(c, ALLTOALL); }
static void *create_reducescatter(TF_OpKernelConstruction *c) { return create(c, REDUCESCATTER); }
static create_function *const creates[KINDS] = {create_allreduce, create_allgather, create_broadcast, create_alltoall,
						create_reducescatter};

/* GorunWorld returns what gorun_tensorflow_fact set last. It is stateful, so that TensorFlow runs it each time and
 * folds nothing that depends on it into a constant. */
struct question {
	int32_t what, set;
};

static void *create_world(TF_OpKernelConstruction *c) {
	struct question *q = calloc(1, sizeof *q);
	TF_Status *s = tf.TF_NewStatus();
	if (q) {
		tf.TF_OpKernelConstruction_GetAttrInt32(c, "what", &q->what, s);
		tf.TF_OpKernelConstruction_GetAttrInt32(c, "process_set", &q->set, s);
	} else
		tf.TF_SetStatus(s, TF_RESOURCE_EXHAUSTED, "gorun: out of memory");
	if (tf.TF_GetCode(s))
		tf.TF_OpKernelConstruction_Failure(c, s);
	tf.TF_DeleteStatus(s);
	return q;
}

static void compute_world(void *kernel, TF_OpKernelContext *ctx) {
	const struct question *q = kernel;
	int32_t value = known(q->what, q->set, 0);
	TF_Status *s = tf.TF_NewStatus();
	TF_Tensor *t = tf.TF_AllocateOutput(ctx, 0, TF_INT32, NULL, 0, sizeof value, s);
	if (tf.TF_GetCode(s))
		tf.TF_OpKernelContext_Failure(ctx, s);
	else
		memcpy(tf.TF_TensorData(t), &value, sizeof value);
	if (t)
		tf.TF_DeleteTensor(t);
	tf.TF_DeleteStatus(s);
}

/* GorunCount counts an event of the graph that it is in. It is stateful, as it has no result. */
static void compute_count(void *kernel, TF_OpKernelContext *ctx) {
	(void)ctx;
	gorun_count_event(((const struct question *)kernel)->what);
}

/* ---- registration ---- */

/* same_shapes gives outputs the shapes of the inputs, except the last input, the world. */
static void same_shapes(TF_ShapeInferenceContext *ctx, TF_Status *s) {
	TF_ShapeHandle *h = tf.TF_NewShapeHandle();
	int64_t n = tf.TF_ShapeInferenceContextNumInputs(ctx) - 1;
	for (int i = 0; i < n && !tf.TF_GetCode(s); i++) {
		tf.TF_ShapeInferenceContextGetInput(ctx, i, h, s);
		if (!tf.TF_GetCode(s))
			tf.TF_ShapeInferenceContextSetOutput(ctx, i, h, s);
	}
	tf.TF_DeleteShapeHandle(h);
}

static void unknown_shapes(TF_ShapeInferenceContext *ctx, TF_Status *s) {
	tf.TF_ShapeInferenceContextSetUnknownShape(ctx, s);
}

static void check(TF_Status *s, const char *op) {
	if (tf.TF_GetCode(s))
		fprintf(stderr, "gorun: warning: register %s with TensorFlow: %s\n", op, tf.TF_Message(s));
}

static void define(int kind, TF_Status *s) {
	const char *op = kinds[kind].op;
	TF_OpDefinitionBuilder *b = tf.TF_NewOpDefinitionBuilder(op);
	int same = kind == ALLREDUCE || kind == BROADCAST;
	if (kind == ALLTOALL) {
		tf.TF_OpDefinitionBuilderAddAttr(b, "T: type");
		tf.TF_OpDefinitionBuilderAddInput(b, "tensor: T");
		tf.TF_OpDefinitionBuilderAddInput(b, "splits: int32");
		tf.TF_OpDefinitionBuilderAddInput(b, "world: int32");
		tf.TF_OpDefinitionBuilderAddOutput(b, "result: T");
		tf.TF_OpDefinitionBuilderAddOutput(b, "rows: int32");
	} else {
		tf.TF_OpDefinitionBuilderAddAttr(b, "T: list(type) >= 1");
		tf.TF_OpDefinitionBuilderAddInput(b, "tensors: T");
		tf.TF_OpDefinitionBuilderAddInput(b, "world: int32");
		tf.TF_OpDefinitionBuilderAddOutput(b, "results: T");
		if (kind == ALLGATHER) {
			tf.TF_OpDefinitionBuilderAddAttr(b, "N: int >= 1");
			tf.TF_OpDefinitionBuilderAddOutput(b, "rows: N * int32");
		}
	}
	tf.TF_OpDefinitionBuilderAddAttr(b, "tensor_name: string = ''");
	tf.TF_OpDefinitionBuilderAddAttr(b, "process_set: int = 0");
	if (kind == ALLREDUCE || kind == REDUCESCATTER) {
		tf.TF_OpDefinitionBuilderAddAttr(b, "reduce_op: int = 1");
		tf.TF_OpDefinitionBuilderAddAttr(b, "prescale_factor: float = 1.0");
		tf.TF_OpDefinitionBuilderAddAttr(b, "postscale_factor: float = 1.0");
	}
	if (kind == BROADCAST)
		tf.TF_OpDefinitionBuilderAddAttr(b, "root_rank: int");
	tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(b, same ? same_shapes : unknown_shapes);
	tf.TF_RegisterOpDefinition(b, s);
	check(s, op);
	TF_KernelBuilder *k = tf.TF_NewAsyncKernelBuilder
				      ? tf.TF_NewAsyncKernelBuilder(op, "CPU", creates[kind], compute_async, delete_kernel)
				      : tf.TF_NewKernelBuilder(op, "CPU", creates[kind], compute, delete_kernel);
	tf.TF_RegisterKernelBuilder(op, k, s);
	check(s, op);
}

/* define_small registers an operation about a process set that has no input. */
static void define_small(const char *op, const char *output, create_function *create, compute_function *compute, TF_Status *s) {
	TF_OpDefinitionBuilder *b = tf.TF_NewOpDefinitionBuilder(op);
	tf.TF_OpDefinitionBuilderAddAttr(b, "what: int = 1");
	tf.TF_OpDefinitionBuilderAddAttr(b, "process_set: int = 0");
	if (output)
		tf.TF_OpDefinitionBuilderAddOutput(b, output);
	tf.TF_OpDefinitionBuilderSetIsStateful(b, 1);
	tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(b, unknown_shapes);
	tf.TF_RegisterOpDefinition(b, s);
	check(s, op);
	TF_KernelBuilder *k = tf.TF_NewKernelBuilder(op, "CPU", create, compute, free);
	tf.TF_RegisterKernelBuilder(op, k, s);
	check(s, op);
}

/* find looks up TensorFlow's functions, and reports whether all required ones are there. */
static int find(void) {
	void *library = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		library = dlopen(NULL, RTLD_LAZY);
#define LOOK_UP(type, name, arguments) *(void **)&tf.name = dlsym(library, #name);
	FUNCTIONS(LOOK_UP)
	ASYNC_FUNCTIONS(LOOK_UP)
#define MISSING(type, name, arguments) \
	if (!tf.name) \
		return 0;
	FUNCTIONS(MISSING)
	if (!tf.TF_RunAsyncOpKernelDoneCallback)
		tf.TF_NewAsyncKernelBuilder = NULL;
	return 1;
}

/* register_operations runs when the library is loaded. It does nothing unless tf.load_op_library() loads it, because
 * TensorFlow finds only operations that are registered then: Python sets a variable around that call. */
__attribute__((constructor)) static void register_operations(void) {
	if (!getenv("_GORUN_TENSORFLOW") || !find())
		return;
	gorun_open_counters(); /* this copy of the library may join no world */
	pthread_atfork(hold, let_go, forked);
	TF_Status *s = tf.TF_NewStatus();
	for (int kind = 0; kind < KINDS; kind++)
		define(kind, s);
	define_small("GorunWorld", "value: int32", create_world, compute_world, s);
	define_small("GorunCount", NULL, create_world, compute_count, s);
	tf.TF_DeleteStatus(s);
}
