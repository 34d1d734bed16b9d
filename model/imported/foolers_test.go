package imported_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
)

// foolers lists the networks of foolers.py: what is fused in each, what is not, and how the reason begins.
const foolers = `
not_turned: linear:2
used_both_ways: linear:2; matmul: another operator reads w too; matmul: there is no operator
turned_once_read_twice: linear:2
bias_of_places: linear:3; add.Tensor: there is no operator
bias_read_twice: linear:3; add.Tensor: there is no operator
bias_of_a_buffer: linear:3
scaled_bias: linear:2; addmm: what it adds is no bias, or has a factor
layer_called_twice: linear:4
sum_of_two_layers: linear:3 linear_add:1
sum_with_alpha: linear:3
gelu_behind_late_bias: linear:2 linear_gelu:1
strided: linear:3
half_frozen: conv2d:1 layer_norm:1 linear:2 linear_add:1 linear_gelu:1 lstm:1
normed_weights: linear:2; _weight_norm: there is no operator; linear: its weight or its bias is computed
weights_of_buffers: linear:2 linear_gelu:1
norms: layer_norm:1 linear:2; layer_norm: it is without gain and shift
places_of_a_buffer: embedding:2 linear:2
embedding_and_head: embedding:1 linear:3
pools: linear:2 max_pool:1; max_pool2d: its windows are not squares side by side
convolutions: conv2d:3 linear:2; _convolution_mode: there is no operator
odd_lstms: linear:3; lstm.input: it is without biases, or projects its states
learned_state: linear:2; lstm.input: its first state or cell is not zero
both_ways_along_the_batch: linear:2 lstm:4
lstm_called_twice: linear:2; lstm.input: its weights are computed, or read by others too
scale_of_both: causal_attention:1 linear:3
scale_of_values: linear:3; softmax.int: its scores are not scaled by 1/sqrt(4)
turned_sign: linear:3
weak_fill: linear:3; softmax.int: its mask sets scores to what may count
banded: linear:3; softmax.int: its mask is not causal
mask_of_heads: linear:4; softmax.int: its mask is [6 1 6] for 6 positions
one_head: causal_attention:1 linear:5
odd_heads: causal_attention:1 linear:4
scores_read_too: linear:3
outputs_by_heads: causal_attention:1 linear:3
heads_not_joined: causal_attention:1 linear:3
softmax_in_double: linear:3
keys_are_values: causal_attention:1 linear:3
keys_of_the_past: linear:3; softmax.int: its queries, keys and values are not heads
by_bmm: causal_attention:1 linear:3
mask_added_first: causal_attention:1 linear:3
mask_of_comparisons: causal_attention:1 linear:3
mask_of_halves: linear:3; softmax.int: its mask is not causal
mask_of_bits: linear:3; softmax.int: its mask depends on the batch, or is computed by operators that are not known
mask_of_counts: causal_attention:1 linear:3
mask_that_is_written: linear:3; softmax.int: its mask depends on the batch
weights_returned: linear:4; softmax.int: its weights are read by several
along_the_batch: causal_attention:1 linear:4
never_drops: causal_attention:1 linear:3
expanded_gradients: EACH linear_gelu:1 lstm:1 max_pool:1
turned_gradients: EACH lstm:1 max_pool:1
turned_inputs: EACH linear_gelu:1 lstm:1 max_pool:1
every_other: EACH linear_gelu:1 lstm:1 max_pool:1`

// These networks are made to mislead the search for operators. Even so, their loss and gradients are those of PyTorch,
// also with split backwards.
func TestWhoeverLooksAlikeIsComputedAlike(t *testing.T) {
	want := map[string]string{}
	var requests []torchtest.Request
	for line := range strings.Lines(strings.TrimSpace(foolers)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		want[name] = strings.ReplaceAll(rest, "EACH",
			"causal_attention:1 conv2d:1 embedding:1 layer_norm:1 linear:4 linear_add:1")
		requests = append(requests, torchtest.Request{Name: name, File: "foolers.py"})
	}
	for _, a := range torchtest.Run(t, requests...) {
		t.Run(a.Name, func(t *testing.T) {
			if a.Code != 0 || !a.Oracle {
				t.Fatal(a.Said)
			}
			report := fusedToo(t, a, torchtest.Read(t, a.Numbers)).Fuse
			parts := strings.Split(want[a.Name], "; ")
			if got := fmt.Sprint(report.Fused); got != "map["+parts[0]+"]" {
				t.Errorf("fused are %s, want %s", got, parts[0])
			}
			if len(report.Left) != len(parts)-1 {
				t.Fatalf("left alone are %+v, want %q", report.Left, parts[1:])
			}
			for i, l := range report.Left {
				if got := l.Op + ": " + l.Reason; !strings.HasPrefix(got, parts[1+i]) {
					t.Errorf("left alone is %s, want %s", got, parts[1+i])
				}
			}
		})
	}
}
