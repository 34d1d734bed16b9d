package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
)

// piperFile has the fields of Piper's JSON that are read. The others are settings of its planner.
type piperFile struct {
	Nodes []struct {
		ID    *int   `json:"id"`
		Name  string `json:"name"`
		TMPCs map[string][]struct {
			ID            string   `json:"id"`
			TimePerSample *float64 `json:"timePerSample"`
			ParameterSize float64  `json:"parameterSize"`
			MemoryUsageA  float64  `json:"memoryUsageA"`
		} `json:"TMPCs"`
	} `json:"nodes"`
	Edges []struct {
		SourceID          *int    `json:"sourceId"`
		DestID            *int    `json:"destId"`
		CommunicationCost float64 `json:"communicationCost"`
	} `json:"edges"`
}

// slowInSeconds is a sum of times above which a file probably uses milliseconds.
const slowInSeconds = 20

// readPiper reads Piper's JSON. It takes each node's costs without tensor parallelism ("1") and without recomputation
// ("vanilla"). A node has one time for forward and backward together. This time is split 1 to 2, since two of the three
// matrix products of a layer belong to the backward. The size of a node's output is the size of its largest edge.
func readPiper(path string, text []byte, unit string) (*graph, error) {
	scale := map[string]float64{"": 1, "s": 1, "ms": 1e-3}[unit]
	if scale == 0 {
		return nil, fmt.Errorf("importer: unknown time unit %q; Piper's times are in s (bert32a100) or ms (gnmt, "+
			"resnet)", unit)
	}
	f, line, err := decodePiper(text)
	g := newGraph(path)
	switch {
	case err != nil && line > 0:
		return nil, g.errorf(line, "not Piper's JSON: %v", err)
	case err != nil:
		return nil, fmt.Errorf("importer: %s: %w", path, err)
	case len(f.Nodes) == 0:
		return nil, g.errorf(1, "there are no nodes in the file; Piper's JSON has a list \"nodes\"")
	case len(f.Nodes) > maxNodes:
		return nil, g.errorf(1, "%d nodes; at most %d are read", len(f.Nodes), maxNodes)
	}
	index, total, err := f.readNodes(g, scale)
	if err != nil {
		return nil, fmt.Errorf("importer: %s: %w", path, err)
	}
	uneven, err := f.readEdges(g, index)
	if err != nil {
		return nil, fmt.Errorf("importer: %s: %w", path, err)
	}
	g.notes = append(g.notes, "costs without tensor parallelism and recomputation; a third of each time taken as "+
		"forward")
	if len(uneven) > 0 {
		var names []string
		for n := range g.nodes {
			if uneven[n] {
				names = append(names, g.nodes[n].id)
			}
		}
		g.notes = append(g.notes, listed(names)+": edges that carry different bytes; the most is taken as what the "+
			"node writes")
	}
	if total > slowInSeconds && scale == 1 {
		g.notes = append(g.notes, "the times add up to "+strconv.FormatFloat(total, 'g', 4, 64)+" s: Piper's files "+
			"for GNMT and ResNet are in ms; if this one is, import it with --time-unit ms")
	}
	return g, nil
}

// decodePiper decodes a file. It refuses a file that is nested too deeply or has too many objects. The result `line` is
// the line of an error, or 0 if no line is known.
func decodePiper(text []byte) (f piperFile, line int, err error) {
	if err := document.Bounded(text, document.MaxObjects); err != nil {
		return f, 0, err
	}
	if err = json.Unmarshal(text, &f); err != nil {
		at := int64(0)
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) {
			at = syntax.Offset
		} else if errors.As(err, &kind) {
			at = kind.Offset
		}
		line = 1 + strings.Count(string(text[:min(max(at, 0), int64(len(text)))]), "\n")
	}
	return f, line, err
}

// readNodes adds the file's nodes to a graph. It returns the index of each id and the total time, in seconds.
func (f *piperFile) readNodes(g *graph, scale float64) (index map[int]int, total float64, err error) {
	index = map[int]int{}
	for i, n := range f.Nodes {
		if n.ID == nil {
			return nil, 0, fmt.Errorf("nodes[%d] (%s) has no id", i, n.Name)
		}
		if at, twice := index[*n.ID]; twice {
			return nil, 0, fmt.Errorf("nodes[%d] (%s) has id %d, which nodes[%d] (%s) has already", i, n.Name, *n.ID, at,
				f.Nodes[at].Name)
		}
		index[*n.ID] = i
		found := false
		for _, v := range n.TMPCs["1"] {
			if v.ID != "vanilla" {
				continue
			}
			found = true
			if v.TimePerSample == nil || !(*v.TimePerSample >= 0) {
				return nil, 0, fmt.Errorf("node %d (%s): timePerSample is missing or negative; it must be a time, 0 or more",
					*n.ID, n.Name)
			}
			parameters, fine := bytes(v.ParameterSize)
			saved, fits := bytes(v.MemoryUsageA)
			if !fine || !fits {
				return nil, 0, fmt.Errorf("node %d (%s): parameterSize is %v and memoryUsageA %v; both must be bytes, "+
					"0 or more", *n.ID, n.Name, v.ParameterSize, v.MemoryUsageA)
			}
			seconds := *v.TimePerSample * scale
			total += seconds
			g.nodes = append(g.nodes, node{id: fmt.Sprintf("node%d", *n.ID), kind: n.Name, forwardS: seconds / 3,
				backwardS: seconds - seconds/3, saved: saved, parameters: parameters})
			break
		}
		if !found {
			return nil, 0, fmt.Errorf("node %d (%s): no TMPCs[\"1\"] with id \"vanilla\"; that is its cost on one device "+
				"without recomputation", *n.ID, n.Name)
		}
	}
	if math.IsInf(total, 0) {
		return nil, 0, errors.New("the times add up to more than a number holds")
	}
	return index, total, nil
}

// readEdges adds the edges, and returns the nodes whose edges carry different numbers of bytes.
func (f *piperFile) readEdges(g *graph, index map[int]int) (uneven map[int]bool, err error) {
	uneven = map[int]bool{}
	for i, e := range f.Edges {
		if e.SourceID == nil || e.DestID == nil {
			return nil, fmt.Errorf("edges[%d] has no sourceId or no destId", i)
		}
		from, known := index[*e.SourceID]
		to, also := index[*e.DestID]
		if !known || !also {
			return nil, fmt.Errorf("edges[%d] is from %d to %d; one of them is no node", i, *e.SourceID, *e.DestID)
		}
		carried, fine := bytes(e.CommunicationCost)
		if !fine {
			return nil, fmt.Errorf("edges[%d] (%d to %d): communicationCost is %v; it must be bytes, 0 or more", i,
				*e.SourceID, *e.DestID, e.CommunicationCost)
		}
		if from == to {
			return nil, fmt.Errorf("the graph has a cycle: node%d -> node%d; a model's graph has none", *e.SourceID, *e.DestID)
		}
		if g.nodes[from].readers > 0 && g.nodes[from].output != carried {
			uneven[from] = true
		}
		g.nodes[from].output = max(g.nodes[from].output, carried)
		g.connect(from, to)
	}
	return uneven, nil
}
