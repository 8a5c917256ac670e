/* What must hold in C, run as a program of 1, 2, 3… ranks on one host (`make c`) or several. It prints what is wrong, and
 * exits with 1. */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* says reports whether the last error contains a text. */
static int says(const char *word) { return strstr(gorun_error(), word) != NULL; }

/* mapped reports whether this process maps memory with that name. */
static int mapped(const char *name) {
	char line[4096];
	int found = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	while (f && !found && fgets(line, sizeof line, f))
		found = strstr(line, name) != NULL;
	CHECK(f && !fclose(f));
	return found;
}

/* reductions: every count around the borders of a vector and of the arena's blocks, again and again under one name. */
static void reductions(void) {
	const int counts[] = {0, 1, 7, 64, 1000, 16384, 100000};
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
		int n = counts[c];
		char name[32];
		float *shared = gorun_alloc(sizeof *shared * (size_t)n), *own = malloc(sizeof *own * (size_t)n + 1);
		CHECK(shared && own);
		snprintf(name, sizeof name, "sum of %d", n);
		for (int round = 0; round < 20; round++) {
			for (int i = 0; i < n; i++)
				own[i] = (float)((i % 7 + round) * (rank + 1));
			/* Input and result may be in any memory. */
			float *in = round % 2 ? own : shared, *out = round % 3 ? in : round % 2 ? shared : own;
			if (in == shared && n)
				memcpy(shared, own, sizeof *shared * (size_t)n);
			CHECK(gorun_allreduce(name, in, out, n, GORUN_FLOAT32, GORUN_SUM) == GORUN_OK);
			for (int i = 0; i < n; i++)
				CHECK(out[i] == (float)((i % 7 + round) * total()));
		}
		CHECK(gorun_free(shared) == GORUN_OK);
		free(own);
	}
	for (int round = 0; round < 5; round++) {
		double d[3] = {rank, -rank, 1};
		CHECK(!gorun_allreduce("average", d, d, 3, GORUN_FLOAT64, GORUN_AVERAGE));
		CHECK(d[0] == (size - 1) / 2.0 && d[1] == -d[0] && d[2] == 1);
		int32_t i32[2] = {rank + 1, -rank};
		CHECK(!gorun_allreduce("int32", i32, i32, 2, GORUN_INT32, GORUN_SUM));
		CHECK(i32[0] == (int32_t)total() && i32[1] == size - (int32_t)total());
		int64_t i64 = (int64_t)1 << 40;
		CHECK(!gorun_allreduce("int64", &i64, &i64, 1, GORUN_INT64, GORUN_SUM));
		CHECK(i64 == (int64_t)size << 40);
		uint8_t least = (uint8_t)(10 + rank), most = least;
		CHECK(!gorun_allreduce("least", &least, &least, 1, GORUN_UINT8, GORUN_MIN) && least == 10);
		CHECK(!gorun_allreduce("most", &most, &most, 1, GORUN_UINT8, GORUN_MAX) && most == 9 + size);
	}
}

/* wide: tensors that stay in place, in memory of gorun, until one of them is in other memory. */
static void wide(void) {
	enum { COUNT = 40000 };
	const size_t room = sizeof(float) * COUNT;
	for (int turn = 0; turn < 3; turn++) {
		float *in = gorun_alloc(2 * room), *out = in + COUNT, *other = gorun_alloc(64 << 20), *own = malloc(room);
		CHECK(in && other && own);
		for (int round = 0; round < 24; round++) {
			/* Rank 1 brings memory of its own every now and then, then in other memory of gorun. */
			float *from = rank == 1 && round % 8 == 5 ? own : rank == 1 && round % 8 == 6 ? other : in;
			float *to = round % 3 ? out : from;
			for (int i = 0; i < COUNT; i++)
				from[i] = (float)((i % 7 + round) * (rank + 1)), to[i] = to == from ? to[i] : -1;
			CHECK(gorun_allreduce("wide", from, to, COUNT, GORUN_FLOAT32, GORUN_SUM) == GORUN_OK);
			for (int i = 0; i < COUNT; i++)
				CHECK(to[i] == (float)((i % 7 + round) * total()));
		}
		/* A rank that does not wait for its sum leaves its part of the work to the daemon. */
		gorun_handle handle;
		for (int i = 0; i < COUNT; i++)
			in[i] = 1;
		CHECK(!gorun_start_allreduce("wide", in, in, COUNT, GORUN_FLOAT32, GORUN_SUM, &handle));
		CHECK(!gorun_wait(handle, NULL) && in[0] == (float)size && in[COUNT - 1] == (float)size);
		CHECK(!gorun_free(in) && !gorun_free(other));
		free(own);
	}
}

