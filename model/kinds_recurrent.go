package model

import "fmt"

// gathered returns the number of positions of several sequences, and their width when they are joined at each position.
func gathered(in []Tensor) (positions, width int, err error) {
	if len(in) == 0 {
		return 0, 0, fmt.Errorf("it reads nothing; it takes sequences")
	}
	for _, x := range in {
		if x.DType != Float || len(x.Shape) != 2 {
			return 0, 0, fmt.Errorf("it reads %s of shape %v; it takes sequences, positions x width", x.DType, x.Shape)
		}
		if x.Shape[0] != in[0].Shape[0] {
			return 0, 0, fmt.Errorf("it reads sequences of %d and %d positions; they must be as long",
				in[0].Shape[0], x.Shape[0])
		}
		width += x.Shape[1]
	}
	return in[0].Shape[0], width, nil
}

func init() {
	RegisterKind(Kind{
		Name: "lstm", Doc: "one recurrent layer over all its inputs side by side; its state is zero in front of each " +
			"sequence",
		Settings: []Setting{
			size("width", nil, "units"),
			flag("bidirectional", false, "a second one runs backwards; outputs side by side"),
			probability("dropout", 0.0, "for each unit of the output, the same at all positions"),
		},
		Reads: floats(128, 64), Example: map[string]any{"width": 64},
		Infer: lstm,
	})
}

// lstm has four gates, each a product with the input and with the state (Hochreiter and Schmidhuber, 1997). As in
// cuDNN, each gate has two biases, and the order is input, forget, cell, output. The layer saves the gates, cell and
// state, the joined inputs if there are several, and the output if it is not the state itself.
//
// Dropout draws one mask for each sequence, the same at all its positions (Gal and Ghahramani, A Theoretically Grounded
// Application of Dropout in Recurrent Neural Networks, 2016, section 4). Here dropout applies only to the output;
// unlike in AWD-LSTM, the weights of the state are not dropped.
func lstm(l *Layer, in []Tensor) error {
	t, width, err := gathered(in)
	if err != nil {
		return err
	}
	h, directions := l.Int("width"), 1
	names := []string{""}
	if l.Flag("bidirectional") {
		directions, names = 2, []string{"forward.", "backward."}
	}
	for _, n := range names {
		l.Params = append(l.Params,
			Param{Name: n + "input", Shape: []int{4 * h, width}, Init: fanIn(h)},
			Param{Name: n + "state", Shape: []int{4 * h, h}, Init: fanIn(h)},
			Param{Name: n + "bias", Shape: []int{8 * h}, Init: fanIn(h), NoDecay: true})
	}
	l.Outputs = out(t, directions*h)
	l.ForwardFLOPs = int64(directions) * int64(t) * (2*4*int64(h)*int64(width+h) + 20*int64(h))
	l.InputFLOPs, l.WeightFLOPs = l.ForwardFLOPs, l.ForwardFLOPs
	l.SavedBytes = 4 * int64(directions) * int64(t) * int64(6*h)
	if len(in) > 1 {
		l.SavedBytes += 4 * int64(t) * int64(width)
	}
	if directions > 1 || l.Number("dropout") > 0 {
		l.SavedBytes += l.OutputBytes()
	}
	return nil
}
