/* The limit of one host: an allreduce between processes whose tensors lie in shared memory already. Every rank reduces
 * its slice of all inputs and writes it to all of them: each byte is read once and written once per rank, which nothing
 * that leaves its result with every rank can avoid. See measure.h for the rules.
 *
 *     cc -O3 -march=native -o limit limit.c -lm && ./limit RANKS SECONDS BYTES...
 *
 * With staged or read before RANKS, tensors lie in memory of each process alone. Staged: they go part by part through shared
 * memory that fits the caches, in lock step. Read: each rank reads its slice out of the other processes, then their slices.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "measure.h"

enum { MAX_RANKS = 64, BLOCK = 4096, PART = 32768 };

typedef struct {
	_Alignas(64) atomic_int arrived;
	_Alignas(64) atomic_int round;
	pid_t process[MAX_RANKS];
	float *place[MAX_RANKS]; /* of the tensor, there */
	double said[MAX_RANKS][MAX_ITERS]; /* to slowest */
} Board;

static int patience;
static Board *board;
static float *data[MAX_RANKS];
static char way; /* s: staged, r: read */
static float *parts[MAX_RANKS], *sums[2];

static void *shared(size_t bytes) {
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		perror("limit: map memory");
		exit(1);
	}
	madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

/* meet is a barrier that spins, and lets others run when there are more ranks than CPUs. */
static void meet(void) {
	int round = atomic_load(&board->round);
	if (atomic_fetch_add(&board->arrived, 1) == ranks - 1) {
		atomic_store(&board->arrived, 0);
		atomic_store(&board->round, round + 1);
		return;
	}
	for (int spins = 0; atomic_load_explicit(&board->round, memory_order_acquire) == round;) {
		if (++spins >= patience) {
			sched_yield();
			spins = 0;
		}
	}
}

/* peek copies floats of another rank's tensor. */
static void peek(int from, float *to, size_t at, size_t n) {
	struct iovec here = {to, n * sizeof *to}, there = {board->place[from] + at, n * sizeof *to};
	if (n && process_vm_readv(board->process[from], &here, 1, &there, 1, 0) != (ssize_t)(n * sizeof *to)) {
		perror("limit: read another process");
		kill(0, SIGKILL);
	}
}

static void read_others(size_t n) {
	static float other[PART];
	float *own = data[rank];
	size_t lo = n * rank / ranks, hi = n * (rank + 1) / ranks;
	meet();
	for (; lo < hi; lo += PART) {
		size_t m = hi - lo < PART ? hi - lo : PART;
		for (int k = 1; k < ranks; k++) {
			peek((rank + k) % ranks, other, lo, m);
			for (size_t i = 0; i < m; i++) own[lo + i] += other[i];
		}
	}
	meet();
	for (int k = 1; k < ranks; k++) {
		int r = (rank + k) % ranks;
		peek(r, own + n * r / ranks, n * r / ranks, n * (r + 1) / ranks - n * r / ranks);
	}
	meet();
}

static void stage(size_t n) {
	for (size_t at = 0, turn = 0; at < n; at += PART, turn ^= 1) {
		size_t m = n - at < PART ? n - at : PART, lo = m * rank / ranks, hi = m * (rank + 1) / ranks;
		memcpy(parts[rank] + turn * PART, data[rank] + at, m * sizeof(float));
		meet();
		float *sum = sums[turn];
		memcpy(sum + lo, parts[0] + turn * PART + lo, (hi - lo) * sizeof *sum);
		for (int r = 1; r < ranks; r++) {
			const float *from = parts[r] + turn * PART;
			for (size_t i = lo; i < hi; i++) sum[i] += from[i];
		}
		meet();
		memcpy(data[rank] + at, sum, m * sizeof *sum);
	}
}

static void together(size_t n) {
	static float sum[BLOCK];
	meet();
	size_t lo = n * rank / ranks, hi = n * (rank + 1) / ranks;
	for (; lo < hi; lo += BLOCK) {
		size_t m = hi - lo < BLOCK ? hi - lo : BLOCK;
		memcpy(sum, data[0] + lo, m * sizeof *sum);
		for (int r = 1; r < ranks; r++) {
			const float *from = data[r] + lo;
			for (size_t i = 0; i < m; i++) sum[i] += from[i];
		}
		for (int r = 0; r < ranks; r++) memcpy(data[r] + lo, sum, m * sizeof *sum);
	}
	meet();
}

static int can(enum operation op) { return op == ALLREDUCE; }

static float *memory(size_t bytes) {
	(void)bytes; /* main has made what the largest needs */
	return data[rank];
}

static void discard_memory(float *d) { (void)d; }

static void operate(float *d, float *result, int n) {
	(void)d, (void)result;
	(way == 's' ? stage : way == 'r' ? read_others : together)(n);
}

static void slowest(double *v, int n) {
	memcpy(board->said[rank], v, n * sizeof *v);
	meet();
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < n; i++) v[i] = fmax(v[i], board->said[r][i]);
	meet();
}

int main(int argc, char **argv) {
	if (argc > 1 && (!strcmp(argv[1], "staged") || !strcmp(argv[1], "read"))) {
		way = *argv[1];
		argc--, argv++;
	}
	if (argc < 4 || (ranks = atoi(argv[1])) < 1 || ranks > MAX_RANKS) {
		fprintf(stderr, "usage: limit [staged|read] RANKS SECONDS BYTES...\n");
		return 2;
	}
	size_t largest = 4;
	for (int i = 3; i < argc; i++) {
		size_t bytes = strtoull(argv[i], NULL, 10);
		if (bytes > largest) largest = bytes;
	}
	patience = ranks > sysconf(_SC_NPROCESSORS_ONLN) ? 20 : 2000;
	board = shared(sizeof *board);
	for (int r = 0; r < ranks; r++) {
		if (way == 's') parts[r] = shared(2 * PART * sizeof(float));
		if (!way) data[r] = shared(largest);
	}
	for (int i = 0; i < 2; i++) sums[i] = shared(PART * sizeof(float));
	for (rank = ranks - 1; rank > 0; rank--) {
		int pid = fork();
		if (pid < 0) {
			perror("limit: fork");
			kill(0, SIGKILL); /* the others would wait for ever */
		}
		if (pid == 0) break;
	}
	if (patience > 20) { /* a CPU for each */
		cpu_set_t own;
		CPU_ZERO(&own);
		CPU_SET(rank, &own);
		sched_setaffinity(0, sizeof own, &own);
	}
	if (way) {
		if (!(data[rank] = malloc(largest))) kill(0, SIGKILL);
		memset(data[rank], 0, largest);
		board->process[rank] = getpid(), board->place[rank] = data[rank];
		meet();
	}
	argv[1] = "allreduce";
	measure_all(argc, argv);
	while (wait(NULL) > 0) continue;
	return 0;
}
