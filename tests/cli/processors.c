/* Loaded before the C library: the calling thread may run on the processors that PROCESSORS ("first count") says, of a
 * kernel whose own sets have KERNEL bits. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t* set) {
  const char* const kernel = getenv("KERNEL");
  unsigned first = 0, count = 1;
  (void)process;
  if (kernel != NULL && 8 * bytes < strtoul(kernel, NULL, 10)) {
    errno = EINVAL;
    return -1;
  }
  sscanf(getenv("PROCESSORS"), "%u %u", &first, &count);
  memset(set, 0, bytes);
  for (unsigned i = first; i < first + count; ++i) CPU_SET_S(i, bytes, set);
  return 0;
}
