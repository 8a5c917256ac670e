/* A rank of MPI. See measure.h for the rules.
 *
 *     mpicc -O3 -o mpi_collective mpi_collective.c -lm && mpirun -np 2 ./mpi_collective allreduce SECONDS BYTES...
 */
#include "measure.h"

#include <mpi.h>

static float *memory(size_t bytes) {
	float *data = malloc(bytes);
	if (!data)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return data;
}

static void discard_memory(float *data) { free(data); }

static int can(enum operation op) { return op < OPERATIONS; }

static void operate(float *data, float *result, int n) {
	const MPI_Comm world = MPI_COMM_WORLD;
	const MPI_Datatype type = MPI_FLOAT;
	int share = n / ranks;
	switch (operation) {
	case ALLREDUCE:
		MPI_Allreduce(MPI_IN_PLACE, data, n, type, MPI_SUM, world);
		break;
	case ALLGATHER:
		MPI_Allgather(data, n, type, result, n, type, world);
		break;
	case ALLTOALL:
		MPI_Alltoall(data, share, type, result, share, type, world);
		break;
	case BROADCAST:
		MPI_Bcast(data, n, type, 0, world);
		break;
	case GATHER:
		MPI_Gather(data, n, type, result, n, type, 0, world);
		break;
	case REDUCE:
		MPI_Reduce(data, result, n, type, MPI_SUM, 0, world);
		break;
	case REDUCESCATTER:
		MPI_Reduce_scatter_block(data, result, share, type, MPI_SUM, world);
		break;
	case SCATTER:
		MPI_Scatter(data, share, type, result, share, type, 0, world);
		break;
	case SENDRECV:
		MPI_Sendrecv(data, n, type, (rank + 1) % ranks, 0, result, n, type, (rank + ranks - 1) % ranks, 0, world, MPI_STATUS_IGNORE);
		break;
	default:
		MPI_Barrier(world);
	}
}

static void slowest(double *v, int n) { MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD); }

static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	measure_all(argc, argv);
	MPI_Finalize();
	return 0;
}
