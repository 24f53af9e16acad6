#pragma once
/// Graphs of cuDNN's operations, computed as they are written down.

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "backends/cudnn/api.hpp"

namespace standin {

using namespace distattn::backends::cudnn;

/// A descriptor: its attributes as they were set.
struct Record {
  DescriptorType type{};
  bool finalized = false;
  std::map<Attribute, std::vector<std::byte>> values;
  std::map<Attribute, std::vector<std::shared_ptr<Record>>> parts;

  template <class T>
  std::vector<T> list(Attribute name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> all(found->second.size() / sizeof(T));
    std::memcpy(all.data(), found->second.data(), found->second.size());
    return all;
  }
  template <class T>
  T value(Attribute name) const {
    T value;
    std::memcpy(&value, values.at(name).data(), sizeof value);
    return value;
  }
  bool has(Attribute name) const { return parts.find(name) != parts.end(); }
  const std::shared_ptr<Record>& part(Attribute name) const { return parts.at(name).at(0); }
};

using Dims = std::array<std::int64_t, 4>;

/// A tensor of four axes; integers and truths are numbers too. Along an axis of length 1 it repeats.
struct Tensor {
  Dims dims{};
  std::vector<float> values;

  explicit Tensor(const Dims& of) : dims(of), values(static_cast<std::size_t>(of[0] * of[1] * of[2] * of[3])) {}
  float& at(const Dims& index) { return values[offset(index)]; }
  float at(const Dims& index) const { return values[offset(index)]; }

 private:
  std::size_t offset(const Dims& index) const {
    std::int64_t sum = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) sum = sum * dims[axis] + (dims[axis] == 1 ? 0 : index[axis]);
    return static_cast<std::size_t>(sum);
  }
};

/// The operations of a graph on given memory. Values that are given by their address are read at once.
class Computation {
 public:
  Computation(const Record& graph, std::map<std::int64_t, void*> memory);

  /// Whether every tensor that is no intermediate one has memory.
  bool complete() const { return complete_; }
  void run();

 private:
  Tensor load(const Record& tensor) const;
  void store(const Record& tensor, Tensor value);
  void multiply(const Record& operation);
  void reduce(const Record& operation);
  void reshape(const Record& operation);
  void apply(const Record& operation);

  const Record& graph_;
  std::map<std::int64_t, void*> memory_;
  std::map<std::int64_t, Tensor> known_;  // intermediate tensors and values
  bool complete_ = true;
};

}  // namespace standin