/* belt: tensors in ordinary memory, one after the other. Their sizes are no multiples of parts or shares. */
static void belt(void) {
	enum { MOST = 700001 };
	static const int counts[] = {16385, 131072, 131073, MOST, 262147};
	double *in = malloc(sizeof *in * MOST), *out = malloc(sizeof *out * MOST);
	CHECK(in && out);
	for (int round = 0; round < 5; round++)
		for (int k = 0; k < 5; k++) {
			int n = counts[k];
			double *to = k % 2 ? in : out;
			char name[32];
			snprintf(name, sizeof name, "belt %d", k);
			for (int i = 0; i < n; i++)
				in[i] = (i % 1000 + round) * (rank + 1), out[i] = -1;
			CHECK(!gorun_allreduce(name, in, to, n, GORUN_FLOAT64, k == 4 ? GORUN_AVERAGE : GORUN_SUM));
			for (int i = 0; i < n; i++)
				CHECK(to[i] == (k == 4 ? (i % 1000 + round) * total() * (1.0 / size) : (i % 1000 + round) * total()));
		}
	free(in);
	free(out);
}

/* alternating: one name for two tensors in turns, on which all ranks agree. */
static void alternating(void) {
	float x[512];
	for (int round = 0; round < 30; round++) {
		int n = round / 5 % 2 ? 512 : 3;
		for (int i = 0; i < n; i++)
			x[i] = 1;
		CHECK(!gorun_allreduce("alternating", x, x, n, GORUN_FLOAT32, GORUN_SUM));
		for (int i = 0; i < n; i++)
			CHECK(x[i] == (float)size);
	}
}

/* many operations at once. Every rank submits them in its own order, and waits for them in another. */
static void many(void) {
	enum { COUNT = 100 };
	gorun_handle handles[COUNT];
	float x[COUNT];
	for (int round = 0; round < 4; round++) {
		for (int k = 0; k < COUNT; k++) {
			int i = (k * 37 + rank * 11) % COUNT;
			char name[16];
			snprintf(name, sizeof name, "many.%d", i);
			x[i] = (float)(i * (rank + 1));
			CHECK(!gorun_start_allreduce(name, &x[i], &x[i], 1, GORUN_FLOAT32, GORUN_SUM, &handles[i]));
		}
		int done = 0;
		while (!done)
			CHECK(!gorun_test(handles[round], &done));
		for (int i = COUNT - 1; i >= 0; i--) {
			CHECK(!gorun_wait(handles[i], NULL));
			CHECK(x[i] == (float)(i * total()));
		}
		CHECK(gorun_wait(handles[0], NULL) == GORUN_INVALID && says("waited for"));
	}
}

/* neighbours: regions side by side in memory, as the kernel tends to map them, are not confused. */
static void neighbours(void) {
	enum { BYTES = 20 << 20, KEPT = 12 << 20 };
	char *first = gorun_alloc(BYTES), *second = gorun_alloc(BYTES), *kept = gorun_alloc(KEPT);
	float *heap = malloc(BYTES);
	CHECK(first && second && kept && heap);
	memset(kept, 42, KEPT);
	CHECK(!gorun_free(second));
	for (int i = 0; i < BYTES / 4; i++)
		heap[i] = 1;
	CHECK(!gorun_allreduce("neighbours", heap, heap, BYTES / 4, GORUN_FLOAT32, GORUN_SUM) && heap[7] == (float)size);
	char *later[3];
	for (int i = 0; i < 3; i++) {
		CHECK((later[i] = gorun_alloc(KEPT - (i << 20))));
		memset(later[i], i, 4 << 20);
	}
	for (int i = 0; i < KEPT; i++)
		CHECK(kept[i] == 42);
	for (int i = 0; i < 3; i++)
		CHECK(later[i][0] == i && !gorun_free(later[i]));
	CHECK(!gorun_free(kept) && !gorun_free(first));
	free(heap);
}

