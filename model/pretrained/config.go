package pretrained

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/millrace-ml/millrace/model"
)

// layerNormEpsilon is the epsilon of gpt's layer norms.
const layerNormEpsilon = 1e-5

// activationNames maps the names of activations in published configurations to the words of gpt's setting.
var activationNames = map[string]string{"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
	"gelu_pytorch_tanh": "gelu_tanh"}

// differs returns an error if a setting of a model differs from the configuration. There is no error if the
// configuration lacks the key.
func differs[T comparable](key string, has *T, setting string, is T) error {
	if has == nil || *has == is {
		return nil
	}
	return fmt.Errorf("%s has %s %v, and the model %v; give --set %s=%v", configFile, key, *has, is, setting, *has)
}

// must refuses a value of a configuration that the family cannot compute with.
func must[T comparable](key string, has *T, is T) error {
	if has == nil || *has == is {
		return nil
	}
	return fmt.Errorf("%s has %s %v; the family has %v alone", configFile, key, *has, is)
}

// checkGPT2 compares the model with GPT-2's configuration, because other networks may have the same shapes.
func checkGPT2(f *files, m *model.Model) error {
	var c struct {
		Heads      *int     `json:"n_head"`
		Activation *string  `json:"activation_function"`
		Epsilon    *float64 `json:"layer_norm_epsilon"`
		Scaled     *bool    `json:"scale_attn_weights"`
		ByLayer    *bool    `json:"scale_attn_by_inverse_layer_idx"`
	}
	if _, err := f.config(&c); err != nil {
		return err
	}
	activation := cmp.Or(c.Activation, new("gelu_new"))
	known, ok := activationNames[*activation]
	if !ok {
		return fmt.Errorf("%s has activation_function %.40q; gpt has gelu and gelu_tanh", configFile, *activation)
	}
	attention, mlp := m.Index("block0.attention"), m.Index("block0.mlp")
	if attention < 0 || mlp < 0 {
		return nil
	}
	if is := m.Layers[mlp].Word("activation"); is != known {
		return fmt.Errorf("GPT-2's activation is %s where no %s says otherwise, and the model's is %s; give --set "+
			"activation=%s", known, configFile, is, known)
	}
	return cmp.Or(
		differs("n_head", c.Heads, "heads", m.Layers[attention].Int("heads")),
		must("layer_norm_epsilon", c.Epsilon, layerNormEpsilon),
		must("scale_attn_weights", c.Scaled, true),
		must("scale_attn_by_inverse_layer_idx", c.ByLayer, false))
}

// checkLlama compares the model with Llama's configuration, because other networks may have the same shapes.
func checkLlama(f *files, m *model.Model) error {
	var c struct {
		Heads      *int             `json:"num_attention_heads"`
		Groups     *int             `json:"num_key_value_heads"`
		Theta      *float64         `json:"rope_theta"`
		Epsilon    *float64         `json:"rms_norm_eps"`
		Activation *string          `json:"hidden_act"`
		Bias       *bool            `json:"attention_bias"`
		Scaling    *json.RawMessage `json:"rope_scaling"`
		ModelType  *string          `json:"model_type"`
		Rope       *struct {
			Type  *string  `json:"rope_type"`
			Theta *float64 `json:"rope_theta"`
		} `json:"rope_parameters"`
	}
	found, err := f.config(&c)
	at := m.Index("block0.attention")
	if err != nil || !found || at < 0 {
		return err
	}
	if c.Scaling != nil {
		return fmt.Errorf("%s has rope_scaling %.80s; llama's positions are not scaled", configFile, *c.Scaling)
	}
	if c.Rope != nil {
		if err := must("rope_type", c.Rope.Type, "default"); err != nil {
			return err
		}
		c.Theta = cmp.Or(c.Theta, c.Rope.Theta)
	}
	c.Theta, c.Epsilon = cmp.Or(c.Theta, new(1e4)), cmp.Or(c.Epsilon, new(1e-6)) // the defaults of transformers
	l := &m.Layers[at]
	return cmp.Or(
		must("model_type", c.ModelType, "llama"),
		differs("num_attention_heads", c.Heads, "heads", l.Int("heads")),
		differs("num_key_value_heads", c.Groups, "kv_heads", l.Int("kv_heads")),
		differs("rope_theta", c.Theta, "theta", l.Number("theta")),
		differs("rms_norm_eps", c.Epsilon, "epsilon", l.Number("epsilon")),
		must("hidden_act", c.Activation, "silu"),
		must("attention_bias", c.Bias, false))
}
