"""GPT-2 and Llama in plain PyTorch under the names and shapes of published weights, for tests to compare with.

    /usr/bin/python3 -B published.py FOLDER

For each network it writes FOLDER/NAME.safetensors, its seeded weights; FOLDER/NAME-grad.safetensors, the gradient of
the mean loss by each weight, under the same names; and FOLDER/NAME-out.safetensors: tokens, targets, logits, loss.
The weights of NAME-f16 and NAME-bf16 are those of NAME in 16 bits; their outputs are computed from them in 32 bits.
FOLDER/llama-parts has the weights of llama in two files, with an index and a configuration.
"""
import json, math, os, struct, sys

import torch

ROWS, POSITIONS, VOCABULARY, WIDTH, HEADS, LAYERS = 3, 10, 61, 32, 4, 2
GROUPS, HIDDEN, THETA, EPSILON = 2, 56, 500000.0, 1e-6
DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.bool: "BOOL"}


def write(path, tensors):
    """Write a safetensors file."""
    header, data, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, x in tensors.items():
        x = x.detach().contiguous()
        raw = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy().tobytes()
        header[name] = {"dtype": DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    front = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(front)) + front + b"".join(data))


def attend(q, k, v):
    """Return causal attention of q, k and v, which are [rows, heads, positions, d]."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    seen = torch.tril(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool))
    p = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
    return (p @ v).transpose(1, 2).flatten(2)


def apart(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def gpt2(w, tokens, prefix=""):
    def norm(x, name):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * w[name + ".weight"] + w[name + ".bias"]

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w[prefix + "wte.weight"][tokens] + w[prefix + "wpe.weight"][:tokens.shape[1]]
    for i in range(LAYERS):
        at = "%sh.%d." % (prefix, i)
        q, k, v = conv1d(norm(x, at + "ln_1"), at + "attn.c_attn").split(WIDTH, dim=2)
        x = x + conv1d(attend(apart(q, HEADS), apart(k, HEADS), apart(v, HEADS)), at + "attn.c_proj")
        h = conv1d(norm(x, at + "ln_2"), at + "mlp.c_fc")
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3)))
        x = x + conv1d(h, at + "mlp.c_proj")
    return norm(x, prefix + "ln_f") @ w.get("lm_head.weight", w[prefix + "wte.weight"]).T


def gpt2_shapes(prefix="", head=False):
    shapes = {"wte.weight": (VOCABULARY, WIDTH), "wpe.weight": (POSITIONS + 6, WIDTH)}
    for i in range(LAYERS):
        at = "h.%d." % i
        shapes.update({at + "ln_1.weight": (WIDTH,), at + "ln_1.bias": (WIDTH,), at + "ln_2.weight": (WIDTH,),
                       at + "ln_2.bias": (WIDTH,), at + "attn.c_attn.weight": (WIDTH, 3 * WIDTH),
                       at + "attn.c_attn.bias": (3 * WIDTH,), at + "attn.c_proj.weight": (WIDTH, WIDTH),
                       at + "attn.c_proj.bias": (WIDTH,), at + "mlp.c_fc.weight": (WIDTH, 4 * WIDTH),
                       at + "mlp.c_fc.bias": (4 * WIDTH,), at + "mlp.c_proj.weight": (4 * WIDTH, WIDTH),
                       at + "mlp.c_proj.bias": (WIDTH,)})
    shapes.update({"ln_f.weight": (WIDTH,), "ln_f.bias": (WIDTH,)})
    shapes = {prefix + name: shape for name, shape in shapes.items()}
    return {**shapes, "lm_head.weight": (VOCABULARY, WIDTH)} if head else shapes


def llama(w, tokens):
    def norm(x, name):
        return w[name] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON))

    d = WIDTH // HEADS
    frequency = 1.0 / (THETA ** (torch.arange(0, d, 2).float() / d))
    angle = torch.arange(tokens.shape[1]).float()[:, None] * frequency[None, :]
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()

    def turn(x):
        return x * cos + torch.cat([-x[..., d // 2:], x[..., :d // 2]], -1) * sin

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        at = "model.layers.%d." % i
        n = norm(x, at + "input_layernorm.weight")
        q, k, v = (apart(n @ w[at + "self_attn.%s_proj.weight" % s].T, heads)
                   for s, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS)))
        k, v = (turn(k).repeat_interleave(HEADS // GROUPS, 1), v.repeat_interleave(HEADS // GROUPS, 1))
        x = x + attend(turn(q), k, v) @ w[at + "self_attn.o_proj.weight"].T
        n = norm(x, at + "post_attention_layernorm.weight")
        gate = n @ w[at + "mlp.gate_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * (n @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, "model.norm.weight") @ head.T


def llama_shapes(head):
    shapes, shared = {"model.embed_tokens.weight": (VOCABULARY, WIDTH)}, WIDTH // HEADS * GROUPS
    for i in range(LAYERS):
        at = "model.layers.%d." % i
        shapes.update({at + "input_layernorm.weight": (WIDTH,), at + "post_attention_layernorm.weight": (WIDTH,),
                       at + "self_attn.q_proj.weight": (WIDTH, WIDTH), at + "self_attn.k_proj.weight": (shared, WIDTH),
                       at + "self_attn.v_proj.weight": (shared, WIDTH), at + "self_attn.o_proj.weight": (WIDTH, WIDTH),
                       at + "mlp.gate_proj.weight": (HIDDEN, WIDTH), at + "mlp.up_proj.weight": (HIDDEN, WIDTH),
                       at + "mlp.down_proj.weight": (WIDTH, HIDDEN)})
    shapes["model.norm.weight"] = (WIDTH,)
    return {**shapes, "lm_head.weight": (VOCABULARY, WIDTH)} if head else shapes


def seeded(shapes, seed):
    """Draw random weights, large enough that no part of the network is nearly linear."""
    g = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=g) * (0.25 if len(shape) == 2 else 0.5) +
            (1 if "norm" in name or ".ln_" in name and name.endswith("weight") else 0) for name, shape in shapes.items()}


def answer(folder, name, forward, weights, extra=None):
    """Write a network's weights, gradients and outputs."""
    write(os.path.join(folder, name + ".safetensors"), {**weights, **(extra or {})})
    w = {n: x.float().clone().requires_grad_() for n, x in weights.items()}
    g = torch.Generator().manual_seed(9)
    tokens = torch.randint(VOCABULARY, (ROWS, POSITIONS), generator=g)
    targets = torch.randint(VOCABULARY, (ROWS, POSITIONS), generator=g)
    logits = forward(w, tokens)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    write(os.path.join(folder, name + "-grad.safetensors"), {n: x.grad for n, x in w.items()})
    write(os.path.join(folder, name + "-out.safetensors"),
          {"input": tokens, "target": targets, "logits": logits, "loss": loss})


