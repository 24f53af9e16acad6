/** Attention between processes over the caller's own MPI: mpirun -n 4 mpi_attention */

#include <mpi.h>

#include "own_attention.h"

enum { most_messages = 1024 };

/* A communicator for each lane, so that their messages never meet. */
static MPI_Comm lanes[2];

static int exchange(void* user, int32_t lane, const distattn_transfer* sends, size_t send_count,
                    const distattn_transfer* receives, size_t receive_count) {
  MPI_Request requests[most_messages];
  int count = 0;
  (void)user;
  if (send_count + receive_count > most_messages) return MPI_ERR_COUNT;
  for (size_t i = 0; i < receive_count; ++i) {
    MPI_Irecv(receives[i].data, (int)receives[i].bytes, MPI_BYTE, receives[i].peer, 0, lanes[lane], &requests[count++]);
  }
  for (size_t i = 0; i < send_count; ++i) {
    MPI_Isend(sends[i].data, (int)sends[i].bytes, MPI_BYTE, sends[i].peer, 0, lanes[lane], &requests[count++]);
  }
  return MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char** argv) {
  int provided = 0;
  char schedule[] = "balanced";
  distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
  distattn_comm* comm = NULL;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) {
    fprintf(stderr, "this MPI does not serve several threads\n");
    return 1;
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &lanes[0]);
  MPI_Comm_dup(MPI_COMM_WORLD, &lanes[1]);
  MPI_Comm_rank(MPI_COMM_WORLD, &callbacks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &callbacks.size);
  callbacks.exchange = exchange;

  distattn_status status = distattn_comm_from_callbacks(&callbacks, &comm);
  if (status == DISTATTN_OK) status = attend(schedule, comm);
  if (status != DISTATTN_OK) fprintf(stderr, "rank %d: %s\n", (int)callbacks.rank, distattn_message());
  distattn_comm_free(comm);
  MPI_Comm_free(&lanes[0]);
  MPI_Comm_free(&lanes[1]);
  MPI_Finalize();
  return status;
}
