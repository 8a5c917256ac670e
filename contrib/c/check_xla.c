/* What must hold for the custom calls of XLA, run as a program of 1, 2, 3… ranks (`make c FACES=yes`), under the sanitizers of memory and
 * of threads, with a stand-in for XLA. It prints what is wrong, and exits with 1. */
#define _GNU_SOURCE
#include "xla.c" /* for the types of the interface */

#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- XLA ---- */

struct error {
	int code;
	char text[600];
};

struct future {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	int over;
	error *error;
};

static error *create_error(struct error_arguments *a) {
	error *e = calloc(1, sizeof *e);
	CHECK(e && a->size == sizeof *a);
	e->code = a->code;
	snprintf(e->text, sizeof e->text, "%s", a->message);
	return e;
}

static error *create_future(struct future_arguments *a) {
	a->future = calloc(1, sizeof *a->future);
	CHECK(a->future && a->size == sizeof *a);
	pthread_mutex_init(&a->future->mu, NULL);
	pthread_cond_init(&a->future->changed, NULL);
	return NULL;
}

static error *complete(struct future_arguments *a) {
	pthread_mutex_lock(&a->future->mu);
	a->future->over++;
	a->future->error = a->error;
	pthread_cond_broadcast(&a->future->changed);
	pthread_mutex_unlock(&a->future->mu);
	return NULL;
}

static const struct api api = {
	.size = sizeof api,
	.version = {.size = sizeof api.version, .minor = 1},
	.create_error = create_error,
	.create_future = create_future,
	.set_available = complete,
	.set_error = complete,
};

/* ---- calls ---- */

enum { F32 = 11, MOST = 4 };

struct numbers {
	const char *name;
	int64_t op, root, members;
	double scale;
};

/* A call of a handler, with all that XLA passes to it. */
struct given {
	struct frame frame;
	struct buffer in[MOST], out[MOST];
	struct buffer *ins[MOST], *outs[MOST];
	int64_t dims[2 * MOST][2];
	struct numbers numbers;
	struct span texts[6], *names[6];
	struct scalar scalars[5];
	struct span name;
	void *values[6];
	int kinds[6], n;
};

static struct buffer *buffer(struct given *g, struct buffer *b, int64_t *dims, int64_t rows, int64_t columns) {
	dims[0] = rows, dims[1] = columns;
	*b = (struct buffer){.size = sizeof *b, .type = F32, .ndim = 2, .dims = dims};
	b->data = malloc((size_t)(rows * columns) * sizeof(float));
	CHECK(b->data || !rows || !columns);
	CHECK(g->n <= MOST);
	return b;
}

/* tensors adds an input and an output. Each number of the input depends on its place and on the rank. */
static void tensors(struct given *g, int64_t rows, int64_t out_rows, int64_t columns) {
	int i = g->n++;
	g->ins[i] = buffer(g, &g->in[i], g->dims[2 * i], rows, columns);
	g->outs[i] = buffer(g, &g->out[i], g->dims[2 * i + 1], out_rows, columns);
	for (int64_t k = 0; k < rows * columns; k++)
		((float *)g->in[i].data)[k] = (float)((int)(k % 5) * (rank + 1));
}

static float number_of(const struct given *g, int output, size_t i) { return ((float *)g->out[output].data)[i]; }

static void attribute_of(struct given *g, int i, const char *name, int kind, void *value) {
	g->texts[i] = (struct span){name, strlen(name)};
	g->names[i] = &g->texts[i];
	g->kinds[i] = kind;
	g->values[i] = value;
}

static error *invoke(struct given *g, gorun_kind kind, struct numbers numbers) {
	g->numbers = numbers;
	g->name = (struct span){numbers.name, strlen(numbers.name)};
	attribute_of(g, 0, "name", ATTRIBUTE_STRING, &g->name);
	const void *const places[] = {&g->numbers.op, &g->numbers.root, &g->numbers.members, &g->numbers.scale, &g->numbers.scale};
	static const char *const called[] = {"op", "root", "members", "prescale", "postscale"};
	for (int i = 0; i < 5; i++) {
		g->scalars[i] = (struct scalar){i < 3 ? TYPE_S64 : TYPE_F64, places[i]};
		attribute_of(g, i + 1, called[i], ATTRIBUTE_SCALAR, &g->scalars[i]);
	}
	g->frame = (struct frame){.size = sizeof g->frame, .api = &api,
				  .in = {.count = g->n, .list = g->ins}, .out = {.count = g->n, .list = g->outs},
				  .attributes = {.count = 6, .types = g->kinds, .names = g->names, .list = g->values}};
	return handle(&g->frame, kind);
}

