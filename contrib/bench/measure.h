/* How C programs measure a collective, as `gorun bench` measures its own: floats, sums, every operation timed by itself on
 * every rank, back to back, and counted as long as the slowest rank took. Rank 0 prints the document of
 * `gorun bench --json`, as far as programs are compared by it. A program brings what its library does; arguments are OPERATION SECONDS BYTES..., and the
 * bytes are those of a rank's tensor, or of the result of an allgather or gather. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LONG_ENOUGH 0.1 /* seconds, to count CPU time in hundredths */
enum { WARM_UP = 5, MIN_ITERS = 5, MAX_ITERS = 20000, PERIOD = 7 };

/* Allreduce and broadcast are in place; of the others the result is apart. Roots are rank 0, and a rank sends to the next. */
enum operation {
	ALLREDUCE,
	ALLGATHER,
	ALLTOALL,
	BARRIER,
	BROADCAST,
	GATHER,
	REDUCE,
	REDUCESCATTER,
	SCATTER,
	SENDRECV,
	OPERATIONS
};

static const char *const operations[] = {"allreduce", "allgather", "alltoall",      "barrier", "broadcast",
                                         "gather",    "reduce",    "reducescatter", "scatter", "sendrecv"};

static int rank, ranks;
static enum operation operation;
static double times[MAX_ITERS];

/* What the program brings; each ends it if it fails. */
static float *memory(size_t bytes);
static void discard_memory(float *data);
static int can(enum operation op);
static void operate(float *data, float *result, int n); /* data are n floats; the result is apart or the same */
static void slowest(double *v, int n);                  /* the largest of all ranks */
static void meet(void);

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* busy returns for how long the CPUs of this machine have worked, all together, in seconds: what a program and its daemons
 * take, on all lab hosts, if nothing else runs. The kernel counts in hundredths of a second. */
static double busy(void) {
	unsigned long long user = 0, nice = 0, system = 0, idle, wait, irq = 0, softirq = 0;
	FILE *f = fopen("/proc/stat", "r");
	if (f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &irq, &softirq) != 7)
		user = nice = system = irq = softirq = 0;
	if (f)
		fclose(f);
	return (double)(user + nice + system + irq + softirq) / (double)sysconf(_SC_CLK_TCK);
}

static void timed(float *data, float *result, int n, int iters) {
	meet();
	double last = now();
	for (int i = 0; i < iters; i++) {
		operate(data, result, n);
		double t = now();
		times[i] = t - last;
		last = t;
	}
}

/* value is what a rank contributes at a place. */
static float value(int who, int i) { return (float)(i % PERIOD * (who + 1)); }

/* due returns how many floats this rank gets when everybody contributes n. */
static int due(int n) {
	switch (operation) {
	case BARRIER:
		return 0;
	case ALLGATHER:
		return n * ranks;
	case GATHER:
		return rank ? 0 : n * ranks;
	case REDUCE:
		return rank ? 0 : n;
	case REDUCESCATTER:
	case SCATTER:
		return n / ranks;
	default:
		return n;
	}
}

/* expected returns what this rank gets at a place. */
static float expected(int n, int i) {
	int share = n / ranks, all = ranks * (ranks + 1) / 2;
	switch (operation) {
	case ALLREDUCE:
	case REDUCE:
		return (float)(i % PERIOD * all);
	case REDUCESCATTER:
		return (float)((rank * share + i) % PERIOD * all);
	case ALLGATHER:
	case GATHER:
		return value(i / n, i % n);
	case ALLTOALL:
		return value(i / share, rank * share + i % share);
	case SCATTER:
		return value(0, rank * share + i);
	case SENDRECV:
		return value((rank + ranks - 1) % ranks, i);
	default:
		return value(0, i);
	}
}

/* wrong runs the operation on known data and counts wrong elements. */
static int wrong(float *data, float *result, int n) {
	int bad = 0;
	for (int i = 0; i < n; i++)
		data[i] = value(rank, i);
	operate(data, result, n);
	for (int i = 0; i < due(n); i++)
		bad += result[i] != expected(n, i);
	return bad;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void measure(size_t bytes, double seconds, const char *separator) {
	int gathers = operation == ALLGATHER || operation == GATHER, apart = operation != ALLREDUCE && operation != BROADCAST;
	int n = (int)(bytes / sizeof(float)) / (gathers ? ranks : 1);
	if (n < 1 && operation != BARRIER)
		n = 1;
	size_t room = sizeof(float) * (size_t)(n > 0 ? n : 1);
	float *data = memory(room), *result = apart ? memory(gathers ? room * (size_t)ranks : room) : data;
	double bad = wrong(data, result, n), trial = 0;
	memset(data, 0, room); /* stays zero, however often it is summed up */
	timed(data, result, n, WARM_UP);
	for (int i = 1; i < WARM_UP; i++)
		trial += times[i] / (WARM_UP - 1);
	slowest(&trial, 1);
	int iters = (int)fmin(fmax(ceil(seconds / fmax(trial, 1e-9)), MIN_ITERS), MAX_ITERS);
	double cpu = busy(), wall = now();
	timed(data, result, n, iters);
	cpu = (busy() - cpu) / iters, wall = now() - wall;
	slowest(times, iters);
	bad += wrong(data, result, n);
	slowest(&bad, 1);
	if (apart)
		discard_memory(result);
	discard_memory(data);
	if (rank)
		return;
	qsort(times, (size_t)iters, sizeof *times, ascending);
	double p50 = (times[(iters - 1) / 2] + times[iters / 2]) / 2 * 1e6, p99 = times[(int)ceil(0.99 * iters) - 1] * 1e6;
	printf("%s{\"size\":%zu,\"iterations\":%d,\"p50_us\":%.3f,\"p99_us\":%.3f,\"min_us\":%.3f,\"wrong\":%.0f", separator,
	       sizeof(float) * (size_t)n * (size_t)(gathers ? ranks : 1), iters, p50, p99, times[0] * 1e6, bad);
	if (wall >= LONG_ENOUGH)
		printf(",\"cpu_us\":%.3f", cpu * 1e6);
	printf("}");
}

static void measure_all(int argc, char **argv) {
	for (operation = 0; operation < OPERATIONS && (argc < 2 || strcmp(argv[1], operations[operation])); operation++)
		;
	if (argc < 4 || operation == OPERATIONS || !can(operation)) {
		fprintf(stderr, "arguments are OPERATION SECONDS BYTES..., and the operation is one that this program has\n");
		exit(2);
	}
	if (!rank)
		printf("{\"operation\":\"%s\",\"ranks\":%d,\"rows\":[", argv[1], ranks);
	for (int i = 3; i < argc; i++)
		measure(strtoull(argv[i], NULL, 10), atof(argv[2]), i > 3 ? "," : "");
	if (!rank)
		printf("]}\n");
}
