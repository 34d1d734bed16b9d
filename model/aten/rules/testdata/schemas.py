"""Write PyTorch's version, and a line for each operator: name and overload, then arguments with their defaults."""
import torch

def shown(x):
    return repr(x).replace(" ", "")

keep = {"_softmax", "_log_softmax", "_convolution", "_to_copy", "_unsafe_view", "_reshape_alias",
        "_scaled_dot_product_attention"}
lines = set()
for s in torch._C._jit_get_all_schemas():
    name = s.name[len("aten::"):]
    if (not s.name.startswith("aten::") or name.startswith("_") and name not in keep or s.overload_name.endswith("out")
            or "backward" in name or len(s.arguments) < 1 or "sparse" in name or "quant" in name or "cudnn" in name
            or "mkldnn" in name or "miopen" in name or "complex" in name or s.overload_name.startswith("Dimname")
            or s.overload_name.startswith("names") or s.overload_name.endswith("str") or s.overload_name == "t"
            or not any("Tensor" in str(x.type) for x in list(s.arguments) + list(s.returns))):
        continue
    if any("Dimname" in str(a.type) or "Generator" in str(a.type) and not a.has_default_value() for a in s.arguments):
        continue
    lines.add(" ".join([name + ("." + s.overload_name if s.overload_name else "")] + [
        a.name + ("=" + shown(a.default_value) if a.has_default_value() else "") for a in s.arguments]))
print(torch.__version__)
print("\n".join(sorted(lines)))
