/* What must hold when threads use the library at once, run as a program of 1, 2, 3… ranks (`make c`), under the sanitizers of memory
 * and of threads. It prints what is wrong, and exits with 1. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int says(const char *word) { return strstr(gorun_error(), word) != NULL; }

/* ---- operations of all kinds, by many threads ---- */

enum { THREADS = 8, ROUNDS = 40 };

static void sum(int thread, int round) {
	char name[32];
	int n = round % 3 == 0 ? 3 : round % 3 == 1 ? 2000 : 30000;
	float *own = malloc(sizeof *own * (size_t)n), *shared = gorun_alloc(sizeof *shared * (size_t)n), *x = round % 2 ? own : shared;
	CHECK(own && shared);
	snprintf(name, sizeof name, "sum %d.%d", thread, round % 3);
	for (int i = 0; i < n; i++)
		x[i] = (float)((rank + 1) * (i % 5 + thread));
	CHECK(!gorun_allreduce(name, x, x, n, GORUN_FLOAT32, GORUN_SUM));
	for (int i = 0; i < n; i++)
		CHECK(x[i] == total() * (float)(i % 5 + thread));
	CHECK(!gorun_free(shared));
	free(own);
}

static void rows(int thread, int round) {
	char name[32];
	int32_t mine[3] = {thread, rank, round};
	const int64_t dims[] = {1, 3, 1};
	gorun_handle handle;
	gorun_result r;
	snprintf(name, sizeof name, "rows %d", thread);
	gorun_call c = gorun_call_of(GORUN_ALLGATHER, name);
	c.in = mine, c.dims = dims, c.ndim = 3, c.type = GORUN_INT32;
	CHECK(!gorun_start(&c, &handle) && !gorun_wait(handle, &r) && r.rows == size && r.bytes == sizeof mine * (size_t)size);
	for (int i = 0; i < size; i++)
		CHECK(((const int32_t(*)[3])r.data)[i][0] == thread && ((const int32_t(*)[3])r.data)[i][1] == i);
	CHECK(!gorun_release(&r));
}

static void begun(int thread, int round) {
	enum { COUNT = 20 };
	gorun_handle handles[COUNT];
	double x[COUNT];
	char name[32];
	for (int i = 0; i < COUNT; i++) {
		x[i] = i + rank;
		snprintf(name, sizeof name, "begun %d.%d", thread, i);
		CHECK(!gorun_start_allreduce(name, &x[i], &x[i], 1, GORUN_FLOAT64, GORUN_AVERAGE, &handles[i]));
	}
	for (int done = round % 2; !done;)
		CHECK(!gorun_test(handles[COUNT - 1], &done));
	for (int i = COUNT - 1; i >= 0; i--)
		CHECK(!gorun_wait(handles[i], NULL) && x[i] == i + (size - 1) / 2.0);
}

/* Each thread has its own last error. */
static void mistakes(int thread) {
	char name[5000];
	CHECK(gorun_broadcast("mistake", NULL, 1 + thread, GORUN_FLOAT32, rank) == GORUN_INVALID && says("no memory"));
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = 0;
	CHECK(gorun_barrier(name) == GORUN_INVALID && says("a name has"));
}

static void *work(void *number) {
	int thread = (int)(intptr_t)number;
	for (int round = 0; round < ROUNDS; round++) {
		sum(thread, round);
		rows(thread, round);
		begun(thread, round);
		mistakes(thread);
		if (round % 8 == thread % 8) { /* the same name in all threads: the ranks agree on an order */
			char name[16];
			snprintf(name, sizeof name, "%d", thread);
			CHECK(!gorun_barrier(name));
		}
	}
	return NULL;
}

static void together(void) {
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, (void *)(intptr_t)(rank % 2 ? THREADS - 1 - i : i)));
	pid_t child = fork(); /* while the threads work */
	if (child == 0)
		_exit(gorun_barrier("child") == GORUN_INVALID && says("forked") &&
			      gorun_init() == (getenv("GORUN_SOCKET") ? GORUN_INVALID : GORUN_OK) && gorun_rank() == rank ? 0 : 1);
	int status = 1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

