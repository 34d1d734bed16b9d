// call.cpp: one generic call runs any operator of the dispatcher.
//
// An operator's schema is read once: the kind of each argument, whether it may be
// missing, and its default. A call then only pushes values on a stack.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "internal.h"

namespace {

// This type is c10::optional in libtorch 1.13 and std::optional in 2.x.
using OptionalTensor = decltype(std::declval<const c10::IValue&>().toOptional<at::Tensor>());

enum class Kind {
  kTensor,
  kNumber,
  kInt,
  kFloat,
  kBool,
  kString,
  kDevice,
  kInts,
  kFloats,
  kBools,
  kTensors,
  kOptionalTensors,
  kOther
};

struct Parameter {
  std::string name;
  Kind kind = Kind::kOther;
  bool optional = false;
  int64_t repeat = 0;  // n of an int[n] argument, for which one int stands for n equal ones
  bool has_default = false;
  c10::IValue fallback;
};

Kind list_kind(const c10::TypePtr& element) {
  switch (element->kind()) {
    case c10::TypeKind::IntType:
      return Kind::kInts;
    case c10::TypeKind::FloatType:
      return Kind::kFloats;
    case c10::TypeKind::BoolType:
      return Kind::kBools;
    case c10::TypeKind::TensorType:
      return Kind::kTensors;
    case c10::TypeKind::OptionalType:
      if (element->containedType(0)->kind() == c10::TypeKind::TensorType) return Kind::kOptionalTensors;
      return Kind::kOther;
    default:
      return Kind::kOther;
  }
}

Kind kind_of(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return Kind::kTensor;
    case c10::TypeKind::NumberType:
      return Kind::kNumber;
    case c10::TypeKind::IntType:
      return Kind::kInt;
    case c10::TypeKind::FloatType:
      return Kind::kFloat;
    case c10::TypeKind::BoolType:
      return Kind::kBool;
    case c10::TypeKind::StringType:
      return Kind::kString;
    case c10::TypeKind::DeviceObjType:
      return Kind::kDevice;
    case c10::TypeKind::ListType:
      return list_kind(type->containedType(0));
    default:
      return Kind::kOther;
  }
}

Parameter read_parameter(const c10::Argument& argument) {
  Parameter p;
  p.name = argument.name();
  c10::TypePtr type = argument.type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    p.optional = true;
    type = type->containedType(0);
  }
  p.kind = kind_of(type);
  if (argument.N()) p.repeat = *argument.N();
  if (argument.default_value()) {
    p.has_default = true;
    p.fallback = *argument.default_value();
  }
  return p;
}

