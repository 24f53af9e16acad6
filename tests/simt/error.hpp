#pragma once
/// What a faulty kernel throws out of simt::launch.

#include <stdexcept>

namespace simt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace simt
