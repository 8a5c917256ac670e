/* What must hold for the operations of TensorFlow, run as a program of 1, 2, 3… ranks (`make c FACES=yes`), under the sanitizers of memory
 * and of threads, with stand-ins for TensorFlow's functions. It prints what is wrong, and exits with 1. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- TensorFlow ---- */

enum { FLOAT = 1, INT32 = 3, STRING = 7, INT64 = 9 };
enum { INVALID_ARGUMENT = 3, FAILED_PRECONDITION = 9 };
enum { MOST = 8 };

typedef struct {
	int code;
	char text[1100];
} TF_Status;

typedef struct {
	int references, type, ndim;
	int64_t dims[4];
	size_t bytes;
	void *data;
} TF_Tensor;

typedef struct {
	TF_Tensor *in[MOST], *out[MOST];
	int inputs, keeps, code; /* keeps: something else needs the inputs, so they do not become outputs */
	char text[1100];
	pthread_mutex_t mu;
	pthread_cond_t changed;
	int over, destroyed;
} TF_OpKernelContext;

typedef struct {
	const char *tensor_name;
	int op, root, set, what, failed;
} TF_OpKernelConstruction;

typedef struct {
	const char *data;
	size_t len;
} TF_StringView;

typedef struct {
	char op[32];
	void *(*create)(TF_OpKernelConstruction *);
	void (*compute)(void *, TF_OpKernelContext *);
	void (*start)(void *, TF_OpKernelContext *, void *);
	void (*remove)(void *);
} TF_KernelBuilder;

typedef struct {
	char name[32];
	int stateful, has_shape;
} TF_OpDefinitionBuilder;

static TF_KernelBuilder kernels[MOST];
static int kernel_count, definition_count;
static const int bytes_of_type[] = {[FLOAT] = 4, [INT32] = 4, [STRING] = 8, [INT64] = 8};

#pragma GCC visibility push(default)
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

TF_Status *TF_NewStatus(void) { return calloc(1, sizeof(TF_Status)); }
void TF_DeleteStatus(TF_Status *s) { free(s); }
void TF_SetStatus(TF_Status *s, int code, const char *text) {
	s->code = code;
	snprintf(s->text, sizeof s->text, "%s", text);
}
int TF_GetCode(const TF_Status *s) { return s->code; }
const char *TF_Message(const TF_Status *s) { return s->text; }

static TF_Tensor *tensor(int type, const int64_t *dims, int ndim) {
	TF_Tensor *t = calloc(1, sizeof *t);
	CHECK(t && ndim <= 4);
	t->references = 1, t->type = type, t->ndim = ndim, t->bytes = (size_t)bytes_of_type[type];
	for (int i = 0; i < ndim; i++)
		t->dims[i] = dims[i], t->bytes *= (size_t)dims[i];
	t->data = malloc(t->bytes);
	CHECK(t->data || !t->bytes);
	return t;
}

void TF_DeleteTensor(TF_Tensor *t) {
	if (__atomic_sub_fetch(&t->references, 1, __ATOMIC_ACQ_REL))
		return;
	free(t->data);
	free(t);
}
int TF_TensorType(const TF_Tensor *t) { return t->type; }
int TF_NumDims(const TF_Tensor *t) { return t->ndim; }
int64_t TF_Dim(const TF_Tensor *t, int i) { return t->dims[i]; }
size_t TF_TensorByteSize(const TF_Tensor *t) { return t->bytes; }
void *TF_TensorData(const TF_Tensor *t) { return t->data; }

static TF_Tensor *again(TF_Tensor *t) {
	__atomic_add_fetch(&t->references, 1, __ATOMIC_ACQ_REL);
	return t;
}
int TF_NumInputs(TF_OpKernelContext *c) { return c->inputs; }
void TF_GetInput(TF_OpKernelContext *c, int i, TF_Tensor **t, TF_Status *s) {
	(void)s;
	*t = again(c->in[i]);
}
TF_Tensor *TF_AllocateOutput(TF_OpKernelContext *c, int i, int type, const int64_t *dims, int ndim, size_t bytes, TF_Status *s) {
	(void)s;
	TF_Tensor *t = tensor(type, dims, ndim);
	CHECK(t->bytes == bytes && !c->out[i]);
	return again(c->out[i] = t);
}
TF_Tensor *TF_ForwardInputOrAllocateOutput(TF_OpKernelContext *c, const int *candidates, int n, int i, const int64_t *dims, int ndim,
					   int *forwarded, TF_Status *s) {
	TF_Tensor *in = c->in[candidates[0]];
	CHECK(n == 1);
	*forwarded = -1;
	if (c->keeps)
		return TF_AllocateOutput(c, i, in->type, dims, ndim, in->bytes, s);
	*forwarded = candidates[0];
	return again(c->out[i] = again(in));
}
void TF_OpKernelContext_Failure(TF_OpKernelContext *c, TF_Status *s) {
	c->code = s->code;
	memcpy(c->text, s->text, sizeof c->text);
}

