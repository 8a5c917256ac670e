/* libgorun for XLA: custom calls by XLA's foreign function interface, for jax.ffi. XLA finds the handlers by their addresses,
 * which Python passes on (contrib/python/gorun/jax/compiled.py), so this file compiles and loads without XLA.
 *
 * A handler copies its tensors, starts the operation and returns a future, which the thread of gorun_then completes. No thread
 * of XLA waits for another rank, so any number of operations may be under way, in any order on each rank. The exception is a
 * small program: XLA runs its steps one after the other, so their order must be the same on all ranks. Operations of one name
 * take turns: the call in a compiled program that has the name may run again before its last run has ended. All ranks run it
 * equally often. */
#include "gorun.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define EVENT_STEP 2

/* gorun.c has these. */
__attribute__((visibility("hidden"))) void gorun_count_event(int event);
__attribute__((visibility("hidden"))) size_t gorun_element_bytes(int type);

/* ---- XLA's side: major version 0 of its interface, from minor version 1 (jaxlib 0.5) on ---- */

#define ATTRIBUTE_SCALAR 3
#define ATTRIBUTE_STRING 4
#define EXTENSION_METADATA 1
#define TYPE_S32 4
#define TYPE_S64 5
#define TYPE_F64 12
#define INVALID_ARGUMENT 3
#define FAILED_PRECONDITION 9
#define ABORTED 10

typedef struct error error;   /* of XLA, opaque */
typedef struct future future; /* the same */

struct extension {
	size_t size;
	int type;
	struct extension *next;
};

struct version {
	size_t size;
	struct extension *extensions;
	int major, minor;
};

struct metadata {
	size_t size;
	struct version version; /* the one that the handler is made for */
	uint32_t traits;
};

struct metadata_extension {
	struct extension base;
	struct metadata *metadata;
};

struct error_arguments {
	size_t size;
	struct extension *extensions;
	const char *message;
	int code;
};

struct future_arguments {
	size_t size;
	struct extension *extensions;
	future *future;
	error *error; /* the error of the call, which XLA takes */
};

typedef error *future_function(struct future_arguments *);

struct api {
	size_t size;
	struct extension *extensions;
	struct version version;
	const void *internal;
	error *(*create_error)(struct error_arguments *);
	void (*get_message)(void);
	void (*destroy_error)(void);
	void (*others[10])(void); /* of registrations, contexts, states, memory and threads */
	future_function *create_future, *set_available, *set_error;
};

struct span {
	const char *data;
	size_t size;
};

struct scalar {
	int type;
	const void *value;
};

struct buffer {
	size_t size;
	struct extension *extensions;
	int type;
	void *data;
	int64_t ndim;
	int64_t *dims;
};

struct buffers {
	size_t size;
	struct extension *extensions;
	int64_t count;
	const int *types;
	struct buffer **list;
};

struct attributes {
	size_t size;
	struct extension *extensions;
	int64_t count;
	const int *types;
	struct span **names;
	void **list;
};

struct frame {
	size_t size;
	struct extension *extensions;
	const struct api *api;
	void *context;
	int stage;
	struct buffers in, out;
	struct attributes attributes;
	future *future; /* set by a handler that returns before the end */
};

/* type_of returns the element type of a buffer, 0 for one that gorun does not have. */
static int type_of(int type) {
	static const unsigned char types[] = {
		[1] = GORUN_BOOL, [2] = GORUN_INT8, [3] = GORUN_INT16, [4] = GORUN_INT32, [5] = GORUN_INT64, [6] = GORUN_UINT8,
		[7] = GORUN_UINT16, [8] = GORUN_UINT32, [9] = GORUN_UINT64, [10] = GORUN_FLOAT16, [11] = GORUN_FLOAT32,
		[12] = GORUN_FLOAT64, [15] = GORUN_COMPLEX64, [16] = GORUN_BFLOAT16, [18] = GORUN_COMPLEX128,
	};
	return type > 0 && (size_t)type < sizeof types ? types[type] : 0;
}

static error *refuse(const struct api *api, int code, const char *text) {
	struct error_arguments a = {.size = sizeof a, .message = text, .code = code};
	return api->create_error(&a);
}

/* ---- work ---- */

#define PIECE_BYTES ((size_t)8 << 20) /* bytes of a piece of an allreduce: while one is reduced, others are copied */

