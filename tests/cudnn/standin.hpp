#pragma once
/// What a test asks of the stand-in of cuDNN beside cuDNN's own calls.

#include <cstddef>

extern "C" {
/// Plans that have been made so far.
int standin_plans();
/// Makes the `count`-th execution from now on fail. 0: none.
void standin_fail(int count);
/// What cudnnGetVersion() says from now on.
void standin_version(size_t version);
}
