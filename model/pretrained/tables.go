package pretrained

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model"
)

// table describes the names that tensors have in a file.
type table struct {
	of      string // the origin of the names
	family  string // the family whose tensors have these names
	sources func(p parameter) []source
	ignored func(name string) bool
	blocks  *regexp.Regexp                       // matches names in blocks, with the block's number; nil: not checked
	check   func(f *files, m *model.Model) error // checks what the shapes cannot show; nil: nothing to check
}

// tableFor finds where a file's names come from. It refuses names of another family than the model's.
func tableFor(f *files, m *model.Model) (*table, error) {
	has := func(name string) bool { _, there := f.entries[name]; return there }
	for _, p := range parameters(m) {
		if slices.ContainsFunc(append(p.also, p.full), has) {
			return own(), nil
		}
	}
	var t *table
	switch {
	case has("wte.weight"):
		t = gpt2("")
	case has("transformer.wte.weight"):
		t = gpt2("transformer.")
	case has("model.embed_tokens.weight"):
		t = llama("model.")
	case has("embed_tokens.weight"):
		t = llama("")
	}
	switch all := slices.Sorted(maps.Keys(f.entries)); {
	case t == nil && len(all) == 0:
		return nil, fmt.Errorf("it has no tensors")
	case t == nil:
		return nil, fmt.Errorf("it has %s; those are neither names of model %s, like %s, nor GPT-2's, nor Llama's", some(all),
			m.Name, first(m))
	case m.Name != t.family || m.Index("embed") < 0:
		return nil, fmt.Errorf("it has %s's names, which are for --model %s; this is %s", t.of, t.family, m.Name)
	}
	return t, nil
}

// first returns the name of a model's first parameter.
func first(m *model.Model) string {
	if all := parameters(m); len(all) > 0 {
		return all[0].full
	}
	return "none, for it has no parameters"
}

// lacks returns advice on how to correct missing names.
func (t *table) lacks(missing []string) string {
	switch {
	case t.family != "" && slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, headName) }) &&
		len(missing) == 1:
		return "the head is the embedding; give --set tied=true"
	case t.family != "":
		return "give the settings of the network that it is of, with --set"
	}
	return "all parameters and buffers of the model are read"
}

// count refuses a file with more or fewer blocks than the model has.
func (t *table) count(f *files, m *model.Model) error {
	numbers, own := map[string]bool{}, 0
	for name := range f.entries {
		if part := t.blocks.FindStringSubmatch(name); part != nil {
			numbers[part[1]] = true
		}
	}
	for m.Index(fmt.Sprintf("block%d.attention", own)) >= 0 {
		own++
	}
	if has := len(numbers); has > 0 && has != own {
		return fmt.Errorf("it has %d blocks, and the model %d; give --set layers=%d", has, own, has)
	}
	return nil
}

// own describes the names in millrace's own checkpoints.
func own() *table {
	return &table{
		of: "millrace", ignored: func(string) bool { return false },
		sources: func(p parameter) []source {
			all := []source{{name: p.full}}
			for _, name := range p.also {
				all = append(all, source{name: name})
			}
			return all
		},
	}
}

// headName is the name of the head's weight in GPT-2 and Llama, if the head does not share the embedding's weight.
const headName = "lm_head.weight"

// ofBlock matches a parameter of a block. Its groups are the block's number, the half of the block (attention or mlp),
// and the name in that half.
var ofBlock = regexp.MustCompile(`^block(\d+)\.(attention|mlp)\.(.+)$`)

// named returns a parameter's possible names in the files. The map `inBlock` is for parameters of blocks: a key is the
// half of the block and the parameter's name in that half. The map `other` is for all other parameters.
func named(p parameter, blocks func(n string) string, inBlock, other map[string]source) []source {
	var all []source
	for _, full := range append([]string{p.full}, p.also...) {
		if s, ok := other[full]; ok {
			all = append(all, s)
			continue
		}
		if part := ofBlock.FindStringSubmatch(full); part != nil {
			s := inBlock[part[2]+"."+part[3]]
			s.name = blocks(part[1]) + s.name
			all = append(all, s)
		}
	}
	return all
}

// gpt2 describes the names of GPT-2. Its matrices are transposed (Conv1D in transformers).
func gpt2(prefix string) *table {
	other := map[string]source{
		"embed.weight":    {name: prefix + "wte.weight"},
		"embed.position":  {name: prefix + "wpe.weight", first: true},
		"head.norm.gain":  {name: prefix + "ln_f.weight"},
		"head.norm.shift": {name: prefix + "ln_f.bias"},
		"head.weight":     {name: headName},
	}
	inBlock := map[string]source{
		"attention.norm.gain":  {name: "ln_1.weight"},
		"attention.norm.shift": {name: "ln_1.bias"},
		"attention.qkv.weight": {name: "attn.c_attn.weight", transposed: true},
		"attention.qkv.bias":   {name: "attn.c_attn.bias"},
		"attention.out.weight": {name: "attn.c_proj.weight", transposed: true},
		"attention.out.bias":   {name: "attn.c_proj.bias"},
		"mlp.norm.gain":        {name: "ln_2.weight"},
		"mlp.norm.shift":       {name: "ln_2.bias"},
		"mlp.up.weight":        {name: "mlp.c_fc.weight", transposed: true},
		"mlp.up.bias":          {name: "mlp.c_fc.bias"},
		"mlp.down.weight":      {name: "mlp.c_proj.weight", transposed: true},
		"mlp.down.bias":        {name: "mlp.c_proj.bias"},
	}
	mask := regexp.MustCompile(`^` + regexp.QuoteMeta(prefix) + `h\.\d+\.attn\.(bias|masked_bias)$`)
	return &table{
		of: "GPT-2", family: "gpt", ignored: mask.MatchString, check: checkGPT2,
		blocks: regexp.MustCompile(`^` + regexp.QuoteMeta(prefix) + `h\.(\d+)\.`),
		sources: func(p parameter) []source {
			return named(p, func(n string) string { return prefix + "h." + n + "." }, inBlock, other)
		},
	}
}

// llama describes the names of Llama.
func llama(prefix string) *table {
	other := map[string]source{
		"embed.weight": {name: prefix + "embed_tokens.weight"},
		"norm.gain":    {name: prefix + "norm.weight"},
		"head.weight":  {name: headName},
	}
	inBlock := map[string]source{
		"attention.norm.gain":  {name: "input_layernorm.weight"},
		"attention.q.weight":   {name: "self_attn.q_proj.weight"},
		"attention.k.weight":   {name: "self_attn.k_proj.weight"},
		"attention.v.weight":   {name: "self_attn.v_proj.weight"},
		"attention.out.weight": {name: "self_attn.o_proj.weight"},
		"mlp.norm.gain":        {name: "post_attention_layernorm.weight"},
		"mlp.gate.weight":      {name: "mlp.gate_proj.weight"},
		"mlp.up.weight":        {name: "mlp.up_proj.weight"},
		"mlp.down.weight":      {name: "mlp.down_proj.weight"},
	}
	waves := regexp.MustCompile(`^` + regexp.QuoteMeta(prefix) + `layers\.\d+\.self_attn\.rotary_emb\.inv_freq$`)
	return &table{
		of: "Llama", family: "llama", ignored: waves.MatchString, check: checkLlama,
		blocks: regexp.MustCompile(`^` + regexp.QuoteMeta(prefix) + `layers\.(\d+)\.`),
		sources: func(p parameter) []source {
			return named(p, func(n string) string { return prefix + "layers." + n + "." }, inBlock, other)
		},
	}
}