struct part {
	const char *in;
	char *out;
	size_t bytes;
};

/* The work of one call of a handler. */
struct work {
	struct work *next; /* the next one that waits for the same name */
	struct line *line;
	const struct api *api;
	future *future;
	gorun_call call;
	size_t bytes, element; /* the size of all parts, and of an element */
	size_t out_bytes;
	int members; /* the size of the process set if all its ranks must bring the same number of rows, otherwise 0 */
	int open;    /* pieces under way, and 1 while more may be started */
	int code;
	char text[512];
	int64_t dims[32]; /* of the first tensor: XLA's do not outlive the call of the handler */
	int count;
	struct part parts[];
};

/* A piece of the tensors of an allreduce, or a whole operation of another kind. */
struct piece {
	struct work *work;
	gorun_handle handle;
	char *block; /* memory of the arena, or NULL */
	size_t from, bytes;
};

/* A line is a name, and the operations of that name take turns. */
struct line {
	struct line *next;
	int busy;
	struct work *first, *last; /* the works that wait */
	char name[];
};

#define LINES 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line *lines[LINES];

/* copy copies bytes between a block and the parts, as if the parts were one tensor. */
static void copy(const struct work *w, char *block, size_t from, size_t bytes, int out) {
	size_t at = 0;
	for (int i = 0; i < w->count && bytes; at += w->parts[i++].bytes) {
		const struct part *p = &w->parts[i];
		if (from >= at + p->bytes)
			continue;
		size_t skip = from - at, n = p->bytes - skip < bytes ? p->bytes - skip : bytes;
		if (out)
			memcpy(p->out + skip, block, n);
		else
			memcpy(block, p->in + skip, n);
		block += n, from += n, bytes -= n;
	}
}

static void begin(struct work *w);

/* close_piece gives up one reference to a work: a piece's, or the one held while pieces start. The last one ends the work. */
static void close_piece(struct work *w, int code) {
	const char *why = code ? gorun_error() : NULL;
	pthread_mutex_lock(&lock);
	if (code && !w->code) {
		w->code = code;
		snprintf(w->text, sizeof w->text, "gorun %d: %s", code, why);
	}
	int open = --w->open;
	pthread_mutex_unlock(&lock);
	if (open)
		return;
	struct future_arguments a = {.size = sizeof a, .future = w->future};
	if (w->code)
		a.error = refuse(w->api, ABORTED, w->text);
	(w->code ? w->api->set_error : w->api->set_available)(&a);
	pthread_mutex_lock(&lock);
	struct work *next = w->line->first;
	if (!next)
		w->line->busy = 0;
	else if (!(w->line->first = next->next))
		w->line->last = NULL;
	pthread_mutex_unlock(&lock);
	free(w);
	if (next)
		begin(next);
}

/* reduced is called at the end of a piece of an allreduce. */
static void reduced(void *argument) {
	struct piece *p = argument;
	struct work *w = p->work;
	char *block = p->block;
	int code = gorun_wait(p->handle, NULL);
	if (!code && block)
		copy(w, block, p->from, p->bytes, 1);
	free(p);
	close_piece(w, code);
	if (block)
		gorun_free(block);
}

/* brought is called at the end of an operation whose result has memory of its own. */
static void brought(void *argument) {
	struct piece *p = argument;
	struct work *w = p->work;
	gorun_result result;
	int code = gorun_wait(p->handle, &result);
	free(p);
	if (!code) {
		int same = result.bytes == w->out_bytes;
		for (int i = 0; i < w->members && same && result.counts; i++)
			same = result.counts[i] == result.rows / w->members;
		if (same)
			memcpy(w->parts[0].out, result.data, result.bytes);
		code = gorun_release(&result);
		if (!same && !code) {
			pthread_mutex_lock(&lock);
			w->code = GORUN_MISMATCH;
			snprintf(w->text, sizeof w->text,
				 "gorun %d: %s: inside of jit all ranks bring the same number of rows", GORUN_MISMATCH, w->line->name);
			pthread_mutex_unlock(&lock);
		}
	}
	close_piece(w, code);
}

/* start starts an operation and has a function called at its end. */
static int start(struct piece *p, const gorun_call *call, gorun_done then) {
	int code = gorun_start(call, &p->handle);
	if (code)
		return code;
	pthread_mutex_lock(&lock);
	p->work->open++;
	pthread_mutex_unlock(&lock);
	if ((code = gorun_then(p->handle, then, p))) { /* no memory for a thread: wait here */
		then(p);
		return GORUN_OK;
	}
	return GORUN_OK;
}