/* crowd: several times as many operations in flight as a large model has gradients, in opposite orders. */
static void crowd(void) {
	enum { COUNT = 20000 };
	static gorun_handle handles[COUNT];
	static float x[COUNT];
	for (int k = 0; k < COUNT; k++) {
		int i = rank % 2 ? COUNT - 1 - k : k;
		char name[16];
		snprintf(name, sizeof name, "crowd.%d", i);
		x[i] = (float)(rank + 1);
		CHECK(!gorun_start_allreduce(name, &x[i], &x[i], 1, GORUN_FLOAT32, GORUN_SUM, &handles[i]));
	}
	for (int i = 0; i < COUNT; i++)
		CHECK(!gorun_wait(handles[i], NULL) && x[i] == (float)total());
}

static void others(void) {
	int32_t word = rank == size - 1 ? 4711 : 0;
	CHECK(!gorun_broadcast("word", &word, 1, GORUN_INT32, size - 1) && word == 4711);
	CHECK(!gorun_barrier("all here"));

	gorun_result r;
	int16_t rows[8][2];
	for (int i = 0; i < 8; i++)
		rows[i][0] = (int16_t)rank, rows[i][1] = (int16_t)i;
	CHECK(!gorun_allgather("rows", rows, rank % 3 + 1, 2, GORUN_INT16, &r));
	const int16_t *got = r.data;
	int64_t at = 0;
	for (int from = 0; from < size; from++) {
		CHECK(r.counts[from] == from % 3 + 1);
		for (int i = 0; i < r.counts[from]; i++, at++)
			CHECK(got[2 * at] == from && got[2 * at + 1] == i);
	}
	CHECK(r.rows == at && r.bytes == (size_t)at * 4);
	CHECK(!gorun_release(&r));
	CHECK(gorun_release(&r) == GORUN_INVALID);

	int32_t *to = malloc(sizeof *to * (size_t)size), *splits = malloc(sizeof *splits * (size_t)size);
	CHECK(to && splits);
	for (int i = 0; i < size; i++)
		to[i] = 100 * rank + i, splits[i] = 1;
	CHECK(!gorun_alltoall("all to all", to, size, 1, splits, GORUN_INT32, &r) && r.rows == size);
	for (int from = 0; from < size; from++)
		CHECK(r.counts[from] == 1 && ((const int32_t *)r.data)[from] == 100 * from + rank);
	CHECK(!gorun_release(&r));
	CHECK(!gorun_reducescatter("scatter", to, size, 1, GORUN_INT32, GORUN_SUM, &r) && r.rows == 1);
	CHECK(*(const int32_t *)r.data == 100 * size * (size - 1) / 2 + rank * size);
	CHECK(!gorun_release(&r));
	free(to);
	free(splits);
}

