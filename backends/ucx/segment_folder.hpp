#pragma once
/// Where UCX makes segments of shared memory. It takes their names away milliseconds later; a rank that is killed just
/// then leaves one behind, which only the other ranks can remove, and only where it is certain whose it is.

#include <optional>
#include <string>

#include "distattn/bootstrap.hpp"
#include "distattn/files.hpp"

namespace distattn::backends::ucx {

/// A folder of this run on this node while its ranks set up; every rank that comes to the end of that, well, not or by
/// a signal, removes it with all that is in it. As long as a rank lives that set up there, it holds the folder by a
/// lock: the next run removes those that nobody holds.
class SegmentFolder {
 public:
  /// A collective: the ranks agree on a name.
  explicit SegmentFolder(Bootstrap& bootstrap);
  ~SegmentFolder();
  SegmentFolder(const SegmentFolder&) = delete;
  SegmentFolder& operator=(const SegmentFolder&) = delete;

  /// For UCX, as long as this object lives; empty: it may use its own.
  std::string path() const;
  /// All ranks are set up: what UCX adds to a pool of memory from now on is made where it would have been.
  void settle();

 private:
  void make();
  void remove() const;

  std::string name_;
  int folder_ = -1;
  std::optional<TemporaryFile> removal_;
};

}  // namespace distattn::backends::ucx