/* await returns the error of a call, NULL if it ended well. XLA keeps the frame until then. */
static error *await(struct given *g) {
	future *f = g->frame.future;
	CHECK(f);
	pthread_mutex_lock(&f->mu);
	while (!f->over)
		pthread_cond_wait(&f->changed, &f->mu);
	CHECK(f->over == 1);
	pthread_mutex_unlock(&f->mu);
	error *e = f->error;
	pthread_mutex_destroy(&f->mu);
	pthread_cond_destroy(&f->changed);
	free(f);
	return e;
}

static void dispose(struct given *g) {
	for (int i = 0; i < g->n; i++) {
		free(g->in[i].data);
		free(g->out[i].data);
	}
	memset(g, 0xff, sizeof *g);
}

static void refused(error *e, int code, const char *word) {
	CHECK(e && e->code == code && strstr(e->text, word));
	free(e);
}

/* ---- what must hold ---- */

static void sums(const char *name, int64_t rows, int count) {
	struct given g = {.n = 0};
	for (int i = 0; i < count; i++)
		tensors(&g, rows + i, rows + i, 3);
	CHECK(!invoke(&g, GORUN_ALLREDUCE, (struct numbers){name, GORUN_SUM, 0, 0, 2}) && !await(&g));
	for (int i = 0; i < count; i++)
		for (size_t k = 0; k < 3 * (size_t)(rows + i); k++)
			CHECK(number_of(&g, i, k) == 4 * total() * (float)(k % 5));
	dispose(&g);
}

static void others(const char *name) {
	struct given g = {.n = 0};
	tensors(&g, 3, 3 * size, 2);
	CHECK(!invoke(&g, GORUN_ALLGATHER, (struct numbers){name, 0, 0, size, 1}) && !await(&g));
	CHECK(number_of(&g, 0, 6 * (size_t)size - 2) == (float)(4 * size));
	dispose(&g);
	g = (struct given){.n = 0};
	tensors(&g, 4, 4, 2);
	CHECK(!invoke(&g, GORUN_BROADCAST, (struct numbers){name, 0, size - 1, 0, 1}) && !await(&g));
	CHECK(number_of(&g, 0, 4) == (float)(4 * size));
	dispose(&g);
	g = (struct given){.n = 0};
	tensors(&g, size, size, 2);
	CHECK(!invoke(&g, GORUN_ALLTOALL, (struct numbers){name, 0, 0, size, 1}) && !await(&g));
	CHECK(number_of(&g, 0, 2 * (size_t)size - 1) == (float)((2 * rank + 1) % 5 * size));
	dispose(&g);
	g = (struct given){.n = 0};
	tensors(&g, 2 * size, 2, 1);
	CHECK(!invoke(&g, GORUN_REDUCESCATTER, (struct numbers){name, GORUN_SUM, 0, 0, 1}) && !await(&g));
	CHECK(number_of(&g, 0, 1) == total() * (float)((2 * rank + 1) % 5));
	dispose(&g);
}

/* Calls of one name take turns, and calls of several are under way at once. */
static void turns(int thread) {
	enum { CALLS = 6 };
	struct given calls[CALLS];
	char names[2][32];
	for (int i = 0; i < 2; i++)
		snprintf(names[i], sizeof names[i], "turns %d.%d", thread, i);
	for (int i = 0; i < CALLS; i++) {
		calls[i] = (struct given){.n = 0};
		tensors(&calls[i], 10 + i, 10 + i, 5);
		CHECK(!invoke(&calls[i], GORUN_ALLREDUCE, (struct numbers){names[i % 2], GORUN_SUM, 0, 0, 1}));
	}
	for (int i = CALLS - 1; i >= 0; i--) {
		CHECK(!await(&calls[i]) && number_of(&calls[i], 0, 4) == 4 * total());
		dispose(&calls[i]);
	}
}