/* rooted operations, and operations of two ranks. */
static void rooted(void) {
	gorun_result r;
	int root = size - 1;
	float sum[100];
	for (int i = 0; i < 100; i++)
		sum[i] = (float)(i * (rank + 1));
	CHECK(!gorun_reduce("reduce", sum, 100, GORUN_FLOAT32, GORUN_SUM, root, &r));
	CHECK(r.bytes == (rank == root ? sizeof sum : 0) && !r.counts);
	for (int i = 0; rank == root && i < 100; i++)
		CHECK(((const float *)r.data)[i] == (float)(i * total()));
	CHECK(!gorun_release(&r));

	int16_t rows[4][2];
	for (int i = 0; i < 4; i++)
		rows[i][0] = (int16_t)rank, rows[i][1] = (int16_t)i;
	CHECK(!gorun_gather("gather", rows, rank % 3 + 1, 2, GORUN_INT16, root, &r));
	const int16_t *got = r.data;
	int64_t at = 0;
	for (int from = 0; rank == root && from < size; from++) {
		CHECK(r.counts[from] == from % 3 + 1);
		for (int i = 0; i < r.counts[from]; i++, at++)
			CHECK(got[2 * at] == from && got[2 * at + 1] == i);
	}
	CHECK(r.bytes == (size_t)at * 4 && !gorun_release(&r));

	int32_t *to = malloc(sizeof *to * 3 * (size_t)size), *splits = malloc(sizeof *splits * (size_t)size);
	CHECK(to && splits);
	for (int i = 0; i < 3 * size; i++)
		to[i] = i;
	for (int i = 0, left = 3 * size; i < size; i++, left -= splits[i - 1])
		splits[i] = i == size - 1 ? left : 2;
	CHECK(!gorun_scatter("scatter rows", rank == root ? to : NULL, rank == root ? 3 * size : 0, 1, splits, GORUN_INT32, root, &r));
	CHECK(r.rows == (rank == size - 1 ? 3 * size - 2 * (size - 1) : 2));
	for (int i = 0; i < r.rows; i++)
		CHECK(((const int32_t *)r.data)[i] == 2 * rank + i);
	CHECK(!gorun_release(&r));
	free(to);
	free(splits);

	if (size == 1) {
		CHECK(gorun_send("alone", sum, 1, GORUN_FLOAT32, 0) == GORUN_INVALID);
		return;
	}
	/* In a circle: all send before any of them waits, from the heap and from shared memory. */
	for (int round = 0; round < 3; round++) {
		int next = (rank + 1) % size, before = (rank + size - 1) % size;
		gorun_handle out, in;
		char name[2][32];
		double sent[50], *shared = gorun_alloc(sizeof sent), heap[50], *into = round ? heap : shared;
		CHECK(shared);
		for (int i = 0; i < 50; i++)
			sent[i] = 100 * rank + i;
		snprintf(name[0], sizeof name[0], "from %d", rank);
		snprintf(name[1], sizeof name[1], "from %d", before);
		CHECK(!gorun_start_send(name[0], sent, 50, GORUN_FLOAT64, next, &out));
		CHECK(!gorun_start_recv(name[1], into, 50, GORUN_FLOAT64, before, &in));
		CHECK(!gorun_wait(in, NULL) && !gorun_wait(out, NULL));
		for (int i = 0; i < 50; i++)
			CHECK(into[i] == 100 * before + i);
		CHECK(!gorun_free(shared));
	}
	CHECK(gorun_send("itself", sum, 1, GORUN_FLOAT32, rank) == GORUN_INVALID && says("itself"));
}

/* reductions of bits, truth and Adasum. */
static void more_reductions(void) {
	uint32_t bits = 1u << rank, truth = (uint32_t)(rank == 0);
	CHECK(!gorun_allreduce("bits", &bits, &bits, 1, GORUN_UINT32, GORUN_BIT_OR) && bits == (1u << size) - 1);
	CHECK(!gorun_allreduce("truth", &truth, &truth, 1, GORUN_UINT32, GORUN_LOGICAL_AND) && truth == (size == 1));
	float same[3] = {1, 2, 3}; /* the Adasum of equal vectors is that vector */
	CHECK(!gorun_allreduce("adasum", same, same, 3, GORUN_FLOAT32, GORUN_ADASUM) && same[0] == 1 && same[2] == 3);
	CHECK(gorun_allreduce("float bits", same, same, 3, GORUN_FLOAT32, GORUN_BIT_AND) == GORUN_INVALID);
	CHECK(!gorun_use_wire(GORUN_WIRE_FLOAT16) && !gorun_allreduce("wire", same, same, 3, GORUN_FLOAT32, GORUN_AVERAGE) && same[1] == 2);
	CHECK(!gorun_use_wire(GORUN_WIRE_DEFAULT) && gorun_use_wire((gorun_wire)9) == GORUN_INVALID);
}

