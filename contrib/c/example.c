/* The mean of a vector over all ranks:
 *
 *     cc -O2 -o example example.c gorun.c && gorun -np 4 ./example
 */
#include "gorun.h"

#include <stdio.h>

static int failed(const char *what) {
	fprintf(stderr, "example: %s: %s\n", what, gorun_error());
	return 1;
}

int main(void) {
	enum { N = 1 << 20 };
	if (gorun_init())
		return failed("join");
	float *x = gorun_alloc(N * sizeof *x); /* shared with gorun: nothing is copied */
	if (!x)
		return failed("allocate");
	for (int i = 0; i < N; i++)
		x[i] = (float)gorun_rank();
	gorun_handle reduction;
	if (gorun_start_allreduce("x", x, x, N, GORUN_FLOAT32, GORUN_AVERAGE, &reduction))
		return failed("start");
	/* Here is time for something else. */
	if (gorun_wait(reduction, NULL))
		return failed("wait");
	if (gorun_rank() == 0)
		printf("%d ranks, mean %g\n", gorun_size(), (double)x[N - 1]);
	return gorun_finalize() ? failed("leave") : 0;
}