void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction *c, TF_Status *s) { c->failed = s->code; }
TF_StringView TF_OpKernelConstruction_GetName(TF_OpKernelConstruction *c) {
	(void)c;
	return (TF_StringView){"node", 4};
}
void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction *c, const char *name, int32_t *list, int32_t *n, TF_Status *s) {
	(void)name, (void)s;
	*list = -1;
	*n = (int32_t)strlen(c->tensor_name);
}
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction *c, const char *name, char *text, size_t n, TF_Status *s) {
	(void)name, (void)s;
	memcpy(text, c->tensor_name, n);
}
void TF_OpKernelConstruction_GetAttrInt32(TF_OpKernelConstruction *c, const char *name, int32_t *value, TF_Status *s) {
	if (!strcmp(name, "process_set"))
		*value = c->set;
	else if (!strcmp(name, "reduce_op"))
		*value = c->op;
	else if (!strcmp(name, "root_rank"))
		*value = c->root;
	else if (!strcmp(name, "what"))
		*value = c->what;
	else
		TF_SetStatus(s, INVALID_ARGUMENT, "no such attribute");
}
void TF_OpKernelConstruction_GetAttrFloat(TF_OpKernelConstruction *c, const char *name, float *value, TF_Status *s) {
	(void)c, (void)s;
	*value = strcmp(name, "prescale_factor") ? 0.5F : 2;
}

static TF_KernelBuilder *builder(const char *op) {
	TF_KernelBuilder *k = calloc(1, sizeof *k);
	CHECK(k && strlen(op) < sizeof k->op);
	snprintf(k->op, sizeof k->op, "%s", op);
	return k;
}
TF_KernelBuilder *TF_NewKernelBuilder(const char *op, const char *device, void *(*create)(TF_OpKernelConstruction *),
				      void (*compute)(void *, TF_OpKernelContext *), void (*remove)(void *)) {
	TF_KernelBuilder *k = builder(op);
	CHECK(!strcmp(device, "CPU"));
	k->create = create, k->compute = compute, k->remove = remove;
	return k;
}
TF_KernelBuilder *TF_NewAsyncKernelBuilder(const char *op, const char *device, void *(*create)(TF_OpKernelConstruction *),
					   void (*start)(void *, TF_OpKernelContext *, void *), void (*remove)(void *)) {
	TF_KernelBuilder *k = builder(op);
	CHECK(!strcmp(device, "CPU"));
	k->create = create, k->start = start, k->remove = remove;
	return k;
}
void TF_RegisterKernelBuilder(const char *name, TF_KernelBuilder *k, TF_Status *s) {
	(void)name, (void)s;
	CHECK(kernel_count < MOST);
	kernels[kernel_count++] = *k;
	free(k);
}
TF_OpDefinitionBuilder *TF_NewOpDefinitionBuilder(const char *name) {
	TF_OpDefinitionBuilder *b = calloc(1, sizeof *b);
	CHECK(b);
	snprintf(b->name, sizeof b->name, "%s", name);
	return b;
}
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder *b, TF_Status *s) {
	(void)s;
	CHECK(b->has_shape && b->stateful == (!strcmp(b->name, "GorunWorld") || !strcmp(b->name, "GorunCount")));
	definition_count++;
	free(b);
}
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder *b, const char *text) { CHECK(b && strchr(text, ':')); }
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder *b, const char *text) { CHECK(b && strchr(text, ':')); }
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder *b, const char *text) { CHECK(b && strchr(text, ':')); }
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder *b, _Bool on) { b->stateful = on; }
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder *b, void *function) { b->has_shape = function != NULL; }
/* Shapes are TensorFlow's own business; the tests in Python look at them. */
int64_t TF_ShapeInferenceContextNumInputs(void *c) { return c != NULL; }
void *TF_NewShapeHandle(void) { return NULL; }
void TF_DeleteShapeHandle(void *h) { (void)h; }
void TF_ShapeInferenceContextGetInput(void *c, int i, void *h, TF_Status *s) { (void)c, (void)i, (void)h, (void)s; }
void TF_ShapeInferenceContextSetOutput(void *c, int i, void *h, TF_Status *s) { (void)c, (void)i, (void)h, (void)s; }
void TF_ShapeInferenceContextSetUnknownShape(void *c, TF_Status *s) { (void)c, (void)s; }