// Reader reads packed arguments and throws rather than read past their end.
class Reader {
 public:
  Reader(const int64_t* at, int64_t words) : at_(at), end_(at + words) {}
  bool empty() const { return at_ == end_; }
  int64_t next() {
    if (at_ == end_) throw std::invalid_argument("the packed arguments end in the middle of one");
    return *at_++;
  }
  double real() {
    const int64_t bits = next();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  const int64_t* take(int64_t count) {
    if (count < 0 || count > end_ - at_)
      throw std::invalid_argument("a packed list is longer than the arguments");
    const int64_t* start = at_;
    at_ += count;
    return start;
  }

 private:
  const int64_t* at_;
  const int64_t* end_;
};

[[noreturn]] void mismatch(const Parameter& p, const char* got) {
  static const char* const kinds[] = {"a tensor",
                                      "a number",
                                      "an int",
                                      "a float",
                                      "a bool",
                                      "a string",
                                      "a device",
                                      "ints",
                                      "floats",
                                      "bools",
                                      "tensors",
                                      "tensors",
                                      "something this door cannot pass"};
  throw std::invalid_argument("argument " + p.name + " is " + got + "; it takes " +
                              kinds[static_cast<int>(p.kind)] + (p.optional ? " or nothing" : ""));
}

c10::IValue none(const Parameter& p) {
  if (p.kind == Kind::kOptionalTensors || (!p.optional && !(p.has_default && p.fallback.isNone())))
    mismatch(p, "nothing");
  return c10::IValue();
}

c10::IValue whole(const Parameter& p, int64_t value, const char* what) {
  switch (p.kind) {
    case Kind::kInt:
    case Kind::kNumber:
      return c10::IValue(value);
    case Kind::kFloat:
      return c10::IValue(static_cast<double>(value));
    case Kind::kInts:
      if (p.repeat > 0) return c10::IValue(std::vector<int64_t>(p.repeat, value));
      mismatch(p, what);
    default:
      mismatch(p, what);
  }
}

c10::IValue text(const Parameter& p, Reader& in) {
  const int64_t length = in.next();
  if (length < 0) throw std::invalid_argument("a packed string has a negative length");
  const std::string value(reinterpret_cast<const char*>(in.take((length + 7) / 8)), length);
  if (p.kind == Kind::kString) return c10::IValue(value);
  if (p.kind == Kind::kDevice) return c10::IValue(c10::Device(value));
  mismatch(p, "a string");
}

c10::IValue ints(const Parameter& p, Reader& in) {
  const int64_t n = in.next();
  const int64_t* at = in.take(n);
  if (p.kind == Kind::kInts) return c10::IValue(std::vector<int64_t>(at, at + n));
  if (p.kind == Kind::kFloats) return c10::IValue(std::vector<double>(at, at + n));
  mismatch(p, "ints");
}

c10::IValue bools(const Parameter& p, Reader& in) {
  const int64_t n = in.next();
  const int64_t* at = in.take(n);
  if (p.kind != Kind::kBools) mismatch(p, "bools");
  c10::List<bool> list;
  for (int64_t i = 0; i < n; i++) list.push_back(at[i] != 0);
  return c10::IValue(std::move(list));
}

c10::IValue floats(const Parameter& p, Reader& in) {
  const int64_t n = in.next();
  const int64_t* at = in.take(n);
  if (p.kind != Kind::kFloats) mismatch(p, "floats");
  std::vector<double> list(n);
  if (n > 0) std::memcpy(list.data(), at, n * sizeof(double));
  return c10::IValue(std::move(list));
}

c10::IValue tensors(const Parameter& p, Reader& in) {
  const int64_t n = in.next();
  const int64_t* at = in.take(n);
  if (p.kind == Kind::kTensors) {
    c10::List<at::Tensor> list;
    list.reserve(n);
    for (int64_t i = 0; i < n; i++) list.push_back(mr::defined(at[i]));
    return c10::IValue(std::move(list));
  }
  if (p.kind == Kind::kOptionalTensors) {
    c10::List<OptionalTensor> list;
    list.reserve(n);
    for (int64_t i = 0; i < n; i++) {
      list.push_back(at[i] == 0 ? OptionalTensor() : OptionalTensor(mr::borrow(at[i])));
    }
    return c10::IValue(std::move(list));
  }
  mismatch(p, "tensors");
}

c10::IValue read_value(const Parameter& p, Reader& in) {
  switch (in.next()) {
    case MR_NONE:
      return none(p);
    case MR_TENSOR: {
      const int64_t handle = in.next();
      if (p.kind != Kind::kTensor) mismatch(p, "a tensor");
      return c10::IValue(mr::defined(handle));
    }
    case MR_BOOLEAN: {
      const bool value = in.next() != 0;
      if (p.kind != Kind::kBool && p.kind != Kind::kNumber) mismatch(p, "a bool");
      return c10::IValue(value);
    }
    case MR_INT:
      return whole(p, in.next(), "an int");
    case MR_DTYPE:
      return whole(p, static_cast<int64_t>(mr::scalar_type(static_cast<int>(in.next()))), "an element type");
    case MR_DOUBLE: {
      const double value = in.real();
      if (p.kind != Kind::kFloat && p.kind != Kind::kNumber) mismatch(p, "a float");
      return c10::IValue(value);
    }
    case MR_STRING:
      return text(p, in);
    case MR_INTS:
      return ints(p, in);
    case MR_BOOLEANS:
      return bools(p, in);
    case MR_DOUBLES:
      return floats(p, in);
    case MR_TENSORS:
      return tensors(p, in);
    default:
      throw std::invalid_argument("argument " + p.name + " has an unknown tag");
  }
}

void add_result(mr::Results& results, const c10::IValue& value) {
  if (value.isTensor()) {
    results.add(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector()) results.add(t);
  } else if (value.isScalar() || value.isBool()) {
    const auto type = value.isDouble() ? at::kDouble : value.isBool() ? at::kBool : at::kLong;
    results.add(at::scalar_tensor(value.toScalar(), type));
  } else if (value.isNone()) {
    results.add(at::Tensor());
  } else {
    throw std::invalid_argument("the operator returns " + value.tagKind() + ", which is no tensor");
  }
}

}  // namespace

struct mr_op {
  c10::OperatorHandle handle;
  std::vector<Parameter> parameters;
};

namespace {

std::mutex ops_lock;
std::unordered_map<std::string, std::unique_ptr<mr_op>> ops;

// Emptier removes what a call left on the stack, also when an operator throws with arguments still on it.
struct Emptier {
  std::vector<c10::IValue>& stack;
  size_t from;
  ~Emptier() { stack.resize(from); }
};

}  // namespace

mr_op* mr_find(const char* name) {
  return mr::guarded<mr_op*>(nullptr, [&] {
    const std::lock_guard<std::mutex> hold(ops_lock);
    auto found = ops.find(name);
    if (found != ops.end()) return found->second.get();

    std::string base = name, overload;
    const size_t dot = base.find('.');
    if (dot != std::string::npos) {
      overload = base.substr(dot + 1);
      base.resize(dot);
    }
    auto handle = c10::Dispatcher::singleton().findSchema({base, overload});
    if (!handle) throw std::invalid_argument("libtorch has no such operator");
    std::unique_ptr<mr_op> op(new mr_op{*handle, {}});
    for (const c10::Argument& a : handle->schema().arguments()) op->parameters.push_back(read_parameter(a));
    return ops.emplace(name, std::move(op)).first->second.get();
  });
}

const int64_t* mr_call(mr_op* op, const int64_t* args, int64_t words) {
  return mr::guarded<const int64_t*>(nullptr, [&] {
    static thread_local std::vector<c10::IValue> stack;
    const Emptier emptier{stack, stack.size()};
    Reader in(args, words);
    for (const Parameter& p : op->parameters) {
      if (!in.empty()) {
        stack.push_back(read_value(p, in));
      } else if (p.has_default) {
        stack.push_back(p.fallback);
      } else {
        throw std::invalid_argument("argument " + p.name + " is missing and has no default");
      }
    }
    if (!in.empty()) {
      throw std::invalid_argument("too many arguments; it takes " + std::to_string(op->parameters.size()));
    }
    op->handle.callBoxed(&stack);
    mr::Results results;
    for (size_t i = emptier.from; i < stack.size(); i++) add_result(results, stack[i]);
    return results.words();
  });
}
