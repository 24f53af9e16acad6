#pragma once
/// What the C API's functions share: how exceptions become codes, and how versioned structs are read.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "distattn/distattn.h"
#include "distattn/engine.hpp"
#include "distattn/error.hpp"
#include "distattn/launch.hpp"

/// A communicator is a transport that somebody else may own.
struct distattn_comm {
  /// Why it has been ended, here or as the whole of which it is a group. Any thread.
  class Ending {
   public:
    void end(const distattn::Error& error) {
      const std::scoped_lock lock(mutex_);
      if (!reason_) reason_ = error;
    }
    void check() const {
      const std::scoped_lock lock(mutex_);
      if (reason_) throw distattn::Error(*reason_);
    }

   private:
    mutable std::mutex mutex_;
    std::optional<distattn::Error> reason_;
  };

  std::unique_ptr<distattn::World> world;
  std::unique_ptr<distattn::Transport> own;
  distattn::Transport* transport = nullptr;
  distattn::Rank local_rank = 0;  ///< among all that were launched on this machine, also those outside of a group
  int local_ranks = 1;            ///< how many these are
  int cores = 0;                  ///< this rank's share of them; 0: nobody has divided them yet
  std::shared_ptr<Ending> ending = std::make_shared<Ending>();  ///< shared by groups of one
};

namespace distattn::c_api {

/// Sets distattn_message() of this thread and returns the code of the exception that is being handled.
distattn_status status_of_exception() noexcept;

/// What ended a run of ranks is a status that a caller's function returned, one of ours or of its own.
class BodyFailure : public Error {
 public:
  BodyFailure(distattn_status status, const std::string& message);
  distattn_status status() const noexcept { return status_; }

 private:
  distattn_status status_;
};

/// The kind of error that a code other than DISTATTN_OK stands for.
ErrorKind kind_of(distattn_status status);

/// Runs `body`; whatever it throws becomes a code.
template <class Body>
distattn_status guarded(Body body) noexcept {
  try {
    body();
    return DISTATTN_OK;
  } catch (...) {
    return status_of_exception();
  }
}

/// A copy that distattn_text_free() takes.
char* text_copy(const std::string& text);

template <class T>
const T& required(const T* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string(name) + " is null (it is needed): pass its address");
  return *pointer;
}

/// Where a function puts what it makes: null if it fails.
template <class T>
T*& result(T** pointer, const char* name) {
  required(pointer, name);
  return *pointer = nullptr;
}

// A member that is added later must not lie where an older caller's struct has padding: its struct_size covers that.
static_assert(offsetof(distattn_problem, reserved) + sizeof(std::int32_t) == sizeof(distattn_problem));
static_assert(offsetof(distattn_options, layout) + sizeof(const char*) == sizeof(distattn_options));
static_assert(offsetof(distattn_launch, timeout_s) + sizeof(double) == sizeof(distattn_launch));
static_assert(offsetof(distattn_callbacks, reserved) + sizeof(std::int32_t) == sizeof(distattn_callbacks));
static_assert(offsetof(distattn_tensors, dropout_offset) + sizeof(std::uint64_t) == sizeof(distattn_tensors));

static_assert(offsetof(distattn_serving_call, pages_a_request) + sizeof(std::int64_t) == sizeof(distattn_serving_call));

/// A struct of any version: members that an older caller does not have keep their default.
template <class Struct>
Struct read(const Struct* given, const Struct& defaults, const char* name) {
  Struct result = defaults;
  if (given == nullptr) return result;
  const std::size_t size = given->struct_size;
  if (size < sizeof size || size > sizeof(Struct) || size % alignof(Struct) != 0) {
    refuse(std::string(name) + ".struct_size is " + std::to_string(size) + " (this library knows up to " +
           std::to_string(sizeof(Struct)) + "): start from its INIT value, and link the library of your header");
  }
  std::memcpy(&result, given, size);
  if constexpr (requires { result.reserved; }) {
    if (result.reserved != 0) {
      refuse(std::string(name) + ".reserved is " + std::to_string(result.reserved) +
             " (it means nothing yet): start from its INIT value");
    }
  }
  return result;
}

}  // namespace distattn::c_api