/* reduce starts an allreduce of all parts, in pieces that lie in the arena. */
static int reduce(struct work *w) {
	size_t most = PIECE_BYTES / w->element * w->element, from = 0;
	int code = GORUN_OK, whole = w->call.op == GORUN_ADASUM || !w->bytes; /* Adasum needs whole tensors */
	for (int k = 0; !code && (from < w->bytes || !k); k++) {
		char name[4096 + 16];
		gorun_call call = w->call;
		struct piece *p = calloc(1, sizeof *p);
		if (!p)
			return GORUN_MEMORY;
		*p = (struct piece){.work = w, .from = from, .bytes = whole || w->bytes - from < most ? w->bytes - from : most};
		int64_t count = (int64_t)(p->bytes / w->element);
		call.ndim = 1, call.dims = &count;
		call.in = w->parts[0].in, call.out = w->parts[0].out;
		if (!whole) {
			if (!(p->block = gorun_alloc_raw(p->bytes))) {
				free(p);
				return GORUN_MEMORY;
			}
			copy(w, p->block, from, p->bytes, 0);
			call.in = call.out = p->block;
		}
		if (k) {
			snprintf(name, sizeof name, "%.4096s.%d", w->line->name, k);
			call.name = name;
		}
		from += p->bytes;
		if ((code = start(p, &call, reduced))) {
			if (p->block)
				gorun_free(p->block);
			free(p);
		}
	}
	return code;
}

static void begin(struct work *w) {
	int code;
	w->open = 1;
	if (w->call.kind == GORUN_ALLREDUCE) {
		code = reduce(w);
	} else {
		struct piece *p = calloc(1, sizeof *p);
		if (!p) {
			code = GORUN_MEMORY;
		} else {
			p->work = w;
			if (w->call.kind == GORUN_BROADCAST && w->bytes && w->call.root == gorun_rank() &&
			    w->parts[0].out != w->parts[0].in)
				memcpy(w->parts[0].out, w->parts[0].in, w->bytes);
			code = start(p, &w->call, w->call.kind == GORUN_BROADCAST ? reduced : brought);
			if (code)
				free(p);
		}
	}
	close_piece(w, code);
}

/* line_of finds or makes the line of a name. The caller holds the lock. */
static struct line *line_of(const struct span *name) {
	size_t hash = 5381;
	for (size_t i = 0; i < name->size; i++)
		hash = hash * 33 + (unsigned char)name->data[i];
	struct line **list = &lines[hash % LINES], *l = *list;
	while (l && (strlen(l->name) != name->size || memcmp(l->name, name->data, name->size)))
		l = l->next;
	if (l || !(l = calloc(1, sizeof *l + name->size + 1)))
		return l;
	memcpy(l->name, name->data, name->size);
	l->next = *list;
	return *list = l;
}

/* ---- handlers ---- */

static const void *attribute(const struct frame *f, const char *name, int type) {
	for (int64_t i = 0; i < f->attributes.count; i++) {
		const struct span *n = f->attributes.names[i];
		if (n->size == strlen(name) && !memcmp(n->data, name, n->size) && f->attributes.types[i] == type)
			return f->attributes.list[i];
	}
	return NULL;
}

static int64_t number(const struct frame *f, const char *name, int64_t otherwise) {
	const struct scalar *s = attribute(f, name, ATTRIBUTE_SCALAR);
	if (s && s->type == TYPE_S64)
		return *(const int64_t *)s->value;
	return s && s->type == TYPE_S32 ? *(const int32_t *)s->value : otherwise;
}

static double scale(const struct frame *f, const char *name) {
	const struct scalar *s = attribute(f, name, ATTRIBUTE_SCALAR);
	return s && s->type == TYPE_F64 ? *(const double *)s->value : 1;
}

static size_t bytes_of(const struct buffer *b, size_t element) {
	for (int64_t i = 0; i < b->ndim; i++)
		element *= (size_t)b->dims[i];
	return element;
}

/* describe answers a query that XLA makes at registration: for which version is the handler? It returns XLA's own version. */
static int describe(const struct frame *f) {
	struct metadata_extension *m = (struct metadata_extension *)(void *)f->extensions;
	if (!m || m->base.type != EXTENSION_METADATA)
		return 0;
	m->metadata->version.major = f->api ? f->api->version.major : 0;
	m->metadata->version.minor = f->api ? f->api->version.minor : 1;
	return 1;
}