/* A callback has the form of a std::function: two words of its own, a manager and an invoker. */
typedef struct {
	void *words[2];
	void (*manager)(void *, void *, int);
	void (*invoker)(void *);
} callback;

void TF_RunAsyncOpKernelDoneCallback(callback *done) {
	TF_OpKernelContext *c = done->words[0];
	CHECK(done->words[1] == &kernels);
	pthread_mutex_lock(&c->mu);
	c->over++;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->mu);
}

int gorun_tensorflow_fact(int what, int set, int value);
#pragma GCC visibility pop

static void manage(void *to, void *from, int operation) {
	TF_OpKernelContext *c = ((callback *)from)->words[0];
	CHECK(to == from && operation == 3);
	pthread_mutex_lock(&c->mu);
	c->destroyed++;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->mu);
}

static void invoke(void *unused) { (void)unused; }

/* ---- calls ---- */

/* A call of a kernel, with all that belongs to it. */
typedef struct {
	TF_OpKernelContext context;
	const TF_KernelBuilder *builder;
	void *kernel;
	int inputs;
} call;

static void make(call *c, const char *op, TF_OpKernelConstruction construction) {
	memset(c, 0, sizeof *c);
	for (int i = 0; i < kernel_count; i++)
		if (!strcmp(kernels[i].op, op))
			c->builder = &kernels[i];
	CHECK(c->builder);
	c->kernel = c->builder->create(&construction);
	CHECK(c->kernel && !construction.failed);
	pthread_mutex_init(&c->context.mu, NULL);
	pthread_cond_init(&c->context.changed, NULL);
}

/* give adds an input. Each number depends on its place and on the rank. */
static TF_Tensor *give(call *c, int type, int64_t rows, int64_t columns) {
	TF_Tensor *t = tensor(type, (int64_t[]){rows, columns}, columns ? 2 : 1);
	for (size_t i = 0; i < t->bytes / (size_t)bytes_of_type[type]; i++)
		if (type == FLOAT)
			((float *)t->data)[i] = (float)((int)(i % 5) * (rank + 1));
		else if (type == INT64)
			((int64_t *)t->data)[i] = (int64_t)(i % 5) * (rank + 1);
	return c->context.in[c->context.inputs++] = t;
}

static void give_world(call *c) {
	TF_Tensor *t = tensor(INT32, NULL, 0);
	*(int32_t *)t->data = size;
	c->context.in[c->context.inputs++] = t;
}

/* begin calls the kernel. Its callback lies on the stack of the caller, as in TensorFlow. */
static void begin(call *c, int movable) {
	callback done = {{&c->context, &kernels}, manage, movable ? invoke : free};
	give_world(c);
	c->builder->start(c->kernel, &c->context, &done);
	CHECK((done.manager == NULL) == movable && (done.invoker == NULL) == movable);
	if (!movable)
		c->context.destroyed++;
	memset(&done, 0xff, sizeof done);
}

static void end(call *c) {
	TF_OpKernelContext *x = &c->context;
	pthread_mutex_lock(&x->mu);
	while (!x->over || !x->destroyed)
		pthread_cond_wait(&x->changed, &x->mu);
	pthread_mutex_unlock(&x->mu);
	CHECK(x->over == 1 && x->destroyed == 1);
}

static void dispose(call *c) {
	for (int i = 0; i < MOST; i++) {
		if (c->context.in[i])
			TF_DeleteTensor(c->context.in[i]);
		if (c->context.out[i]) {
			CHECK(c->context.out[i]->references == 1);
			TF_DeleteTensor(c->context.out[i]);
		}
	}
	c->builder->remove(c->kernel);
	pthread_mutex_destroy(&c->context.mu);
	pthread_cond_destroy(&c->context.changed);
}

static void run(call *c) {
	begin(c, 1);
	end(c);
}

static void refused(call *c, int code, const char *word) {
	run(c);
	CHECK(c->context.code == code && strstr(c->context.text, word));
	dispose(c);
}

static float number(const call *c, int output, size_t i) {
	const TF_Tensor *t = c->context.out[output];
	return t->type == INT64 ? (float)((int64_t *)t->data)[i] : ((float *)t->data)[i];
}

