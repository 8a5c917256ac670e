/* Says how many ranks its world has, and stays in it for as many seconds as it is told. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("size %d\n", size);
    fflush(stdout);
    usleep((useconds_t)(1e6 * atof(argv[1])));
    MPI_Finalize();
    return 0;
}