/* dependent: a thread waits in a slot for a rank that comes only after another thread of this rank has done its part. */
static void *second(void *unused) {
	float y = 1;
	CHECK(!gorun_allreduce("second", &y, &y, 1, GORUN_FLOAT32, GORUN_SUM) && y == (float)size);
	return unused;
}

static void dependent(void) {
	for (int round = 0; round < 30; round++) {
		float x = 1;
		pthread_t thread;
		if (rank == 0) {
			CHECK(!pthread_create(&thread, NULL, second, NULL));
			CHECK(!gorun_allreduce("first", &x, &x, 1, GORUN_FLOAT32, GORUN_SUM) && x == (float)size);
			CHECK(!pthread_join(thread, NULL));
		} else {
			second(NULL);
			CHECK(!gorun_allreduce("first", &x, &x, 1, GORUN_FLOAT32, GORUN_SUM) && x == (float)size);
		}
	}
}

/* ---- callbacks ---- */

struct call {
	gorun_handle handle;
	float x[64];
	int times, code;
	sem_t *over;
};

static void done(void *argument) {
	struct call *c = argument;
	c->times++;
	c->code = gorun_wait(c->handle, NULL);
	sem_post(c->over);
}

static void callbacks(void) {
	enum { COUNT = 300 };
	struct call *calls = calloc(COUNT, sizeof *calls);
	sem_t over;
	CHECK(calls && !sem_init(&over, 0, 0));
	for (int round = 0; round < 5; round++) {
		for (int k = 0; k < COUNT; k++) {
			int i = rank % 2 ? COUNT - 1 - k : k, n = i % 64 + 1;
			char name[32];
			calls[i] = (struct call){.over = &over};
			for (int j = 0; j < n; j++)
				calls[i].x[j] = (float)(rank + 1);
			snprintf(name, sizeof name, "callback %d", i);
			CHECK(!gorun_start_allreduce(name, calls[i].x, calls[i].x, n, GORUN_FLOAT32, GORUN_SUM, &calls[i].handle));
			if (round == 4) /* some have ended by then */
				usleep(10);
			CHECK(!gorun_then(calls[i].handle, done, &calls[i]));
		}
		sum(99, round); /* while callbacks come */
		for (int i = 0; i < COUNT; i++)
			CHECK(!sem_wait(&over));
		for (int i = 0; i < COUNT; i++)
			CHECK(calls[i].times == 1 && !calls[i].code && calls[i].x[i % 64] == total());
	}
	/* Only the callback waits. For an operation that has ended it is called at once. */
	calls[0] = (struct call){.over = &over, .x = {1}};
	CHECK(!gorun_start_allreduce("ended", calls[0].x, calls[0].x, 1, GORUN_FLOAT32, GORUN_SUM, &calls[0].handle));
	for (int ended = 0; !ended;)
		CHECK(!gorun_test(calls[0].handle, &ended));
	CHECK(gorun_then(calls[0].handle, NULL, NULL) == GORUN_INVALID && gorun_then(4711, done, NULL) == GORUN_INVALID);
	CHECK(!gorun_then(calls[0].handle, done, &calls[0]));
	CHECK(!sem_wait(&over) && calls[0].x[0] == (float)size);
	calls[0] = (struct call){.over = &over};
	if (rank == 0) {
		CHECK(!gorun_start_barrier("later", &calls[0].handle) && !gorun_then(calls[0].handle, done, &calls[0]));
		/* With one rank it may have ended, and then a second callback would wait again. */
		CHECK(size == 1 || (gorun_then(calls[0].handle, done, &calls[0]) == GORUN_INVALID && says("already")));
		CHECK(size == 1 || (gorun_wait(calls[0].handle, NULL) == GORUN_INVALID && says("gorun_then")));
		CHECK(!gorun_barrier("now"));
		CHECK(!sem_wait(&over) && calls[0].times == 1 && !calls[0].code);
	} else
		CHECK(!gorun_barrier("now") && !gorun_barrier("later"));
	/* A failure causes a callback too. */
	if (size > 1) {
		calls[0] = (struct call){.over = &over};
		CHECK(!gorun_start_allreduce("differs", calls[0].x, calls[0].x, rank + 1, GORUN_FLOAT32, GORUN_SUM, &calls[0].handle));
		CHECK(!gorun_then(calls[0].handle, done, &calls[0]) && !sem_wait(&over) && calls[0].code == GORUN_MISMATCH);
	}
	CHECK(!sem_destroy(&over));
	free(calls);
}

