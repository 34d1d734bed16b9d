package model

import (
	"math"
	"testing"
)

// The parameters of the papers' workloads match the printed numbers, and forward multiply-adds match well-known
// counts.
func TestWorkloads(t *testing.T) {
	for _, w := range []struct {
		family     string
		settings   map[string]any
		parameters float64
		tolerance  float64
		source     string
		gigaMACs   float64 // forward, for one sample; 0: not published
	}{
		{"alexnet", nil, 61100840, 0, "torchvision's model, which PipeDream profiles", 0.714},
		{"vgg16", nil, 138357544, 0, "Simonyan and Zisserman, table 2", 15.47},
		{"vgg16", map[string]any{"width": 16, "image": 64},
			920784 + 512*4096 + 4096 + 4096*4096 + 4096 + 4096*1000 + 1000, 0,
			"by hand, from layers of a quarter of the width", 0},
		{"vgg19", nil, 143667240, 0, "the same", 19.63},
		{"vgg19", nil, 137e6 * 1.048576, 0.001, "DAPPLE, Table 1: 137M, which is 2^20s of four bytes", 0},
		{"resnet50", nil, 25557032, 0, "torchvision's model", 4.09},
		{"resnet50", nil, 24.5e6 * 1.048576, 0.01, "DAPPLE, Table 1: 24.5M, again in 2^20", 0},
		{"gnmt-16", nil, 291e6, 0.02, "DAPPLE, Table 1", 0},
		{"bert-large", nil, 335e6, 0.01, "Devlin et al.: 340M with the pretraining heads", 0},
		{"bert-48", nil, 640e6, 0.01, "DAPPLE, Table 1", 0},
		{"bert-48", map[string]any{"layers": 106}, 1.4e9, 0.04, "DAPPLE, Table 7", 0},
		{"bert-48", map[string]any{"layers": 215}, 2.7e9, 0.02, "DAPPLE, Table 7", 0},
		{"bert-48", map[string]any{"layers": 428}, 5.5e9, 0.02, "DAPPLE, Table 7", 0},
		{"xlnet-36", nil, 500e6, 0.05, "DAPPLE, Table 1, rounded", 0},
		{"amoebanet-36", nil, 933e6, 0.02, "DAPPLE, Table 1", 0},
		{"amoebanet-18", nil, 82e6, 0.03, "GPipe, Table 1", 0},
		{"amoebanet-36", map[string]any{"filters": 544}, 1.05e9, 0.03, "GPipe, Table 1", 0},
		{"awd-lm", nil, 0.41e9 / 4, 0.01, "PipeDream, section 5.2: 0.41 GB", 0},
		{"s2vt", nil, 500*4097 + 4*1000*(500+1000) + 8000 + 500*12594 + 4*1000*(1500+1000) + 8000 + 1001*12594, 0,
			"by hand, from Venugopalan et al.'s sizes", 0},
		{"gnmt", map[string]any{"layers": 32}, 445.6e6, 0.01, "BaPipe, Table IV", 0},
		{"gnmt", map[string]any{"layers": 74}, 886.4e6, 0.01, "BaPipe, Table IV", 0},
		{"gnmt", map[string]any{"layers": 158}, 1.78e9, 0.01, "BaPipe, Table IV", 0},
	} {
		m, err := Build(w.family, w.settings)
		if err != nil {
			t.Errorf("%s: %v", w.family, err)
			continue
		}
		if got := float64(m.ParameterElements()); math.Abs(got-w.parameters) > w.tolerance*w.parameters {
			t.Errorf("%s %v has %.6g parameters, want %.6g within %v (%s)", w.family, w.settings, got, w.parameters,
				w.tolerance, w.source)
		}
		var flops int64
		for _, l := range m.Layers {
			if l.Kind == "conv2d" || l.Kind == "dense" {
				flops += l.ForwardFLOPs
			}
		}
		if got := float64(flops) / 2e9; w.gigaMACs > 0 && math.Abs(got-w.gigaMACs) > 0.01*w.gigaMACs {
			t.Errorf("%s takes %.4g thousand million multiply-adds, want %v", w.family, got, w.gigaMACs)
		}
	}
}

