/* What MPI_Publish_name, MPI_Lookup_name and MPI_Unpublish_name answer to ranks in turn: a line for each answer. */
#include "finalize.h"
#include <stdio.h>
#include <string.h>

static int rank;

static void say(const char *what, int error)
{
    int class;
    MPI_Error_class(error, &class);
    printf("rank %d: %s: %s\n", rank, what,
           class == MPI_SUCCESS ? "done" : class == MPI_ERR_SERVICE ? "MPI_ERR_SERVICE" : class == MPI_ERR_NAME ? "MPI_ERR_NAME" : "another error");
}

int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    int last;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &last);
    last--;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    say("look up what nobody published", MPI_Lookup_name("nothing", MPI_INFO_NULL, found));
    say("unpublish what nobody published", MPI_Unpublish_name("nothing", MPI_INFO_NULL, "x"));
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        say("publish", MPI_Publish_name("service", MPI_INFO_NULL, port));
    }
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == last)
        say("publish again", MPI_Publish_name("service", MPI_INFO_NULL, port));
    say("look up", MPI_Lookup_name("service", MPI_INFO_NULL, found));
    printf("rank %d: found %s\n", rank, strcmp(port, found) == 0 ? "the port" : "another port");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == last)
        say("unpublish", MPI_Unpublish_name("service", MPI_INFO_NULL, port));
    MPI_Barrier(MPI_COMM_WORLD);
    say("look up what is unpublished", MPI_Lookup_name("service", MPI_INFO_NULL, found));
    finalize();
    return 0;
}