/* ---- what only gorun_start has ---- */

static void calls(void) {
	gorun_handle h[3];
	gorun_result r;
	const int64_t dims[] = {2, 2};
	float x[4] = {1, 2, 3, 4};
	uint16_t half[4] = {0x3c00, 0xc000, 0x0001, 0x7bff}; /* 1, -2, the least and the largest number */
	gorun_call c = gorun_call_of(GORUN_ALLREDUCE, "scaled");
	c.in = x, c.out = x, c.dims = dims, c.ndim = 2, c.type = GORUN_FLOAT32, c.prescale = 2, c.postscale = 0.25;
	CHECK(!gorun_start(&c, &h[0]) && !gorun_wait(h[0], NULL) && x[3] == 2 * (float)size);
	c.in = half, c.out = half, c.type = GORUN_FLOAT16, c.op = GORUN_MAX, c.prescale = 0.5, c.postscale = 1;
	CHECK(!gorun_start(&c, &h[0]) && !gorun_wait(h[0], NULL));
	CHECK(half[0] == 0x3800 && half[1] == 0xbc00 && half[2] == 0 && half[3] == 0x77ff);
	c.size = 7;
	CHECK(gorun_start(&c, &h[0]) == GORUN_INVALID && gorun_start(NULL, &h[0]) == GORUN_INVALID);
	c = gorun_call_of((gorun_kind)99, "unknown");
	CHECK(gorun_start(&c, &h[0]) == GORUN_INVALID && says("kind"));

	/* Tensors of two types that begin together, and fail together. */
	for (int round = 0; round < 4; round++) {
		double y[2] = {rank, 1};
		float z[3] = {1, 1, 1};
		const int64_t two = 2, three = 3;
		gorun_call first = gorun_call_of(GORUN_ALLREDUCE, "first"), head = gorun_call_of(GORUN_ALLREDUCE, "head");
		first.in = first.out = y, first.dims = &two, first.ndim = 1, first.type = GORUN_FLOAT64, first.follows = 1;
		head.in = head.out = z, head.dims = &three, head.ndim = 1, head.type = GORUN_FLOAT32, head.followers = h, head.nfollowers = 1;
		CHECK(!gorun_start(&first, &h[0]));
		if (round == 3)
			head.name = ""; /* it is refused, and its followers fail */
		int code = gorun_start(&head, &h[1]);
		CHECK(code == (round == 3 ? GORUN_INVALID : GORUN_OK));
		CHECK(round == 3 || !gorun_wait(h[1], NULL));
		code = gorun_wait(h[0], NULL);
		CHECK(round == 3 ? code != GORUN_OK || size == 1 : !code && y[1] == size && z[0] == (float)size);
	}

	/* Sets without waiting, and operations in them. */
	if (size > 1) {
		int32_t members[2] = {0, size - 1};
		c = gorun_call_of(GORUN_ADD_GROUP, "set");
		c.splits = members + 1, c.nsplits = 1;
		CHECK(!gorun_start(&c, &h[0]) && !gorun_wait(h[0], &r) && r.rows == 1 && r.counts[0] > 0);
		int set = (int)r.counts[0];
		CHECK(!gorun_release(&r));
		if (rank == size - 1) {
			float one = 1;
			const int64_t n = 1;
			c = gorun_call_of(GORUN_ALLREDUCE, "in set");
			c.in = c.out = &one, c.dims = &n, c.ndim = 1, c.type = GORUN_FLOAT32, c.set = set;
			CHECK(!gorun_start(&c, &h[0]) && !gorun_wait(h[0], NULL) && one == 1);
		}
		if (rank == 0 || rank == size - 1) {
			/* A set that only its members declare. */
			c = gorun_call_of(GORUN_ADD_GROUP, "own");
			c.splits = members, c.nsplits = 2, c.set = GORUN_DECLARED + 5;
			CHECK(!gorun_start(&c, &h[0]) && !gorun_wait(h[0], NULL));
			c = gorun_call_of(GORUN_BARRIER, "own");
			c.set = GORUN_DECLARED + 5;
			CHECK(!gorun_start(&c, &h[0]) && !gorun_wait(h[0], NULL));
		}
		c = gorun_call_of(GORUN_REMOVE_GROUP, "set");
		c.root = set;
		CHECK(!gorun_start(&c, &h[0]) && !gorun_wait(h[0], NULL));
		/* Who has sent something? */
		int32_t token = 7;
		if (rank == 0)
			CHECK(!gorun_start_send("token", &token, 1, GORUN_INT32, size - 1, &h[0]));
		while (rank == size - 1) {
			c = gorun_call_of(GORUN_PEEK, "token");
			CHECK(!gorun_start(&c, &h[1]) && !gorun_wait(h[1], &r));
			int64_t ranks = r.rows;
			CHECK(ranks == 0 || (ranks == 1 && r.counts[0] == 0));
			CHECK(!gorun_release(&r));
			if (ranks == 1)
				break;
		}
		if (rank == size - 1)
			CHECK(!gorun_recv("token", &token, 1, GORUN_INT32, 0));
		if (rank == 0)
			CHECK(!gorun_wait(h[0], NULL));
	}
	c = gorun_call_of(GORUN_JOIN, "join");
	CHECK(!gorun_start(&c, &h[0]) && !gorun_wait(h[0], &r) && r.counts[0] >= 0 && r.counts[0] < size && !gorun_release(&r));
}