// Tensors that skip layers cross cuts. After the first convolution of a bottleneck block, its output and the block's
// input cross. After an AmoebaNet cell, two cells' outputs cross.
func TestWorkloadsBranch(t *testing.T) {
	m, err := Build("resnet50", nil)
	if err != nil {
		t.Fatal(err)
	}
	if live := m.Live(m.Index("block2_2.reduce")); len(live) != 2 {
		t.Errorf("%d tensors cross inside a bottleneck block, want 2", len(live))
	}
	if m, err = Build("amoebanet-18", nil); err != nil {
		t.Fatal(err)
	}
	if live := m.Live(m.Index("cell3")); len(live) != 2 {
		t.Errorf("%d tensors cross behind a cell, want 2", len(live))
	}
	if m, err = Build("gnmt-8", nil); err != nil {
		t.Fatal(err)
	}
	if live := m.Live(m.Index("decoder2")); len(live) != 2 {
		t.Errorf("%d tensors cross behind a decoder layer, want its output and the context", len(live))
	}
}

func TestLSTMByHand(t *testing.T) {
	l := Layer{Attr: map[string]any{"width": 3, "bidirectional": true, "dropout": 0.5}}
	in := []Tensor{{Shape: []int{5, 2}, DType: Float}, {Shape: []int{5, 4}, DType: Float}}
	if err := lstm(&l, in); err != nil {
		t.Fatal(err)
	}
	if got := l.ParameterElements(); got != 2*(4*3*(6+3)+8*3) {
		t.Errorf("%d parameters", got)
	}
	if want := int64(2 * 5 * (2*4*3*(6+3) + 20*3)); l.ForwardFLOPs != want {
		t.Errorf("%d FLOPs, want %d", l.ForwardFLOPs, want)
	}
	// The saved bytes at each of 5 positions: the joined inputs; four gates, cell and state for each direction; and
	// both states, joined after the dropout.
	if want := int64(4 * 5 * (6 + 2*6*3 + 6)); l.SavedBytes != want {
		t.Errorf("%d bytes held, want %d", l.SavedBytes, want)
	}
}

// The parameters of a language model are counted by hand, with a separate and with a tied softmax. With a tied softmax,
// the last layer is as wide as the embedding. With AWD-LSTM's sizes there are 24 million parameters, as in its paper's
// Table 1 (Merity, Keskar and Socher, 2018). These sizes are 400, 1150, and 10,000 words of Penn Treebank (section 5).
// The count leaves out the softmax's bias, which this model does not have.
func TestLSTMLanguageModel(t *testing.T) {
	layer := func(width, h int64) int64 { return 4*h*(width+h) + 8*h }
	for _, c := range []struct {
		settings map[string]any
		want     int64
	}{
		{map[string]any{"width": 12, "embedding": 5, "vocabulary": 50}, 50*5 + layer(5, 12) + 2*layer(12, 12) + 50*12},
		{map[string]any{"width": 12, "embedding": 5, "vocabulary": 50, "tied": true}, 50*5 + layer(5, 12) + layer(12, 12) +
			layer(12, 5)},
		{map[string]any{"width": 1150, "embedding": 400, "vocabulary": 10000, "tied": true}, 24221600 - 10000},
	} {
		m, err := Build("lstm", c.settings)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.ParameterElements(); got != c.want {
			t.Errorf("%v: %d parameters, want %d", c.settings, got, c.want)
		}
	}
}

func TestWorkloadRefusals(t *testing.T) {
	for family, settings := range map[string]map[string]any{
		"gnmt": {"layers": 7}, "vgg16": {"image": 16}, "vgg19": {"width": 0}, "amoebanet-36": {"cells": 35},
		"awd-lm": {"layers": 0},
		"s2vt":   {"features": 0}, "lstm": {"dropout": 1.0}, "bert-48": {"layers": 1 << 20}, "xlnet-36": {"heads": 7},
	} {
		if _, err := Build(family, settings); err == nil {
			t.Errorf("%s accepts %v", family, settings)
		}
	}
}
