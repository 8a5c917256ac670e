/* An MPI program as users have them. Each rank passes a token around the ring and takes part in an allreduce, then does
 * as told: "ok" ends well, "abort" calls MPI_Abort on the last rank, "crash" makes the last rank die, "exit" has it exit
 * without MPI_Finalize, and "early" without MPI_Init.
 */
#include "finalize.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
	int rank, size, token = 0, length, known, *program;
	char host[MPI_MAX_PROCESSOR_NAME];
	const char *started = getenv("PMI_RANK"), *of = getenv("PMI_SIZE");
	if (argc > 1 && !strcmp(argv[1], "early") && started && of && atoi(started) == atoi(of) - 1) return 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Get_processor_name(host, &length);
	if (rank == 0) MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
	MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	token += rank;
	if (rank != 0) MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);

	int n = 100000, wrong = 0;
	double *v = malloc(n * sizeof *v);
	for (int i = 0; i < n; i++) v[i] = i + rank;
	MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++) wrong += v[i] != (double)i * size + size * (size - 1) / 2;
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &program, &known);
	printf("rank %d of %d on %s: token %d, %d wrong, program %d\n", rank, size, host, token, wrong, known ? *program : -1);
	fflush(stdout);
	if (rank == size - 1 && argc > 1 && !strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
	if (rank == size - 1 && argc > 1 && !strcmp(argv[1], "crash")) abort();
	if (rank == size - 1 && argc > 1 && !strcmp(argv[1], "exit")) exit(0);
	MPI_Barrier(MPI_COMM_WORLD);
	finalize();
	return 0;
}