/* sets: all ranks but the first, and the world beside that set. */
static void sets(void) {
	int set = -1, ranks[64], n = 0;
	for (int r = size - 1; r > 0; r--)
		ranks[n++] = r;
	CHECK(gorun_use_set(77) == GORUN_INVALID);
	if (size > 1) {
		CHECK(!gorun_add_set(ranks, n, &set) && set > 0);
		int32_t one = 1;
		gorun_result r;
		for (int round = 0; round < 4; round++) {
			one = 1;
			CHECK(!gorun_allreduce("both", &one, &one, 1, GORUN_INT32, GORUN_SUM) && one == size);
			if (rank == 0)
				continue;
			CHECK(!gorun_use_set(set));
			one = 1;
			CHECK(!gorun_allreduce("both", &one, &one, 1, GORUN_INT32, GORUN_SUM) && one == size - 1);
			int32_t to[64], splits[64];
			for (int i = 0; i < n; i++)
				to[i] = rank, splits[i] = 1;
			CHECK(!gorun_alltoall("all of set", to, n, 1, splits, GORUN_INT32, &r) && r.rows == n);
			for (int i = 0; i < n; i++)
				CHECK(((const int32_t *)r.data)[i] == i + 1);
			CHECK(!gorun_release(&r) && !gorun_use_set(0));
		}
		CHECK(!gorun_remove_set(set) && gorun_use_set(set) == GORUN_INVALID);
	} else {
		ranks[0] = 0;
		CHECK(gorun_add_set(ranks, 1, &set) == GORUN_INVALID);
	}
}

/* uneven: after some steps of all ranks, rank r has r + 1 more with two tensors. When all have joined, they go on. */
static void uneven(void) {
	enum { COUNT = 40000 };
	float *large = gorun_alloc(sizeof *large * COUNT);
	int last = -1;
	CHECK(large);
	for (int part = 0; part < 2; part++) {
		for (int step = -3; step < (part ? 6 : rank + 1); step++) {
			float mine = (float)(step + 10), small = mine, sum = mine * (float)(part || step < 0 ? size : size - step);
			for (int i = 0; i < COUNT; i++)
				large[i] = 2 * mine;
			CHECK(!gorun_allreduce("uneven", &small, &small, 1, GORUN_FLOAT32, GORUN_SUM) && small == sum);
			CHECK(!gorun_allreduce("uneven, large", large, large, COUNT, GORUN_FLOAT32, GORUN_SUM));
			CHECK(large[0] == 2 * sum && large[COUNT - 1] == 2 * sum);
		}
		if (!part)
			CHECK(!gorun_join(&last) && last >= 0 && last < size);
	}
	CHECK(!gorun_free(large));
}

/* begun: a rank still contributes to what it began before it joined, whether the others come to that at once, later or never. */
static void begun(int how) {
	float x = 0, y = 0, ranks = (float)total();
	int last = -1;
	for (int i = 0; i < 4; i++) { /* so that ranks meet under that name without the daemon */
		x = y = (float)(rank + 1);
		CHECK(!gorun_allreduce("begun", &x, &x, 1, GORUN_FLOAT32, GORUN_SUM) && x == ranks);
		CHECK(!gorun_allreduce("beside", &y, &y, 1, GORUN_FLOAT32, GORUN_SUM) && y == ranks);
	}
	x = y = (float)(rank + 1);
	if (rank == 0) {
		gorun_handle handle;
		CHECK(!gorun_start_allreduce("begun", &x, &x, 1, GORUN_FLOAT32, GORUN_SUM, &handle));
		CHECK(!gorun_join(&last));
		CHECK(!gorun_wait(handle, NULL) && x == (how == 0 ? 1 : ranks));
		return;
	}
	usleep(20000);
	if (how == 2)
		CHECK(!gorun_allreduce("beside", &y, &y, 1, GORUN_FLOAT32, GORUN_SUM) && y == ranks - 1);
	if (how > 0) {
		CHECK(!gorun_allreduce("begun", &x, &x, 1, GORUN_FLOAT32, GORUN_SUM) && x == ranks);
		x = (float)(rank + 1);
		CHECK(!gorun_allreduce("begun", &x, &x, 1, GORUN_FLOAT32, GORUN_SUM) && x == ranks - 1);
	}
	CHECK(!gorun_join(&last));
}

