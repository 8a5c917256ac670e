/* How C programs measure an allreduce, as `gorun bench` measures its own: float sum in place, every operation timed by
 * itself on every rank, back to back, and counted as long as the slowest rank took. Rank 0 prints the document that
 * `gorun bench --json` prints. A program brings what its library does; arguments are SECONDS BYTES... */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 5, MIN_ITERS = 5, MAX_ITERS = 20000, PERIOD = 7 };

static int rank, ranks;
static double times[MAX_ITERS];

/* What the program brings; each ends it if it fails. */
static float *memory(size_t bytes);
static void discard_memory(float *data);
static void allreduce(float *data, int n);
static void slowest(double *v, int n); /* the largest of all ranks */
static void meet(void);

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void timed(float *data, int n, int iters) {
	meet();
	double last = now();
	for (int i = 0; i < iters; i++) {
		allreduce(data, n);
		double t = now();
		times[i] = t - last;
		last = t;
	}
}

/* wrong reduces known data and counts wrong elements. */
static int wrong(float *data, int n) {
	int bad = 0;
	for (int i = 0; i < n; i++)
		data[i] = (float)(i % PERIOD * (rank + 1));
	allreduce(data, n);
	for (int i = 0; i < n; i++)
		bad += data[i] != (float)(i % PERIOD * (ranks * (ranks + 1) / 2));
	return bad;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void measure(size_t bytes, double seconds, const char *separator) {
	int n = bytes < 4 ? 1 : (int)(bytes / 4);
	float *data = memory(4 * (size_t)n);
	double bad = wrong(data, n), trial = 0;
	memset(data, 0, 4 * (size_t)n); /* stays zero, however often it is summed up */
	timed(data, n, WARM_UP);
	for (int i = 1; i < WARM_UP; i++)
		trial += times[i] / (WARM_UP - 1);
	slowest(&trial, 1);
	int iters = (int)fmin(fmax(ceil(seconds / fmax(trial, 1e-9)), MIN_ITERS), MAX_ITERS);
	timed(data, n, iters);
	slowest(times, iters);
	bad += wrong(data, n);
	slowest(&bad, 1);
	discard_memory(data);
	if (rank)
		return;
	qsort(times, (size_t)iters, sizeof *times, ascending);
	double p50 = (times[(iters - 1) / 2] + times[iters / 2]) / 2 * 1e6, p99 = times[(int)ceil(0.99 * iters) - 1] * 1e6;
	double rate = 4.0 * n / p50 / 1e3;
	printf("%s{\"size\":%zu,\"iterations\":%d,\"p50_us\":%.3f,\"p99_us\":%.3f,\"min_us\":%.3f,\"algbw_GBps\":%.4f,"
	       "\"busbw_GBps\":%.4f,\"wrong\":%.0f}",
	       separator, 4 * (size_t)n, iters, p50, p99, times[0] * 1e6, rate, rate * 2 * (ranks - 1) / ranks, bad);
}

static void measure_all(int argc, char **argv) {
	if (!rank)
		printf("{\"operation\":\"allreduce\",\"ranks\":%d,\"rows\":[", ranks);
	for (int i = 2; i < argc; i++)
		measure(strtoull(argv[i], NULL, 10), atof(argv[1]), i > 2 ? "," : "");
	if (!rank)
		printf("]}\n");
}