/* ---- what must hold ---- */

static atomic_int searches;

/* dladdr counts its calls: it takes long in a library as large as TensorFlow. */
int dladdr(const void *address, Dl_info *info) {
	int (*search)(const void *, Dl_info *);
	*(void **)&search = dlsym(RTLD_NEXT, "dladdr");
	searches++;
	return search(address, info);
}

static void sums(const char *name, int64_t rows, int keeps, int movable) {
	call c;
	make(&c, "GorunAllreduce", (TF_OpKernelConstruction){.tensor_name = name, .op = GORUN_SUM});
	c.context.keeps = keeps;
	give(&c, FLOAT, rows, 3);
	begin(&c, movable);
	end(&c);
	CHECK(!c.context.code && c.context.out[0]->bytes == (size_t)rows * 12);
	for (size_t i = 0; i < (size_t)rows * 3; i++)
		CHECK(number(&c, 0, i) == total() * (float)(i % 5));
	dispose(&c);
}

/* Tensors of two types travel as two operations, one after the other. */
static void several(const char *name, int keeps) {
	call c;
	make(&c, "GorunAllreduce", (TF_OpKernelConstruction){.tensor_name = name, .op = GORUN_SUM});
	c.context.keeps = keeps;
	for (int i = 0; i < 4; i++)
		give(&c, i % 2 ? INT64 : FLOAT, 100 * i, 0);
	run(&c);
	CHECK(!c.context.code);
	for (int t = 0; t < 4; t++)
		for (size_t i = 0; i < 100 * (size_t)t; i++)
			CHECK(number(&c, t, i) == total() * (float)(i % 5));
	dispose(&c);
	make(&c, "GorunBroadcast", (TF_OpKernelConstruction){.tensor_name = name, .root = size - 1});
	c.context.keeps = keeps;
	give(&c, FLOAT, 7, 0), give(&c, INT64, 3, 2), give(&c, FLOAT, 0, 0);
	run(&c);
	CHECK(!c.context.code && number(&c, 0, 6) == (float)size && number(&c, 1, 4) == (float)(4 * size));
	dispose(&c);
}

static void gathers(const char *name) {
	call c;
	make(&c, "GorunAllgather", (TF_OpKernelConstruction){.tensor_name = name});
	give(&c, FLOAT, rank + 1, 2), give(&c, INT64, 1, 0);
	run(&c);
	CHECK(!c.context.code && (float)c.context.out[0]->dims[0] == total() && c.context.out[1]->dims[0] == size);
	for (int r = 0; r < size; r++)
		CHECK(((int32_t *)c.context.out[2]->data)[r] == r + 1 && ((int32_t *)c.context.out[3]->data)[r] == 1);
	CHECK(number(&c, 0, 1) == 1);
	dispose(&c);
	make(&c, "GorunAlltoall", (TF_OpKernelConstruction){.tensor_name = name});
	give(&c, FLOAT, size, 4);
	TF_Tensor *splits = tensor(INT32, (int64_t[]){size}, 1);
	for (int r = 0; r < size; r++)
		((int32_t *)splits->data)[r] = 1;
	c.context.in[c.context.inputs++] = splits;
	run(&c);
	CHECK(!c.context.code && c.context.out[0]->dims[0] == size && ((int32_t *)c.context.out[1]->data)[size - 1] == 1);
	CHECK(number(&c, 0, (size_t)(size - 1) * 4) == (float)(rank * 4 % 5 * size));
	dispose(&c);
	make(&c, "GorunReducescatter", (TF_OpKernelConstruction){.tensor_name = name, .op = GORUN_SUM});
	give(&c, FLOAT, 2 * size, 1);
	run(&c);
	CHECK(!c.context.code && c.context.out[0]->dims[0] == 2 && number(&c, 0, 1) == total() * (float)((2 * rank + 1) % 5));
	dispose(&c);
}

static void mistakes(void) {
	call c;
	make(&c, "GorunAllreduce", (TF_OpKernelConstruction){.tensor_name = "strings", .op = GORUN_SUM});
	give(&c, STRING, 2, 0);
	refused(&c, INVALID_ARGUMENT, "of this type");
	make(&c, "GorunAlltoall", (TF_OpKernelConstruction){.tensor_name = "splits"});
	give(&c, FLOAT, size, 0), give(&c, FLOAT, size, 0);
	refused(&c, INVALID_ARGUMENT, "splits");
	for (int n = 1; n <= 3 && size > 1; n += 2) {
		make(&c, "GorunAllreduce", (TF_OpKernelConstruction){.tensor_name = "mismatch", .op = GORUN_SUM});
		for (int i = 0; i < n; i++)
			give(&c, i == 1 ? INT64 : FLOAT, 3 + (i == n - 1 ? rank : 0), 0);
		refused(&c, FAILED_PRECONDITION, "rank");
	}
}

