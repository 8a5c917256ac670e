/* What must hold for the functions of MPI that programs of JAX call, run as a program of 1, 2, 3… ranks (`make c FACES=yes`), under
 * the sanitizers of memory and of threads. It prints what is wrong, and exits with 1. */
#define _GNU_SOURCE
#include "mpitrampoline.c" /* MPItrampoline looks names up; there is no header with them */

#include "check.h"

#include <sys/wait.h>

enum { MOST_RANKS = 8, COUNT = 1000 };

/* all calls every kind of operation on a communicator, whose members have these ranks in the world. */
static void all(handle on, const int *members, int n, int me, int count) {
	int r = -1, s = -1, want = 0, most = 0;
	CHECK(!MPIABI_Comm_rank(on, &r) && !MPIABI_Comm_size(on, &s) && r == me && s == n);
	int32_t *in = malloc(sizeof *in * (size_t)(n * count) + 1), *out = malloc(sizeof *out * (size_t)(n * count) + 1);
	CHECK(in && out);
	for (int i = 0; i < n; i++)
		want += members[i] + 1, most = members[i] + 1 > most ? members[i] + 1 : most;
	for (int i = 0; i < n * count; i++)
		in[i] = (rank + 1) * (i % 7);
	CHECK(!MPIABI_Allreduce(in, out, count, MPIABI_INT32_T, MPIABI_SUM, on));
	for (int i = 0; i < count; i++)
		CHECK(out[i] == want * (i % 7));
	memcpy(out, in, sizeof *in * (size_t)count);
	CHECK(!MPIABI_Allreduce(IN_PLACE, out, count, MPIABI_INT32_T, MPIABI_MAX, on));
	for (int i = 0; i < count; i++)
		CHECK(out[i] == most * (i % 7));
	CHECK(!MPIABI_Allgather(in, count, MPIABI_INT32_T, out, count, MPIABI_INT32_T, on));
	for (int i = 0; i < n * count; i++)
		CHECK(out[i] == (members[i / count] + 1) * (i % count % 7));
	CHECK(!MPIABI_Alltoall(in, count, MPIABI_INT32_T, out, count, MPIABI_INT32_T, on));
	for (int i = 0; i < n * count; i++)
		CHECK(out[i] == (members[i / count] + 1) * ((me * count + i % count) % 7));
	CHECK(!MPIABI_Reduce_scatter_block(in, out, count, MPIABI_INT32_T, MPIABI_SUM, on));
	for (int i = 0; i < count; i++)
		CHECK(out[i] == want * ((me * count + i) % 7));
	for (int root = 0; root < n; root++) {
		memcpy(out, in, sizeof *in * (size_t)count);
		CHECK(!MPIABI_Bcast(out, count, MPIABI_INT32_T, root, on));
		for (int i = 0; i < count; i++)
			CHECK(out[i] == (members[root] + 1) * (i % 7));
	}
	CHECK(!MPIABI_Barrier(on));
	int counts[MOST_RANKS], starts[MOST_RANKS], got[MOST_RANKS], places[MOST_RANKS];
	for (int i = 0, at = 0, to = 0; i < n; i++) { /* i + 1 numbers to member i */
		counts[i] = i + 1, starts[i] = at, at += i + 1;
		got[i] = me + 1, places[i] = to, to += me + 1;
	}
	for (int i = 0; i < n * count; i++)
		in[i] = 100 * rank + i;
	if (n <= count) {
		CHECK(!MPIABI_Alltoallv(in, counts, starts, MPIABI_INT32_T, out, got, places, MPIABI_INT32_T, on));
		for (int i = 0; i < n; i++)
			for (int k = 0; k <= me; k++)
				CHECK(out[places[i] + k] == 100 * members[i] + starts[me] + k);
	}
	if (n > 1) {
		int next = (me + 1) % n, before = (me + n - 1) % n;
		for (int i = 0; i < 3; i++)
			CHECK(!MPIABI_Sendrecv(in, count, MPIABI_INT32_T, next, 7, out, count, MPIABI_INT32_T, before, 7, on, NULL) &&
			      out[0] == 100 * members[before]);
	}
	free(in);
	free(out);
}

enum { SPLITS = 200, CHILDREN = 10 };

