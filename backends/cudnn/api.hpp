#pragma once
/// The part of the C interface of cuDNN 9's backend that the provider uses, with its values: they do not change within
/// a major version, and with them no build needs cuDNN. The names are cuDNN's without its prefixes.

#include <cstddef>
#include <cstdint>

namespace distattn::backends::cudnn {

struct Context;
using Handle = Context*;
using DescriptorHandle = void*;

enum class Status : int {
  success = 0,
  bad_param = 2000,
  bad_param_null_pointer = 2002,
  bad_param_not_finalized = 2004,
  execution_failed = 5000
};

enum class DescriptorType : int {
  pointwise = 0,
  engine_config = 3,
  engine_heuristics = 4,
  execution_plan = 5,
  operation_pointwise = 13,
  operation_graph = 15,
  variant_pack = 16,
  tensor = 17,
  matmul = 18,
  operation_matmul = 19,
  reduction = 21,
  operation_reduction = 22,
  operation_reshape = 31,
  device_properties = 38
};

enum class Attribute : int {
  pointwise_mode = 0,
  pointwise_math_prec = 1,
  pointwise_axis = 9,
  engine_heuristics_mode = 200,
  engine_heuristics_operation_graph = 201,
  engine_heuristics_results = 202,
  engine_heuristics_device_properties = 204,
  execution_plan_handle = 400,
  execution_plan_engine_config = 401,
  execution_plan_workspace_size = 402,
  execution_plan_device_properties = 407,
  operation_pointwise_descriptor = 750,
  operation_pointwise_x = 751,
  operation_pointwise_b = 752,
  operation_pointwise_y = 753,
  operation_pointwise_t = 758,
  operation_graph_handle = 800,
  operation_graph_ops = 801,
  tensor_byte_alignment = 900,
  tensor_data_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_unique_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  variant_pack_unique_ids = 1000,
  variant_pack_data_pointers = 1001,
  variant_pack_workspace = 1003,
  matmul_comp_type = 1500,
  operation_matmul_a = 1520,
  operation_matmul_b = 1521,
  operation_matmul_c = 1522,
  operation_matmul_descriptor = 1523,
  reduction_operator = 1600,
  reduction_comp_type = 1601,
  operation_reduction_x = 1610,
  operation_reduction_y = 1611,
  operation_reduction_descriptor = 1612,
  operation_reshape_x = 2200,
  operation_reshape_y = 2201,
  device_properties_json = 2702
};

enum class AttributeType : int {
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  void_ptr = 6,
  heur_mode = 8,
  pointwise_mode = 14,
  descriptor = 15,
  reduction_operator = 18,
  character = 24
};

enum class DataType : int { fp32 = 0, fp16 = 2, int32 = 4, bf16 = 9, boolean = 11 };

enum class PointwiseMode : int {
  add = 0,
  mul = 1,
  div = 6,
  sub = 9,
  exp = 13,
  log = 15,
  identity = 21,
  cmp_gt = 302,
  cmp_ge = 303,
  gen_index = 501,
  binary_select = 601
};

enum class ReductionOperator : int { add = 0, max = 3 };

enum class HeuristicsMode : int { a = 3 };

/// The functions, as cuDNN exports them.
using GetVersion = std::size_t();
using Create = Status(Handle*);
using Destroy = Status(Handle);
using SetStream = Status(Handle, void* stream);
using CreateDescriptor = Status(DescriptorType, DescriptorHandle*);
using DestroyDescriptor = Status(DescriptorHandle);
using SetAttribute = Status(DescriptorHandle, Attribute, AttributeType, std::int64_t count, const void* values);
using GetAttribute = Status(DescriptorHandle, Attribute, AttributeType, std::int64_t most, std::int64_t* count,
                            void* values);
using Finalize = Status(DescriptorHandle);
using Execute = Status(Handle, DescriptorHandle plan, DescriptorHandle variant_pack);
using GetErrorString = const char*(Status);
using GetLastErrorString = void(char* message, std::size_t size);

}  // namespace distattn::backends::cudnn
