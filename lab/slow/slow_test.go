package slow

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/model"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{"50mbit": 50e6, "1gbit": 1e9, "2.5gbit": 2.5e9, "1500kbit": 1.5e6} {
		if r, err := ParseRate(text); err != nil || r.BitsPerSecond != want || r.Name != text {
			t.Errorf("%s: %+v, %v; want %v", text, r, err, want)
		}
	}
	for _, text := range []string{"", "100", "mbit", "100mbps", "-5mbit", "100kbit", "1e9gbit", "nanmbit",
		"100mbit; reboot"} {
		if r, err := ParseRate(text); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}

// In the described cluster, a ring of n hosts moves 2 (n-1)/n of the bytes over each host's link, in each direction.
func TestTheClusterIsTheHosts(t *testing.T) {
	r := Rate{"100mbit", 100e6}
	const bytes = 96 << 20
	for hosts, devices := range map[int][]int{2: {0, 1}, 4: {0, 1, 2, 3}} {
		c := Cluster(hosts, 2, r, "cpu", 0)
		n := float64(hosts)
		want := 2*(n-1)/n*bytes/(12.5e6*1448/1514) + 2*(n-1)*linkLatencyS
		if got := c.AllReduceS(devices, bytes); math.Abs(got-want) > 1e-6*want {
			t.Errorf("%d hosts: an all-reduce takes %v s, want %v", hosts, got, want)
		}
		if len(c.Devices) != hosts || c.Cores != 2 || c.InOneMemory(0, 1) {
			t.Errorf("%d hosts: %+v", hosts, c)
		}
	}
}

// cell returns a cell in which the chosen plan's rate is multiplied by each round's factor. With factor 1 the chosen
// plan is as fast as every rival except Accumulated, which is half as fast.
func cell(model string, hosts int, bits float64, share float64, factors ...float64) Cell {
	c := Cell{Model: model, Hosts: hosts, Rate: "r", BitsPerSecond: bits, Batch: 64, ComputeS: 1, ReduceS: share}
	for i, name := range []string{Chosen, Plain, DDP, Accumulated} {
		r := Run{Name: name, PredictedS: 1}
		for k, f := range factors {
			rate := 10 + float64(k)
			if i == 0 {
				rate *= f
			}
			if name == Accumulated {
				rate /= 2
			}
			r.Rates = append(r.Rates, rate)
		}
		c.Runs = append(c.Runs, r)
	}
	return c
}