/* splits holds the lock most of the time, as each split waits for all ranks. */
static void *splits(void *unused) {
	handle other;
	for (int i = 0; i < SPLITS; i++)
		CHECK(!MPIABI_Comm_split(WORLD, 0, rank, &other) && !MPIABI_Comm_free(&other));
	return unused;
}

/* refused checks the answer that a child of fork gets, and its text as XLA asks for it. */
static void refused(int code) {
	char text[300];
	int n;
	CHECK(code == GORUN_INVALID && !MPIABI_Error_string(code, text, &n) && strstr(text, "forked"));
}

/* A child of fork gets an error, whatever the threads of its parent held. The sanitizer of threads does not like children. */
static void children(void) {
	pthread_t thread;
	int count = CHILDREN;
#if defined __SANITIZE_THREAD__
	count = 0;
#endif
	CHECK(!pthread_create(&thread, NULL, splits, NULL));
	for (int round = 0; round < count; round++) {
		pid_t pid = fork();
		if (!pid) {
			handle other = WORLD;
			int provided, x = 1, peer = rank ? 0 : size - 1;
			alarm(60);
			refused(MPIABI_Comm_split(WORLD, 0, 0, &other));
			CHECK(!other);
			refused(MPIABI_Comm_dup(WORLD, &other));
			refused(MPIABI_Init_thread(NULL, NULL, MULTIPLE, &provided));
			if (size > 1) {
				refused(MPIABI_Send(&x, 1, MPIABI_INT32_T, peer, 0, WORLD));
				refused(MPIABI_Recv(&x, 1, MPIABI_INT32_T, peer, 0, WORLD, NULL));
				refused(MPIABI_Allreduce(IN_PLACE, &x, 1, MPIABI_INT32_T, MPIABI_SUM, WORLD));
			}
			CHECK(!MPIABI_Finalize());
			_exit(0);
		}
		int status = 1;
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	}
	CHECK(!pthread_join(thread, NULL));
}

int main(void) {
	int provided = 0, up = 0, members[MOST_RANKS], number;
	char text[300];
	CHECK(!MPIABI_Initialized(&up) && !up);
	CHECK(!MPIABI_Init_thread(NULL, NULL, MULTIPLE, &provided) && provided == MULTIPLE);
	rank = gorun_rank(), size = gorun_size();
	CHECK(size <= MOST_RANKS && !MPIABI_Initialized(&up) && up && !MPIABI_Is_thread_main(&up) && up);
	CHECK(!MPIABI_Get_library_version(text, &number) && !strcmp(text, "gorun"));
	for (int i = 0; i < size; i++)
		members[i] = i;
	all(WORLD, members, size, rank, 1);
	all(WORLD, members, size, rank, COUNT);
	all(WORLD, members, size, rank, 3 << 20); /* in pieces */
	all(ALONE, &rank, 1, 0, COUNT);
	/* In the opposite order; in two halves, one of them in the opposite order too; and with a rank outside. */
	handle other;
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < size; i++)
			members[i] = size - 1 - i;
		CHECK(!MPIABI_Comm_split(WORLD, 0, -rank, &other));
		all(other, members, size, size - 1 - rank, COUNT);
		CHECK(!MPIABI_Comm_free(&other) && !other);
		int n = 0, me = 0;
		for (int r = rank % 2; r < size; r += 2, n++) {
			int place = rank % 2 ? r / 2 : (size + 1) / 2 - 1 - r / 2;
			members[place] = r;
			me = r == rank ? place : me;
		}
		CHECK(!MPIABI_Comm_split(WORLD, rank % 2, rank % 2 ? rank : -rank, &other));
		all(other, members, n, me, COUNT);
		handle copy;
		CHECK(!MPIABI_Comm_dup(other, &copy));
		all(copy, members, n, me, COUNT);
	}
	CHECK(!MPIABI_Comm_split(WORLD, rank ? UNDEFINED : 3, 0, &other) && !other == !!rank);
	if (!rank)
		all(other, &rank, 1, 0, COUNT);
	children();
	CHECK(!MPIABI_Barrier(WORLD));
	CHECK(!MPIABI_Finalize());
	printf("MPI, %d ranks: ok\n", size);
	return 0;
}
