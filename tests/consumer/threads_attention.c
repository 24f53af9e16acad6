/** Attention between threads of one process, from C. */

#include "own_attention.h"

int main(void) {
  char schedule[] = "zigzag-ring";
  const distattn_status status = distattn_run_ranks(3, attend, schedule);
  if (status != DISTATTN_OK) fprintf(stderr, "distattn %s: %s\n", distattn_version(), distattn_message());
  return status;
}