/* errors: each has a text, and operations after it work. */
static void errors(void) {
	float x[8] = {0};
	CHECK(gorun_allreduce("", x, x, 1, GORUN_FLOAT32, GORUN_SUM) == GORUN_INVALID && says("name"));
	CHECK(gorun_allreduce("e", x, x, -1, GORUN_FLOAT32, GORUN_SUM) == GORUN_INVALID);
	CHECK(gorun_allreduce("e", x, x, 1, (gorun_type)99, GORUN_SUM) == GORUN_INVALID);
	CHECK(gorun_allreduce("e", x, x, 1, GORUN_FLOAT32, (gorun_op)77) == GORUN_INVALID);
	CHECK(gorun_broadcast("e", x, 1, GORUN_FLOAT32, size) == GORUN_INVALID && says("root"));
	CHECK(gorun_start_allreduce("e", x, x, 1, GORUN_FLOAT32, GORUN_SUM, NULL) == GORUN_INVALID);
	CHECK(gorun_wait(12345, NULL) == GORUN_INVALID);
	CHECK(gorun_free(x) == GORUN_INVALID);
	CHECK(gorun_init() == GORUN_INVALID && says("already"));
	if (size > 1) {
		/* The first time, and again after ranks have met under that name. */
		for (int round = 0; round < 6; round++) {
			int n = round % 3 == 0 && rank == size - 1 ? 2 : 1;
			int code = gorun_allreduce("differs", x, x, n, GORUN_FLOAT32, GORUN_SUM);
			CHECK(code == (round % 3 ? GORUN_OK : GORUN_MISMATCH));
			CHECK(round % 3 || (says("differs") && says("[2]")));
		}
		for (int round = 0; round < 6; round++) {
			float y = 1;
			CHECK(!gorun_use_wire(round % 3 == 2 && rank == size - 1 ? GORUN_WIRE_FLOAT16 : GORUN_WIRE_DEFAULT));
			int code = gorun_allreduce("travels", &y, &y, 1, GORUN_FLOAT32, GORUN_SUM);
			CHECK(code == (round % 3 == 2 ? GORUN_MISMATCH : GORUN_OK));
			CHECK(round % 3 < 2 || says("wire compression fp16"));
		}
		CHECK(!gorun_use_wire(GORUN_WIRE_DEFAULT));
	}
	CHECK(mapped("gorun-mailbox") == (getenv("GORUN_SOCKET") != NULL));
	pid_t child = fork();
	if (child == 0)
		_exit(gorun_barrier("child") == GORUN_INVALID && says("forked") && !mapped("gorun-mailbox") ? 0 : 1);
	int status = 1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!gorun_barrier("still there"));
}

static int start(int kind, gorun_handle *h) {
	static float x[4], y[4];
	switch (kind) {
	case 0:
		return gorun_start_allreduce("taken 0", x, x, 4, GORUN_FLOAT32, GORUN_SUM, h);
	case 1:
		return gorun_start_broadcast("taken 1", y, 4, GORUN_FLOAT32, 0, h);
	case 2:
		return gorun_start_barrier("taken 2", h);
	default:
		return gorun_start_allgather("taken 3", x, 4, 1, GORUN_FLOAT32, h);
	}
}

/* taken: a name is in flight until its rank has waited or tested, however fast the others are. */
static void taken(void) {
	gorun_handle h, again;
	for (int kind = 0; kind < 4; kind++)
		for (int round = 0; round < 6; round++) { /* the first time by the daemon, then in a slot, if there are slots */
			CHECK(!start(kind, &h));
			if (round % 2) {
				CHECK(!gorun_barrier("after taken")); /* all ranks come to it after the first */
				usleep(5000);
			}
			CHECK(start(kind, &again) == GORUN_BUSY && says("in flight"));
			for (int done = 0; round >= 3 && !done;)
				CHECK(!gorun_test(h, &done));
			if (round < 3)
				CHECK(!gorun_wait(h, NULL));
			CHECK(!start(kind, &again) && !gorun_wait(again, NULL));
			if (round >= 3)
				CHECK(!gorun_wait(h, NULL));
		}
}