static void world(void) {
	call c;
	CHECK(!gorun_tensorflow_fact(1, 5, 42));
	make(&c, "GorunWorld", (TF_OpKernelConstruction){.tensor_name = "", .what = 1, .set = 5});
	c.builder->compute(c.kernel, &c.context);
	CHECK(!c.context.code && *(int32_t *)c.context.out[0]->data == 42);
	dispose(&c);
	make(&c, "GorunCount", (TF_OpKernelConstruction){.tensor_name = ""});
	c.builder->compute(c.kernel, &c.context);
	CHECK(!c.context.code && !c.context.out[0]);
	dispose(&c);
}

/* A rank counts its steps in the page that its daemon reads. A child of fork leaves the page to it. */
static void steps(void) {
	enum { STEP = 2, AT_STEPS = 1 }; /* the number of the event, and the place of the counter */
	const char *path = getenv("GORUN_COUNTERS");
	int fd = path ? open(path, O_RDONLY) : -1;
	CHECK(fd >= 0);
	volatile const uint64_t *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(page != MAP_FAILED && !close(fd));
	call c;
	make(&c, "GorunCount", (TF_OpKernelConstruction){.tensor_name = "", .what = STEP});
	for (int turn = 0; turn < 2; turn++) { /* before the first step, and after it */
		uint64_t before = page[AT_STEPS];
		pid_t pid = fork();
		if (!pid) {
			alarm(60);
			c.builder->compute(c.kernel, &c.context);
			_exit(0);
		}
		int status = 1;
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
		CHECK(page[AT_STEPS] == before);
		c.builder->compute(c.kernel, &c.context);
		CHECK(page[AT_STEPS] == before + 1);
	}
	dispose(&c);
	CHECK(!munmap((void *)(uintptr_t)page, 4096));
}

enum { THREADS = 4, ROUNDS = 12 };

static void *work(void *which) {
	int thread = (int)(intptr_t)which;
	char name[32];
	for (int round = 0; round < ROUNDS; round++) {
		snprintf(name, sizeof name, "%d.%d", thread, round % 3);
		sums(name, round % 3 == 0 ? 2 : round % 3 == 1 ? 0 : 30000, round % 2, 1);
		several(name, round % 2);
		gathers(name);
	}
	return NULL;
}

/* A child of fork gets an error, whatever the threads of its parent held. It allocates memory and starts a thread, for which the
 * sanitizers have locks that a fork does not know. */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
static void child(void) {}
#else
static void child(void) {
	for (int round = 0; round < 5; round++) {
		pid_t pid = fork();
		if (!pid) {
			call c;
			make(&c, "GorunAllreduce", (TF_OpKernelConstruction){.tensor_name = "#", .op = GORUN_SUM});
			give(&c, FLOAT, 3, 0);
			alarm(60);
			run(&c);
			_exit(!c.context.code || !strstr(c.context.text, "forked"));
		}
		int status = 1;
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	}
}
#endif

int main(int argc, char **argv) {
	(void)argc;
	if (!getenv("_GORUN_TENSORFLOW")) { /* TensorFlow looks only at what is registered while it loads a library */
		setenv("_GORUN_TENSORFLOW", "1", 1);
		execv("/proc/self/exe", argv);
	}
	if (gorun_init())
		fprintf(stderr, "%s\n", gorun_error());
	rank = gorun_rank(), size = gorun_size();
	CHECK(kernel_count == 7 && definition_count == 7);
	CHECK(!gorun_tensorflow_fact(0, 0, rank));
	for (int i = 0; i < 3; i++) {
		sums("#", 5, i % 2, 1);
		sums("blocks", 5000, i % 2, 0); /* a callback of a form that is not known */
	}
	CHECK(searches == 2 + 3 * 2); /* of the first callback, and of those of another form */
	mistakes();
	world();
	steps();
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, (void *)(intptr_t)(rank % 2 ? THREADS - 1 - i : i)));
	child();
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	sums("last", 5, 0, 1);
	CHECK(!gorun_finalize());
	printf("TensorFlow, %d ranks: ok\n", size);
	return 0;
}
