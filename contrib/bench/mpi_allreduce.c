/* One rank of MPI_Allreduce, measured as `gorun bench` measures its own: float sum in place, every operation timed by
 * itself on every rank, back to back, and counted as long as the slowest rank took. Rank 0 prints the document that
 * `gorun bench --json` prints.
 *
 *     mpicc -O3 -o mpi_allreduce mpi_allreduce.c -lm && mpirun -np 2 ./mpi_allreduce SECONDS BYTES...
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 5, MIN_ITERS = 5, MAX_ITERS = 20000, PERIOD = 7 };

static int rank, ranks;
static double times[MAX_ITERS];

static void allreduce(float *data, int n) {
	MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void timed(float *data, int n, int iters) {
	MPI_Barrier(MPI_COMM_WORLD);
	double last = MPI_Wtime();
	for (int i = 0; i < iters; i++) {
		allreduce(data, n);
		double now = MPI_Wtime();
		times[i] = now - last;
		last = now;
	}
}

static void slowest(double *v, int n) { MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD); }

/* wrong reduces known data and counts wrong elements. */
static int wrong(float *data, int n) {
	int bad = 0;
	for (int i = 0; i < n; i++) data[i] = (float)(i % PERIOD * (rank + 1));
	allreduce(data, n);
	for (int i = 0; i < n; i++) bad += data[i] != (float)(i % PERIOD * (ranks * (ranks + 1) / 2));
	return bad;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void measure(size_t bytes, double seconds, const char *separator) {
	int n = bytes < 4 ? 1 : (int)(bytes / 4);
	float *data = malloc(4 * (size_t)n);
	if (!data) MPI_Abort(MPI_COMM_WORLD, 1);
	double bad = wrong(data, n), trial = 0;
	memset(data, 0, 4 * (size_t)n); /* stays zero, however often it is summed up */
	timed(data, n, WARM_UP);
	for (int i = 1; i < WARM_UP; i++) trial += times[i] / (WARM_UP - 1);
	slowest(&trial, 1);
	int iters = (int)fmin(fmax(ceil(seconds / fmax(trial, 1e-9)), MIN_ITERS), MAX_ITERS);
	timed(data, n, iters);
	slowest(times, iters);
	bad += wrong(data, n);
	slowest(&bad, 1);
	free(data);
	if (rank) return;
	qsort(times, iters, sizeof *times, ascending);
	double p50 = (times[(iters - 1) / 2] + times[iters / 2]) / 2 * 1e6, p99 = times[(int)ceil(0.99 * iters) - 1] * 1e6;
	double rate = 4.0 * n / p50 / 1e3;
	printf("%s{\"size\":%zu,\"iterations\":%d,\"p50_us\":%.3f,\"p99_us\":%.3f,\"min_us\":%.3f,\"algbw_GBps\":%.4f,"
	       "\"busbw_GBps\":%.4f,\"wrong\":%.0f}", separator, 4 * (size_t)n, iters, p50, p99, times[0] * 1e6, rate,
	       rate * 2 * (ranks - 1) / ranks, bad);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 3) {
		if (!rank) fprintf(stderr, "usage: mpi_allreduce SECONDS BYTES...\n");
		MPI_Finalize();
		return 2;
	}
	if (!rank) printf("{\"operation\":\"allreduce\",\"ranks\":%d,\"rows\":[", ranks);
	for (int i = 2; i < argc; i++) measure(strtoull(argv[i], NULL, 10), atof(argv[1]), i > 2 ? "," : "");
	if (!rank) printf("]}\n");
	MPI_Finalize();
	return 0;
}