static void mistakes(void) {
	struct given g = {.n = 0};
	tensors(&g, 2, 2, 2), tensors(&g, 2, 2, 2);
	refused(invoke(&g, GORUN_ALLGATHER, (struct numbers){"two", 0, 0, size, 1}), INVALID_ARGUMENT, "a type that gorun lacks");
	g.in[1].type = 12;
	refused(invoke(&g, GORUN_ALLREDUCE, (struct numbers){"types", GORUN_SUM, 0, 0, 1}), INVALID_ARGUMENT, "several types");
	dispose(&g);
	if (size == 1)
		return;
	g = (struct given){.n = 0};
	tensors(&g, 3 + rank, 3 + rank, 2);
	CHECK(!invoke(&g, GORUN_ALLREDUCE, (struct numbers){"mismatch", GORUN_SUM, 0, 0, 1}));
	refused(await(&g), ABORTED, "gorun 2: ");
	dispose(&g);
	g = (struct given){.n = 0};
	tensors(&g, 1 + rank, (1 + rank) * size, 2);
	CHECK(!invoke(&g, GORUN_ALLGATHER, (struct numbers){"rows", 0, 0, size, 1}));
	refused(await(&g), ABORTED, "the same number of rows");
	dispose(&g);
}

static void versions(void) {
	struct metadata m = {.size = sizeof m};
	struct metadata_extension extension = {.base = {sizeof extension, EXTENSION_METADATA, NULL}, .metadata = &m};
	struct frame f = {.size = sizeof f, .extensions = &extension.base, .api = &api};
	CHECK(!gorun_xla_allreduce(&f) && m.version.minor == 1);
	struct api older = api;
	older.version.minor = 0;
	f.extensions = NULL, f.api = &older;
	refused(gorun_xla_alltoall(&f), FAILED_PRECONDITION, "jaxlib 0.5");
}

/* A child of fork gets an error, whatever the threads of its parent held. It allocates memory, for which the sanitizers have locks
 * that a fork does not know. */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
static void child(void) {}
#else
static void child(void) {
	for (int round = 0; round < 10; round++) {
		pid_t pid = fork();
		if (!pid) {
			struct given g = {.n = 0};
			alarm(60);
			tensors(&g, 3, 3, 2);
			refused(invoke(&g, GORUN_ALLREDUCE, (struct numbers){"child", GORUN_SUM, 0, 0, 1}), FAILED_PRECONDITION, "init");
			_exit(0);
		}
		int status = 1;
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	}
}
#endif

enum { THREADS = 4, ROUNDS = 8 };

static void *work(void *which) {
	int thread = (int)(intptr_t)which;
	char name[32];
	for (int round = 0; round < ROUNDS; round++) {
		snprintf(name, sizeof name, "%d", thread);
		sums(name, round % 3 == 0 ? 0 : 20000, 1 + round % 3);
		others(name);
		turns(thread);
	}
	return NULL;
}

int main(void) {
	struct given early = {.n = 0};
	tensors(&early, 1, 1, 1);
	refused(invoke(&early, GORUN_ALLREDUCE, (struct numbers){"early", GORUN_SUM, 0, 0, 1}), FAILED_PRECONDITION, "init");
	dispose(&early);
	pthread_t threads[THREADS];
	for (int life = 0; life < 2; life++) {
		if (gorun_init())
			fprintf(stderr, "%s\n", gorun_error());
		rank = gorun_rank(), size = gorun_size();
		versions();
		mistakes();
		sums("pieces", 1 << 20, 2);
		for (int i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&threads[i], NULL, work, (void *)(intptr_t)(rank % 2 ? THREADS - 1 - i : i)));
		child();
		for (int i = 0; i < THREADS; i++)
			CHECK(!pthread_join(threads[i], NULL));
		CHECK(!gorun_finalize());
	}
	printf("XLA, %d ranks: ok\n", size);
	return 0;
}