def parts(folder, weights):
    """Write weights in two files of a folder, as large networks are published."""
    os.makedirs(folder)
    names, index = list(weights), {}
    for i, own in enumerate([names[:5], names[5:]]):
        file = "model-%05d-of-00002.safetensors" % (i + 1)
        write(os.path.join(folder, file), {n: weights[n] for n in own})
        index.update({n: file for n in own})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": sum(4 * x.numel() for x in weights.values())}, "weight_map": index}, f)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
                   "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "rope_theta": THETA,
                   "rms_norm_eps": EPSILON, "rope_scaling": None, "attention_bias": False, "torch_dtype": "float32"}, f)


def main():
    folder = sys.argv[1]
    torch.manual_seed(0)
    w = seeded(gpt2_shapes(), 1)
    masks = {"h.%d.attn.bias" % i: torch.ones(1, 1, 16, 16, dtype=torch.bool).tril() for i in range(LAYERS)}
    masks.update({"h.%d.attn.masked_bias" % i: torch.tensor(-1e4) for i in range(LAYERS)})
    answer(folder, "gpt2", gpt2, w, masks)
    answer(folder, "gpt2-f16", gpt2, {n: x.half() for n, x in w.items()})
    long = "transformer."
    answer(folder, "gpt2-head", lambda w, x: gpt2(w, x, long), seeded(gpt2_shapes(long, True), 2))
    w = seeded(llama_shapes(True), 3)
    answer(folder, "llama", llama, w)
    parts(os.path.join(folder, "llama-parts"), w)
    answer(folder, "llama-bf16", llama, {n: x.bfloat16() for n, x in w.items()})
    waves = {"model.layers.%d.self_attn.rotary_emb.inv_freq" % i: torch.ones(4) for i in range(LAYERS)}
    answer(folder, "llama-tied", llama, seeded(llama_shapes(False), 4), waves)


main()
