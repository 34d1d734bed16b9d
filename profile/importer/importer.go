// Package importer reads other planners' profiles: PipeDream's and DAPPLE's graph.txt and Piper's JSON.
//
// Input: a file, its format, and the number of samples for which its times hold, which no format says. Output: a
// profile whose layers are the graph's nodes in a topological order, with notes about what was left out or assumed.
// Layer 0 is the first source in the file. Errors name the file and the line or node: cyclic graphs, times that are
// negative or not numbers, duplicate ids, edges to unknown nodes, files without nodes, and more nodes than a profile
// may have layers.
//
// Units: PipeDream's and DAPPLE's times are milliseconds for one minibatch, their sizes bytes for one minibatch.
// Piper's times are seconds in its BERT file and milliseconds in its other files. The files do not say so, so
// Options.TimeUnit does.
package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/profile"
)

// Formats lists the formats that Read accepts.
var Formats = []string{"pipedream", "dapple", "piper"}

// Options give what a file does not contain.
type Options struct {
	Format string // one of Formats
	Batch  int    // samples for which the file's times and activations hold
	// Device is the device type of the costs; empty means profile.AnyDevice.
	Device string
	// TimeUnit is the unit of Piper's times: "s" (also "") or "ms". The text formats use ms.
	TimeUnit string
}

// maxBatch is the largest number of samples, as in plans.
const maxBatch = 1<<28 - 1

// Read reads a profile from a file, and returns notes about what was left out or assumed.
func Read(path string, o Options) (*profile.Profile, []string, error) {
	text, err := document.Read(path, document.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("importer: %w; give the file that the other project's profiler wrote, graph.txt "+
			"or .json", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("importer: %w", err)
	}
	return Decode(path, text, o)
}

// Decode reads a profile from a file's text. Errors name the path.
func Decode(path string, text []byte, o Options) (*profile.Profile, []string, error) {
	if !slices.Contains(Formats, o.Format) {
		return nil, nil, fmt.Errorf("importer: %w", registry.None("format", o.Format, Formats))
	}
	if o.Batch < 1 || o.Batch > maxBatch {
		return nil, nil, fmt.Errorf("importer: a batch of %d samples; give the minibatch that %s was measured with, "+
			"1 to %d: the file does not say", o.Batch, path, maxBatch)
	}
	if o.Device == "" {
		o.Device = profile.AnyDevice
	}
	if o.TimeUnit != "" && o.Format != "piper" {
		return nil, nil, fmt.Errorf("importer: a time unit of %q for %s; %s files are in ms, only piper's need a unit",
			o.TimeUnit, path, o.Format)
	}
	var g *graph
	var err error
	switch o.Format {
	case "pipedream":
		g, err = readText(path, string(text), false)
	case "dapple":
		g, err = readText(path, string(text), true)
	case "piper":
		g, err = readPiper(path, text, o.TimeUnit)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := g.profile(o)
	if err != nil {
		return nil, nil, err
	}
	p.Model = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	digest := sha256.Sum256(text)
	p.ModelID = "sha256:" + hex.EncodeToString(digest[:])
	if err := p.Validate(); err != nil {
		return nil, nil, fmt.Errorf("importer: %s: %w", path, err)
	}
	return p, g.notes, nil
}

// profile turns the graph into layers.
func (g *graph) profile(o Options) (*profile.Profile, error) {
	order, err := g.order()
	if err != nil {
		return nil, err
	}
	p := &profile.Profile{Version: profile.Version, Source: profile.SourceImported}
	layerOf := make([]int, len(g.nodes))
	for at, n := range order {
		layerOf[n] = at
		node := &g.nodes[n]
		l := profile.Layer{Name: node.id, Kind: node.kind, ParameterBytes: node.parameters, TiedTo: -1,
			Costs: []profile.Cost{{
				Device: o.Device, MicroBatch: o.Batch, ForwardS: node.forwardS, BackwardS: node.backwardS,
				OutputBytes: node.output, SavedBytes: node.saved,
			}}}
		for _, from := range node.from {
			if g.nodes[from].input {
				l.From = append(l.From, -1)
				if bytes := g.nodes[from].output / int64(o.Batch); bytes > 0 {
					l.Feeds = append(l.Feeds, profile.Feed{Name: g.nodes[from].id, BytesPerSample: bytes})
				}
				continue
			}
			l.From = append(l.From, layerOf[from])
		}
		if len(l.From) == 0 {
			l.From = []int{-1}
		}
		p.Layers = append(p.Layers, l)
	}
	return p, nil
}

// bytes converts a size to whole bytes. It rounds, because files write sizes as decimals. It returns false for sizes
// that are negative, not numbers or too large.
func bytes(x float64) (int64, bool) {
	if !(x >= 0) || x > 1<<60 {
		return 0, false
	}
	return int64(math.Round(x)), true
}
