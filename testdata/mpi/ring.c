/* An MPI program as users have them. Each rank passes a token around the ring and takes part in an allreduce, then does
 * as told: "ok" ends well, "abort" calls MPI_Abort on the last rank, "crash" makes the last rank die.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void leave(int signal) {
	(void)signal;
	_exit(0);
}

int main(int argc, char **argv) {
	int rank, size, token = 0, length;
	char host[MPI_MAX_PROCESSOR_NAME];
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
	printf("rank %d of %d on %s: token %d, %d wrong\n", rank, size, host, token, wrong);
	fflush(stdout);
	if (rank == size - 1 && argc > 1 && !strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
	if (rank == size - 1 && argc > 1 && !strcmp(argv[1], "crash")) abort();
	/* MPICH 4.0 over UCX's TCP may finalize for ever when ranks are on several hosts, under its own mpiexec too. All is
	 * said and done by now. */
	MPI_Barrier(MPI_COMM_WORLD);
	signal(SIGALRM, leave);
	alarm(3);
	MPI_Finalize();
	return 0;
}