/* unwaited: a rank that waits for one operation, or tests it, also moves others on that are stuck in a slot. */
static void unwaited(void) {
	for (int round = 0; round < 2 && size > 1; round++) {
		float x[2] = {0}, y = 0;
		for (int i = 0; i < 4; i++) /* so that ranks meet under that name without the daemon */
			CHECK(!gorun_allreduce("unwaited", x, x, 1, GORUN_FLOAT32, GORUN_SUM));
		if (rank == 0) {
			gorun_handle differs, other;
			CHECK(!gorun_start_allreduce("unwaited", x, x, 1, GORUN_FLOAT32, GORUN_SUM, &differs));
			CHECK(!gorun_start_allreduce("the other", &y, &y, 1, GORUN_FLOAT32, GORUN_SUM, &other));
			for (int done = 0; round && !done;)
				CHECK(!gorun_test(other, &done));
			CHECK(!gorun_wait(other, NULL));
			CHECK(gorun_wait(differs, NULL) == GORUN_MISMATCH && says("[2]"));
		} else {
			CHECK(gorun_allreduce("unwaited", x, x, 2, GORUN_FLOAT32, GORUN_SUM) == GORUN_MISMATCH);
			CHECK(!gorun_allreduce("the other", &y, &y, 1, GORUN_FLOAT32, GORUN_SUM));
		}
	}
}

/* busy is the CPU time of this process in seconds. */
static double busy(void) {
	struct rusage u;
	CHECK(!getrusage(RUSAGE_SELF, &u));
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* patience: a rank that waits long for another one sleeps, in slots, in wide ones, and for the daemon. */
static void patience(void) {
	enum { COUNT = 20000 };
	float *x = gorun_alloc(sizeof *x * COUNT);
	CHECK(x);
	for (int wide = 0; wide < 2 && size > 1; wide++) {
		const char *name = wide ? "patience, large" : "patience";
		int n = wide ? COUNT : 4;
		for (int i = 0; i < 4; i++)
			CHECK(!gorun_allreduce(name, x, x, n, GORUN_FLOAT32, GORUN_SUM));
		CHECK(!gorun_barrier("before patience"));
		if (rank == 0)
			usleep(300000);
		double before = busy();
		CHECK(!gorun_allreduce(name, x, x, n, GORUN_FLOAT32, GORUN_SUM));
		CHECK(busy() - before < 0.01);
		if (rank == 0)
			usleep(300000);
		before = busy();
		CHECK(!gorun_barrier("patience"));
		CHECK(busy() - before < 0.01);
	}
	CHECK(!gorun_free(x));
}

/* refused: memory that this process cannot map is an error, and nothing is left of it. */
static void refused(void) {
	const size_t much = 80 << 20; /* more than a rank keeps when it is free */
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f && fscanf(f, "%lu", &pages) == 1 && !fclose(f));
	struct rlimit all, little, now;
	CHECK(!getrlimit(RLIMIT_AS, &all));
	little = all;
	little.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 20);
	CHECK(!setrlimit(RLIMIT_AS, &little) && !getrlimit(RLIMIT_AS, &now));
	void *none = gorun_alloc(much);
	CHECK(!setrlimit(RLIMIT_AS, &all));
	if (now.rlim_cur == little.rlim_cur)
		CHECK(!none && says("memory"));
	else /* an emulator of another CPU keeps its own limit */
		CHECK(none && !gorun_free(none));
	char *memory = gorun_alloc(much);
	CHECK(memory && !memory[much - 1]);
	memory[much - 1] = 1;
	CHECK(!gorun_free(memory));
}