func TestCompare(t *testing.T) {
	c := cell("gpt", 2, 1e8, 3, 1, 2, 3, 4, 5, 6)
	if err := c.Compare(); err != nil {
		t.Fatal(err)
	}
	d := c.Run(DDP)
	if d.Ratio != 3.5 || d.Interval.Lo != 1 || d.Interval.Hi != 6 || c.Run(Accumulated).Ratio != 7 {
		t.Errorf("%+v", c.Runs)
	}
	if d.StepS != 64/12.5 || c.Share() != 3 || c.Fastest() != d || c.Broken() != "" {
		t.Errorf("a step of %v s, a share of %v, %+v, broken %v", d.StepS, c.Share(), c.Fastest(), c.Broken())
	}
	for _, tt := range []struct {
		model        string
		bits, factor float64
		broken       string
	}{
		{"gpt", 1e8, 0.969, "wholly below 0.97 of PyTorch DDP: 0.97 (0.97 to 0.97)"}, {"gpt", 1e8, 0.971, ""},
		{"gpt", 1e8, 1.4, ""}, {"vgg16-quarter", 1e8, 4.9, "less than 5 times PyTorch DDP: 4.90"},
		{"vgg16-quarter", 1e8, 5.1, ""}, {"vgg16-quarter", 5e8, 1, ""},
	} {
		f := tt.factor
		c := cell(tt.model, 2, tt.bits, 3, f, f, f, f, f, f)
		if err := c.Compare(); err != nil {
			t.Fatal(err)
		}
		if how := c.Broken(); (how != "") != (tt.broken != "") || !strings.HasSuffix(how, tt.broken) {
			t.Errorf("%+v: broken %q", tt, how)
		}
		if err := (&Results{Cells: []Cell{c}}).Broken(); (err != nil) != (tt.broken != "") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	few := cell("gpt", 2, 1e8, 3, 1, 1)
	if err := few.Compare(); err == nil || !strings.Contains(err.Error(), "gpt on 2 hosts at r") {
		t.Errorf("two rounds: %v", err)
	}
}

func TestResultsReplaceCells(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slow.json")
	r, err := Read(path)
	if err != nil || len(r.Cells) != 0 {
		t.Fatalf("a file that is not there: %+v, %v", r, err)
	}
	put := func(model string, hosts int, bits, share float64) {
		c := cell(model, hosts, bits, share, 2, 2, 2, 2, 2, 2)
		if err := c.Compare(); err != nil {
			t.Fatal(err)
		}
		r.Put(c)
	}
	put("gpt", 2, 5e7, 4)
	put("vgg16-quarter", 4, 1e8, 5)
	put("vgg16-quarter", 2, 1e9, 2)
	put("vgg16-quarter", 2, 1e8, 20)
	put("vgg16-quarter", 2, 1e8, 30)
	r.Head = record.Begin("slow", "a test")
	if err := record.Write(path, r); err != nil {
		t.Fatal(err)
	}
	if r, err = Read(path); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range r.Cells {
		names = append(names, c.Model+strings.Repeat("+", c.Hosts))
	}
	if got := strings.Join(names, " "); got != "vgg16-quarter++ vgg16-quarter++ vgg16-quarter++++ gpt++" ||
		r.Cells[0].ReduceS != 30 {
		t.Errorf("%s, %+v", got, r.Cells[0])
	}
	published, err := PipeDream()
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Nearest("vgg16-quarter", published[0]); c == nil || c.ReduceS != 2 {
		t.Errorf("nearest to %+v is %+v", published[0], c)
	}
	var table bytes.Buffer
	if err := r.Markdown(&table); err != nil || strings.Count(table.String(), "\n| ") != 4 {
		t.Errorf("%v:\n%s", err, table.String())
	}
	p, err := r.Plot()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SVG(&table); err != nil {
		t.Error(err)
	}
	alone := `{"version": 1, "cells": [{"runs": [{"name": "millrace"}], "compute_s": 1, "bits_per_second": 1e8}]}`
	for _, bad := range []string{`{"version": 1, "cells": [{}]}`, `{"version": 2}`, `[]`, alone} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A cell that lacks a run or one of its numbers is refused, because it cannot be shown.
func TestCellsThatLackSomethingAreRefused(t *testing.T) {
	for what, spoil := range map[string]func(*Cell){
		"runs of":    func(c *Cell) { c.Runs = c.Runs[:3] },
		"rates":      func(c *Cell) { c.Runs[2].Rates = nil },
		"step_s":     func(c *Cell) { c.Runs[1].StepS = 0 },
		"interval":   func(c *Cell) { c.Runs[3].Ratio = 0 },
		"reduce_s":   func(c *Cell) { c.ReduceS = -1 },
		"predicted_": func(c *Cell) { c.Runs[0].PredictedS = 0 },
	} {
		c := cell("gpt", 2, 1e8, 3, 2, 2, 2, 2, 2, 2)
		if err := c.Compare(); err != nil {
			t.Fatal(err)
		}
		r := &Results{Head: record.Begin("slow", "a test")}
		spoil(&c)
		r.Put(c)
		path := filepath.Join(t.TempDir(), "slow.json")
		if err := document.WriteJSON(path, r); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "cells[0], gpt on 2 hosts at r, lacks ") ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The published shares are worked out by hand for 553 MB of weights and a minibatch of 64, which computes for 336 ms.
// Cluster A moves 2*(3/4) of the weights over each server's 10 Gbit/s, and as much between a server's four GPUs over
// PCIe. Cluster B moves 2*(1/2) of them over each of two servers' 25 Gbit/s, and 2*(7/8) between a server's eight GPUs.
func TestPublishedShares(t *testing.T) {
	published, err := PipeDream()
	if err != nil {
		t.Fatal(err)
	}
	const bytes, computeS = 553.430e6, 0.33625
	for i, want := range []float64{
		(1.5*bytes/1.25e9 + 1.5*bytes/12e9) / computeS, (bytes/3.125e9 + 1.75*bytes/130e9) / computeS,
	} {
		if got := published[i].Share; math.Abs(got-want) > 0.01*want {
			t.Errorf("%+v; want a share of about %v", published[i], want)
		}
	}
}

func TestWorkloadsAreModels(t *testing.T) {
	for _, w := range Workloads {
		m, err := model.Build(w.Family, w.Settings)
		if err != nil {
			t.Fatal(err)
		}
		if w.Rows%w.Pieces != 0 || m.ParameterElements() < 6e6 {
			t.Errorf("%s: %d rows in %d pieces, %d parameters", w.Name, w.Rows, w.Pieces, m.ParameterElements())
		}
	}
	if _, err := FindWorkload("none"); err == nil {
		t.Error("a workload that is not there")
	}
}
