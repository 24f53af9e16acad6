#pragma once
/// C API: DLPack tensors as views.

#include "distattn/distattn.h"
#include "distattn/engine.hpp"
#include "distattn/serving.hpp"

namespace distattn::c_api {

/// The tensors of one call; those that are null stay empty. Throws Error(usage) naming the tensor that is wrong.
Bindings bindings_of(const distattn_tensors& tensors);
/// The tensors of a call; its lists stay empty.
ServingCall serving_tensors_of(const distattn_serving_call& call);

}  // namespace distattn::c_api