/* ---- the end ---- */

static void *waits(void *handle) {
	int code = gorun_wait(*(gorun_handle *)handle, NULL);
	CHECK(code == GORUN_SHUTDOWN && says("gorun_finalize"));
	return NULL;
}

static void *stuck_in_slot(void *unused) {
	float x = 1;
	int code = gorun_allreduce("slot", &x, &x, 1, GORUN_FLOAT32, GORUN_SUM);
	CHECK(code == GORUN_SHUTDOWN);
	return unused;
}

static sem_t tried;

static void finalizes(void *code) {
	*(int *)code = gorun_finalize();
	sem_post(&tried);
}

static struct call last;

/* left: gorun_finalize ends the waits of all threads. */
static void left(void) {
	pthread_t threads[3];
	gorun_handle alone;
	sem_t over;
	int code = -1;
	gorun_handle h;
	float x = 1;
	CHECK(!sem_init(&over, 0, 0) && !sem_init(&tried, 0, 0));
	CHECK(!gorun_start_barrier("finalizes", &h) && !gorun_then(h, finalizes, &code));
	CHECK(!sem_wait(&tried)); /* or this thread may leave first, and the other one gets that error */
	for (int i = 0; i < 4; i++)
		CHECK(!gorun_allreduce("slot", &x, &x, 1, GORUN_FLOAT32, GORUN_SUM));
	CHECK(!gorun_barrier("before the end"));
	if (rank == 0 && size > 1) {
		last.over = &over;
		CHECK(!gorun_start_barrier("nobody comes", &alone) && !gorun_start_barrier("nobody else comes", &last.handle));
		CHECK(!pthread_create(&threads[0], NULL, waits, &alone) && !pthread_create(&threads[1], NULL, stuck_in_slot, NULL));
		CHECK(!gorun_then(last.handle, done, &last));
		usleep(100000);
	} else if (size > 1)
		usleep(1000000); /* after rank 0 */
	CHECK(!gorun_finalize() && code == GORUN_INVALID);
	if (rank == 0 && size > 1) {
		CHECK(last.times == 1 && last.code == GORUN_SHUTDOWN);
		CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL));
	}
	CHECK(!sem_destroy(&over));
	CHECK(gorun_barrier("late") == GORUN_INVALID && says("gorun_finalize"));
}

int main(void) {
	CHECK(!gorun_joined() && !gorun_init() && gorun_joined());
	rank = gorun_rank(), size = gorun_size();
	together();
	dependent();
	callbacks();
	calls();
	left();
	if (!getenv("GORUN_SOCKET")) /* without gorun the next world is there at once */
		for (int life = 0; life < 3; life++) {
			CHECK(!gorun_init() && gorun_size() == 1);
			callbacks();
			CHECK(!gorun_finalize() && !gorun_joined());
		}
	if (rank == 0)
		printf("C, threads, %d ranks: ok\n", size);
	return 0;
}
