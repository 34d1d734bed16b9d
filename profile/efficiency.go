package profile

import "github.com/millrace-ml/millrace/cluster"

// Memory is the key for memory bandwidth in maps whose other keys are kinds of layers. Its value is the fraction of the
// bandwidth that a device type reaches.
const Memory = "memory"

// fractions holds the fraction of its peak that a device reaches in layers of a kind. There is only one constant for
// each device type and kind. It is the same for every model, so that no model is fitted to its own result. A cluster
// file's efficiency overrides it.
//
// V100, single precision, from public per-layer measurements on that GPU:
//
//	conv2d              the convolutions of VGG-16 and ResNet-50, batch 128, forward and backward together:
//	                    14.93 TFLOP in 0.881 s (PipeDream's repository, commit 7db6a1c, profiles of
//	                    both). Above 1, because cuDNN's 3x3 convolutions multiply less than is counted.
//	dense               VGG-16's three dense layers: 94.9 GFLOP in 9.43 ms (same source)
//	lstm                GNMT's fourteen plain layers at 29 positions, batch 128, without the classifier's
//	                    backward: 3.37 TFLOP in 0.357 s (same source). At 29 positions the classifier
//	                    runs as fast as VGG's dense layers.
//	attention_to        GNMT's attention without the LSTM that it is measured with (same source)
//	encoder_attention,  BERT's layers at 384 positions, batch 2: 61.6 GFLOP in 7.16 ms
//	attention, mlp      (DAPPLE's repository, commit fd75dcf)
//	relative_attention  XLNet's layers at 512 positions, batch 1, without an mlp (same source)
//	amoeba_cell         AmoebaNet-36's cells, batch 1: 611 GFLOP in 168 ms (same source, which
//	                    scaled it from a measurement of 18 cells)
//	memory              VGG-16's activations: 13.9 GB in 23.5 ms (PipeDream's repository)
//
// For other GPUs no public per-layer measurement was found: they are assumed to reach the same fractions of their own
// peaks. Boards reach their whole peaks, as in BaPipe's simulator (section 3.1: compute power and memory bandwidth,
// nothing else).
var fractions = map[string]map[string]float64{
	gpu: {
		"conv2d": 1.08, "dense": 0.64, "head": 0.64, "lstm": 0.60, "attention_to": 0.20,
		"encoder_attention": 0.55, "attention": 0.55, "mlp": 0.55, "relative_attention": 0.29, "amoeba_cell": 0.23,
		Memory: 0.66,
		"":     0.64, // kinds with little computation; their time depends on their bytes
	},
	fpga: {"": 1, Memory: 1},
}

// The keys of the variable fractions: a device type that was measured, and a kind of device.
const (
	gpu  = "v100"
	fpga = "fpga"
)

// Efficiency returns the fraction of a device type's peak that layers of a kind reach (or, for Memory, of its memory
// bandwidth). It is the description's value, or else this package's constant.
func Efficiency(name string, d cluster.DeviceType, kind string) float64 {
	if f, ok := d.Efficiency[kind]; ok {
		return f
	}
	if f, ok := d.Efficiency[""]; ok && kind != Memory {
		return f
	}
	table, ok := fractions[name]
	switch {
	case ok:
	case d.FPGA != nil:
		table = fractions[fpga]
	default:
		table = fractions[gpu]
	}
	if f, ok := table[kind]; ok {
		return f
	}
	return table[""]
}
