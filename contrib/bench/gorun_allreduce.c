/* A rank of gorun_allreduce. See measure.h for the rules. Instead of BYTES there may be many: MANY sums of a float each, all
 * begun, then waited for, as rank.py has it. With private before the operation, tensors are in ordinary memory.
 *
 *     cc -O3 -pthread -I../c -o gorun_allreduce gorun_allreduce.c ../c/gorun.c -lm && gorun -np 2 ./gorun_allreduce allreduce SECONDS BYTES...
 */
#include "measure.h"

#include "gorun.h"

static void must(int code) {
	if (code) {
		fprintf(stderr, "gorun_allreduce: %s\n", gorun_error());
		exit(1);
	}
}

static int ordinary;

static float *memory(size_t bytes) {
	float *data = ordinary ? malloc(bytes) : gorun_alloc(bytes);
	if (ordinary && !data)
		perror("gorun_allreduce: allocate memory"), exit(1);
	must(!data);
	return data;
}

static void discard_memory(float *data) {
	if (ordinary)
		free(data);
	else
		must(gorun_free(data));
}

static int can(enum operation op) { return op == ALLREDUCE; }

enum { MANY = 1000 };

static int many;

static void operate_many(float *data, float *result, int n) {
	static char names[MANY][16];
	static gorun_handle handles[MANY];
	for (int i = 0; i < n && i < MANY; i++) {
		if (!names[i][0])
			snprintf(names[i], sizeof names[i], "many.%d", i);
		must(gorun_start_allreduce(names[i], data + i, result + i, 1, GORUN_FLOAT32, GORUN_SUM, &handles[i]));
	}
	for (int i = 0; i < n && i < MANY; i++)
		must(gorun_wait(handles[i], NULL));
}

/* A name stands for one tensor, as in a program that reduces several. */
static void operate(float *data, float *result, int n) {
	if (many) {
		operate_many(data, result, n);
		return;
	}
	static char name[32];
	static int named = -1;
	if (named != n)
		snprintf(name, sizeof name, "bench.%d", n);
	named = n;
	must(gorun_allreduce(name, data, result, n, GORUN_FLOAT32, GORUN_SUM));
}

static void slowest(double *v, int n) { must(gorun_allreduce("slowest", v, v, n, GORUN_FLOAT64, GORUN_MAX)); }

static void meet(void) { must(gorun_barrier("meet")); }

int main(int argc, char **argv) {
	must(gorun_init());
	rank = gorun_rank(), ranks = gorun_size();
	ordinary = argc > 1 && !strcmp(argv[1], "private");
	argc -= ordinary, argv += ordinary;
	many = argc == 4 && !strcmp(argv[3], "many");
	if (many) {
		static char bytes[16];
		snprintf(bytes, sizeof bytes, "%zu", MANY * sizeof(float));
		argv[3] = bytes;
	}
	measure_all(argc, argv);
	must(gorun_finalize());
	return 0;
}
