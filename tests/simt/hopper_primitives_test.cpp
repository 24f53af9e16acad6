/// What each primitive of Hopper does, as the PTX ISA has it: the emulator and the GPU, where there is one, meet the
/// same values.

#include "distattn/float16.hpp"
#include "simt/hopper_primitive_kernels.hpp"
#include "simt/words.hpp"

namespace {

using namespace simt;
using primitive::copied_box_rows;
using primitive::tensor_columns;
using primitive::tensor_planes;
using primitive::tensor_rows;

constexpr std::size_t tensor_elements = std::size_t{tensor_columns} * tensor_rows * tensor_planes;

/// False, and said, on a GPU that has nothing of what is tested here.
bool has_units() {
  if (!has_hopper_units()) WARN("skipped: this GPU is not of compute capability 9.0");
  return has_hopper_units();
}

struct Corner {
  int column, row, plane;
};
constexpr Corner corners[] = {
    {0, 0, 0}, {0, 8, 0}, {0, -3, 1}, {64, 0, 1}, {64, 5, 0}, {-8, 2, 1}, {tensor_columns, 0, 0}, {0, tensor_rows, 1}};

Words coordinates(const Corner& corner) {
  return {static_cast<std::uint32_t>(corner.column), static_cast<std::uint32_t>(corner.row),
          static_cast<std::uint32_t>(corner.plane), 0};
}

/// Calls visit(word of the box, column, row) for every word that lies inside the tensor: a chunk of four words is where
/// the row's number says.
template <class Visitor>
void for_each_word_inside(const Corner& corner, int elements_per_word, Visitor visit) {
  for (int r = 0; r < copied_box_rows; ++r) {
    for (int word = 0; word < 32; ++word) {
      const int column = corner.column + word * elements_per_word, row = corner.row + r;
      const int at = r * 32 + ((word / 4) ^ (r % 8)) * 4 + word % 4;
      if (column < 0 || column >= tensor_columns || row < 0 || row >= tensor_rows) continue;
      visit(static_cast<std::size_t>(at), column, row);
    }
  }
}

std::size_t element_at(int column, int row, int plane) {
  return static_cast<std::size_t>((plane * tensor_rows + row) * tensor_columns + column);
}

void check_loads(primitive::Kernel kernel, int elements_per_word) {
  const Words tensor = random_words(tensor_elements / static_cast<std::size_t>(elements_per_word));
  for (const Corner& corner : corners) {
    CAPTURE(corner.column, corner.row, corner.plane);
    Words in = coordinates(corner), want(copied_box_rows * 32);
    in.insert(in.end(), tensor.begin(), tensor.end());
    for_each_word_inside(corner, elements_per_word, [&](std::size_t at, int column, int row) {
      want[at] = tensor[element_at(column, row, corner.plane) / static_cast<std::size_t>(elements_per_word)];
    });
    check_words(kernel, in, want);
  }
}

/// Small integers, which every type holds exactly.
int left_of(int row, int k) { return (row * 3 + k * 5 + row / 8) % 7 - 3; }
int right_of(int k, int column) { return (k * 2 + column * 3 + column / 16) % 5 - 2; }

/// Elements [rows][width] of 16 bits, two a word.
template <class Value>
void append_elements(Words& words, int rows, int width, std::uint16_t (*element)(float), Value value) {
  for (int i = 0; i < rows * width; i += 2) {
    const auto bits = [&](int at) -> std::uint32_t {
      return element(static_cast<float>(value(at / width, at % width)));
    };
    words.push_back(bits(i) | bits(i + 1) << 16);
  }
}

/// As a Product asks for them.
Words operands_of(const primitive::Product& product) {
  const auto element = product.bf16 ? distattn::float_to_bf16 : distattn::float_to_fp16;
  const auto transposed = [](auto value) { return [value](int row, int column) { return value(column, row); }; };
  Words in;
  if (product.left == primitive::Left::depth_along_columns) {
    append_elements(in, product.depth, 64, element, transposed(left_of));
  } else {
    append_elements(in, 64, product.depth, element, left_of);
  }
  if (product.right_by_columns) {
    append_elements(in, product.depth, product.columns, element, right_of);
  } else {
    append_elements(in, product.columns, product.depth, element, transposed(right_of));
  }
  return in;
}

/// `factor` times the product.
Words product_of(const primitive::Product& product, int factor = 1) {
  Words want;
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < product.columns; ++column) {
      int sum = 0;
      for (int k = 0; k < product.depth; ++k) sum += left_of(row, k) * right_of(k, column);
      want.push_back(bits_of(static_cast<float>(sum * factor)));
    }
  }
  return want;
}

}  // namespace

TEST_CASE("describe_tensor, acquire_tensor_map, load_box and arrive_expecting", "[primitives]") {
  if (!has_units()) return;
  check_loads(primitive::load_box_bf16, 2);
  check_loads(primitive::load_box_fp32, 1);
}

TEST_CASE("fence_proxy, add_box, commit_stores and wait_for_stores", "[primitives]") {
  if (!has_units()) return;
  for (const Corner& corner : corners) {
    CAPTURE(corner.column, corner.row, corner.plane);
    Words want(tensor_elements);
    for_each_word_inside(corner, 1, [&](std::size_t, int column, int row) {
      want[element_at(column, row, corner.plane)] = bits_of(2 * (1 + 2 + 4));
    });
    check_words(primitive::add_box, coordinates(corner), want);
  }
}

TEST_CASE("store_matrices", "[primitives]") {
  if (!has_units()) return;
  const Words in = random_words(128);
  check_words(primitive::store_matrices, in, listed(128, [&](std::uint32_t i) {
                const std::uint32_t matrix = i / 32, lane = i % 32;  // word lane%4 of row lane/4
                return in[4 * lane + matrix];
              }));
}

TEST_CASE("init_barrier, publish_barriers, arrive and wait_for_phase", "[primitives]") {
  if (!has_units()) return;
  const Words in = random_words(128);
  check_words(primitive::arrivals, in, in);
}

TEST_CASE("more_registers and fewer_registers", "[primitives]") {
  if (!has_units()) return;
  const Words in = random_words(384);
  check_words(primitive::registers, in, in);
}

TEST_CASE("multiply, fence_products, commit_products and wait_for_products", "[primitives]") {
  if (!has_units()) return;
  for (const primitive::Product& product : primitive::products()) {
    CAPTURE(product.columns, product.depth, product.left, product.right_by_columns, product.bf16);
    check_words(*product.kernel, operands_of(product), product_of(product));
  }
}

TEST_CASE("groups of products are waited for one by one", "[primitives]") {
  if (!has_units()) return;
  const primitive::Product product{64, 64, primitive::Left::depth_along_rows, false, true, nullptr};
  Words want = product_of(product, (1 * 2 + 1) * 2);
  const Words of_second = product_of(product, 1 + 1);
  want.insert(want.end(), of_second.begin(), of_second.end());
  check_words(primitive::product_groups, operands_of(product), want);
}