/* pieces: a tensor that lies in several places, small and large, in slots, on the belt, and by the daemon. */
static void pieces(void) {
	static float x[3][300000];
	for (int round = 0; round < 8; round++) {
		const int64_t n[] = {round % 2 ? 7 : 300000, 0, round % 2 ? 1 : 70001}, dims[] = {n[0] + n[1] + n[2]};
		gorun_piece list[3];
		gorun_handle h;
		for (int i = 0; i < 3; i++) {
			list[i] = (gorun_piece){x[i], x[i], sizeof(float) * (size_t)n[i]};
			for (int64_t j = 0; j < n[i]; j++)
				x[i][j] = (float)((rank + 1) * (i + 1 + (int)(j % 9)));
		}
		gorun_call c = gorun_call_of(GORUN_ALLREDUCE, "pieces");
		c.type = GORUN_FLOAT32, c.dims = dims, c.ndim = 1, c.pieces = list, c.npieces = 3;
		CHECK(!gorun_start(&c, &h) && !gorun_wait(h, NULL));
		for (int i = 0; i < 3; i++)
			for (int64_t j = 0; j < n[i]; j++)
				CHECK(x[i][j] == total() * (float)(i + 1 + (int)(j % 9)));
		list[2].bytes -= sizeof(float);
		CHECK(gorun_start(&c, &h) == GORUN_INVALID && says("pieces lack"));
		c.kind = GORUN_ALLGATHER;
		CHECK(gorun_start(&c, &h) == GORUN_INVALID && says("in pieces"));
	}
}

static void on_alarm(int number) { (void)number; }

/* limited: a wait ends after its time, and at a signal; the operation goes on. */
static void limited(void) {
	struct sigaction quick = {.sa_handler = on_alarm};
	struct itimerval soon = {.it_value = {0, 100000}};
	gorun_handle h = 0;
	int ended = 1;
	CHECK(!gorun_barrier("limits begin"));
	if (rank == 0 && size > 1) {
		CHECK(!gorun_start_barrier("limited", &h) && !gorun_test_for(h, 0.05, &ended) && !ended);
		CHECK(!sigaction(SIGALRM, &quick, NULL) && !setitimer(ITIMER_REAL, &soon, NULL));
		CHECK(!gorun_test_for(h, 1e6, &ended) && !ended);
	}
	CHECK(!gorun_barrier("limits end"));
	if (h)
		CHECK(!gorun_test_for(h, 1e6, &ended) && ended && !gorun_wait(h, NULL));
	else
		CHECK(!gorun_barrier("limited"));
}

int main(int argc, char **argv) {
	CHECK(gorun_rank() == -1 && gorun_barrier("early") == GORUN_INVALID && says("gorun_init"));
	CHECK(gorun_init() == GORUN_OK);
	rank = gorun_rank(), size = gorun_size();
	CHECK(rank >= 0 && rank < size && gorun_local_size() <= size);
	CHECK(gorun_local_rank() >= 0 && gorun_local_rank() < gorun_local_size());
	CHECK(gorun_cross_rank() >= 0 && gorun_cross_rank() < gorun_cross_size());
	CHECK(gorun_local_size() < size || (gorun_local_rank() == rank && gorun_cross_size() == 1));
	if (argc > 1) {
		begun(atoi(argv[1]));
		CHECK(gorun_finalize() == GORUN_OK);
		return 0;
	}
	reductions();
	wide();
	belt();
	alternating();
	patience();
	many();
	neighbours();
	others();
	rooted();
	more_reductions();
	sets();
	errors();
	taken();
	unwaited();
	refused();
	crowd(); /* it uses up the names that may have slots */
	uneven();
	pieces();
	limited();
	float *left = gorun_alloc(sizeof *left), *other = gorun_alloc(100 << 20);
	CHECK(left && other);
	*left = 7;
	CHECK(gorun_finalize() == GORUN_OK);
	CHECK(*left == 7 && !other[(25 << 20) - 1] && !gorun_free(left) && !gorun_free(other) && gorun_free(left) == GORUN_INVALID);
	CHECK(gorun_barrier("late") == GORUN_INVALID && says("gorun_finalize"));
	CHECK(!gorun_finalize());
	if (rank == 0)
		printf("C, %d ranks: ok\n", size);
	return 0;
}
