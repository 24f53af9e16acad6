/** Attention between processes that a launcher started: mpirun -n 4 launched_attention */

#include "own_attention.h"

int main(void) {
  char schedule[] = "zigzag-ring";
  distattn_launch launch = DISTATTN_LAUNCH_INIT;
  distattn_comm* comm = NULL;
  launch.timeout_s = 30;
  distattn_status status = distattn_comm_from_launcher(&launch, &comm);
  if (status == DISTATTN_OK) status = attend(schedule, comm);
  if (status != DISTATTN_OK) fprintf(stderr, "distattn %s: %s\n", distattn_version(), distattn_message());
  distattn_comm_free(comm);
  return status;
}
