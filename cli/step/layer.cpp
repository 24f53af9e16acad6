#include "cli/step/layer.hpp"

#include <algorithm>

#include "kernels/dense/matmul.hpp"
#include "kernels/dense/rmsnorm.hpp"
#include "kernels/dense/swiglu.hpp"

namespace distattn::step {

using namespace kernels::dense;

template <class T>
void Layer<T>::complete(Activations<T>& a) const {
  const ModelShape& shape = context_.shape;
  const LayerWeights<const T>& w = weights_;
  const std::int64_t tokens = a[Part::x].rows();
  const auto missing = [&](Part part) {
    if (a[part]) return false;
    a[part] = Tensor<T>(context_.memory.working, tokens, width_of(shape, part));
    return true;
  };
  const auto project = [&](Part from, const Matrix<const T>& weight, Part into) {
    if (!missing(into)) return false;
    multiply<T>(a[from], weight, a[into]);
    return true;
  };

  if (missing(Part::n)) rmsnorm<T>(a[Part::x], w.attention_gain.data, a[Part::n]);
  if (project(Part::n, w.wq, Part::q)) context_.rope.rotate(a[Part::q].data(), shape.heads);
  if (project(Part::n, w.wk, Part::k)) context_.rope.rotate(a[Part::k].data(), shape.kv_heads);
  project(Part::n, w.wv, Part::v);

  const bool without_o = missing(Part::o), without_lse = missing(Part::lse);
  if (without_o || without_lse) {
    context_.attention.forward({a[Part::q].data(), a[Part::k].data(), a[Part::v].data()}, a[Part::o].data(),
                               a[Part::lse].data());
  }
  if (missing(Part::y)) {
    std::copy_n(a[Part::x].data(), tokens * shape.hidden, a[Part::y].data());
    multiply<T>(a[Part::o], w.wo, a[Part::y], Into::add);
  }

  if (missing(Part::m)) rmsnorm<T>(a[Part::y], w.ffn_gain.data, a[Part::m]);
  project(Part::m, w.w1, Part::gate);
  project(Part::m, w.w3, Part::up);
  if (missing(Part::s)) swiglu<T>(a[Part::gate], a[Part::up], a[Part::s]);
}

template <class T>
Tensor<T> Layer<T>::output(const Activations<T>& a) const {
  Tensor<T> z(context_.memory.working, a[Part::y].rows(), a[Part::y].cols());
  std::copy_n(a[Part::y].data(), z.rows() * z.cols(), z.data());
  multiply<T>(a[Part::s], weights_.w2, z, Into::add);
  return z;
}

// dz is d(y) through the residual already; what comes through the feed-forward part is added to it.
template <class T>
void Layer<T>::ffn_backward(const LayerWeights<T>& dw, Activations<T>& a, Tensor<T>& dz_then_dy) const {
  const LayerWeights<const T>& w = weights_;
  const std::int64_t tokens = dz_then_dy.rows();
  Tensor<T> ds(context_.memory.working, tokens, context_.shape.ffn);
  multiply_transposed<T>(dz_then_dy, w.w2, ds);
  add_weight_gradient<T>(a[Part::s], dz_then_dy, dw.w2);
  a[Part::s].reset();

  Tensor<T> dgate = std::move(a[Part::gate]), dup = std::move(a[Part::up]);
  swiglu_backward<T>(dgate, dup, ds, dgate, dup);
  ds.reset();
  add_weight_gradient<T>(a[Part::m], dgate, dw.w1);
  add_weight_gradient<T>(a[Part::m], dup, dw.w3);

  Tensor<T> dm = std::move(a[Part::m]);
  multiply_transposed<T>(dgate, w.w1, dm);
  multiply_transposed<T>(dup, w.w3, dm, Into::add);
  rmsnorm_backward<T>(a[Part::y], w.ffn_gain.data, dm, dz_then_dy, dw.ffn_gain.data);
  a[Part::y].reset();
}

template <class T>
void Layer<T>::attention_backward(const LayerWeights<T>& dw, Activations<T>& a, Tensor<T>& dy_then_dx) const {
  const ModelShape& shape = context_.shape;
  const LayerWeights<const T>& w = weights_;
  MemoryMeter& working = context_.memory.working;
  const std::int64_t tokens = dy_then_dx.rows();
  Tensor<T> d_o(working, tokens, shape.hidden);
  multiply_transposed<T>(dy_then_dx, w.wo, d_o);
  add_weight_gradient<T>(a[Part::o], dy_then_dx, dw.wo);

  Tensor<T> dq(working, tokens, shape.hidden), dk(working, tokens, shape.kv_width()),
      dv(working, tokens, shape.kv_width());
  context_.attention.backward({a[Part::q].data(), a[Part::k].data(), a[Part::v].data()}, a[Part::o].data(),
                              a[Part::lse].data(), d_o.data(), dq.data(), dk.data(), dv.data());
  context_.rope.rotate_back(dq.data(), shape.heads);
  context_.rope.rotate_back(dk.data(), shape.kv_heads);
  add_weight_gradient<T>(a[Part::n], dq, dw.wq);
  add_weight_gradient<T>(a[Part::n], dk, dw.wk);
  add_weight_gradient<T>(a[Part::n], dv, dw.wv);

  Tensor<T> dn = std::move(a[Part::n]);
  multiply_transposed<T>(dq, w.wq, dn);
  multiply_transposed<T>(dk, w.wk, dn, Into::add);
  multiply_transposed<T>(dv, w.wv, dn, Into::add);
  rmsnorm_backward<T>(a[Part::x], w.attention_gain.data, dn, dy_then_dx, dw.attention_gain.data);
}

template <class T>
void Layer<T>::backward(const LayerWeights<T>& gradients, Activations<T>& a, Tensor<T>& dz_then_dx) const {
  ffn_backward(gradients, a, dz_then_dx);
  attention_backward(gradients, a, dz_then_dx);
  a = {};
}

template class Layer<float>;
template class Layer<double>;

}  // namespace distattn::step