static error *handle(struct frame *f, gorun_kind kind) {
	if (describe(f))
		return NULL;
	const struct span *name = attribute(f, "name", ATTRIBUTE_STRING);
	int type = f->in.count ? type_of(f->in.list[0]->type) : 0;
	size_t element = gorun_element_bytes(type);
	if (f->api->version.major != 0 || f->api->version.minor < 1)
		return refuse(f->api, FAILED_PRECONDITION, "gorun.jax needs jaxlib 0.5 or newer, with version 0 of XLA's FFI");
	if (!gorun_joined()) /* nor has a child of fork, where the lock may be held for ever */
		return refuse(f->api, FAILED_PRECONDITION, "gorun.jax has not been initialized; use hvd.init()");
	if (!name || !type || f->out.count < f->in.count || name->size > 4096 || f->in.list[0]->ndim > 32 ||
	    (kind != GORUN_ALLREDUCE && f->in.count != 1))
		return refuse(f->api, INVALID_ARGUMENT, "gorun.jax: an operation without a name, or with tensors of a type that gorun lacks");
	struct work *w = calloc(1, sizeof *w + (size_t)f->in.count * sizeof *w->parts);
	if (!w)
		return refuse(f->api, ABORTED, "gorun.jax: out of memory");
	w->api = f->api;
	w->element = element;
	w->count = (int)f->in.count;
	for (int i = 0; i < w->count; i++) {
		const struct buffer *in = f->in.list[i];
		if (in->type != f->in.list[0]->type) {
			free(w);
			return refuse(f->api, INVALID_ARGUMENT, "gorun.jax: tensors of several types in one operation");
		}
		w->parts[i] = (struct part){in->data, f->out.list[i]->data, bytes_of(in, element)};
		w->bytes += w->parts[i].bytes;
	}
	const struct buffer *in = f->in.list[0];
	w->out_bytes = bytes_of(f->out.list[0], element);
	memcpy(w->dims, in->dims, (size_t)in->ndim * sizeof *w->dims);
	w->members = (int)number(f, "members", 0);
	w->call = (gorun_call){.size = sizeof w->call, .kind = kind, .in = w->parts[0].in, .ndim = (int)in->ndim,
			       .dims = w->dims, .type = (gorun_type)type,
			       .op = (gorun_op)number(f, "op", GORUN_SUM), .root = (int)number(f, "root", 0), .set = (int)number(f, "group", 0),
			       .wire = GORUN_WIRE_DEFAULT, .prescale = scale(f, "prescale"), .postscale = scale(f, "postscale")};
	if (kind == GORUN_BROADCAST)
		w->call.in = w->call.out = w->parts[0].out;
	struct future_arguments a = {.size = sizeof a};
	error *wrong = f->api->create_future(&a);
	if (wrong) {
		free(w);
		return wrong;
	}
	f->future = w->future = a.future;
	if (number(f, "step", 0))
		gorun_count_event(EVENT_STEP);
	pthread_mutex_lock(&lock);
	struct line *l = w->line = line_of(name);
	w->call.name = l ? l->name : NULL;
	int first = l && !l->busy;
	if (first)
		l->busy = 1;
	else if (l && l->last)
		l->last = l->last->next = w;
	else if (l)
		l->first = l->last = w;
	pthread_mutex_unlock(&lock);
	if (!l) {
		struct future_arguments b = {.size = sizeof b, .future = w->future, .error = refuse(f->api, ABORTED, "gorun.jax: out of memory")};
		f->api->set_error(&b);
		free(w);
		return NULL;
	}
	if (first)
		begin(w);
	return NULL;
}

#define HANDLER(name, kind)                                      \
	EXPORT error *gorun_xla_##name(struct frame *f);         \
	EXPORT error *gorun_xla_##name(struct frame *f) { return handle(f, kind); }

HANDLER(allreduce, GORUN_ALLREDUCE)
HANDLER(allgather, GORUN_ALLGATHER)
HANDLER(broadcast, GORUN_BROADCAST)
HANDLER(alltoall, GORUN_ALLTOALL)
HANDLER(reducescatter, GORUN_REDUCESCATTER)
