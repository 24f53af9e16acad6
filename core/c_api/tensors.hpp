#pragma once
/// C API: DLPack tensors as views.

#include "distattn/distattn.h"
#include "distattn/engine.hpp"

namespace distattn::c_api {

/// The tensors of one call; those that are null stay empty. Throws Error(usage) naming the tensor that is wrong.
Bindings bindings_of(const distattn_tensors& tensors);

}  // namespace distattn::c_api
