package schedule

import (
	"slices"

	"github.com/millrace-ml/millrace/plan"
)

// Replication says how the replicas of a stage share the work.
type Replication string

// Split gives every replica a slice of each micro-batch (DAPPLE §5). RoundRobin gives replicas whole micro-batches in
// turn (PipeDream §3.2): micro-batch m goes to replica m mod r.
const (
	Split      Replication = "split"
	RoundRobin Replication = "round_robin"
)

// List is the instructions of one worker, in the order in which the worker starts them.
type List []Instruction

// Trains reports whether a list makes gradients of weights.
func (l List) Trains() bool {
	return slices.ContainsFunc(l, func(in Instruction) bool { return in.Kind == B || in.Kind == W })
}

// Part is one list per worker.
type Part []List

// Program is training as data: a prologue, a body repeated with relative ids, and an epilogue. A synchronous step is
// only a body. An asynchronous stream has a prologue that fills the pipeline and an epilogue that drains it.
//
// Ids are relative: in repetition k of the body, MicroBatches*k is added to micro-batch ids and Period*k to minibatch
// ids. Ids in the prologue are absolute. Ids in the epilogue are relative to the end of the last repetition. Round
// robin counts within a repetition: relative micro-batch m goes to replica m mod r. So a body needs a multiple of r
// micro-batches if replicas are to stay in turn over repetitions.
//
// Its fields are those of a Program's file. Its methods answer questions about it; the package comment lists them.
type Program struct {
	Name         string      `json:"name"`   // usually the family that wrote it: "1f1b", "afab", "dp"
	Stages       int         `json:"stages"` // virtual stages of each pipeline
	Workers      int         `json:"workers"`
	Placement    [][][]int   `json:"placement"`     // [pipeline][stage] -> workers, by replica
	Replication  Replication `json:"replication"`   // how replicas of a stage share micro-batches
	MicroBatches int         `json:"micro_batches"` // number of micro-batches in one repetition of the body
	Period       int         `json:"period"`        // minibatches (updates) in one repetition
	Repeat       int         `json:"repeat"`        // repetitions of the body
	Weights      Policy      `json:"weights"`
	// Elastic has the settings of weight policy elastic. If it has several pipelines, the last one in Placement is the
	// reference.
	Elastic   *plan.Elastic    `json:"elastic,omitempty"`
	Recompute []plan.Recompute `json:"recompute"`      // by stage: what a forward keeps until its backward
	Tied      [][]int          `json:"tied,omitempty"` // groups of stages that share a parameter
	Clip      bool             `json:"clip,omitempty"` // updates need the global gradient norm
	// Paired: a backward and the forward right after it run together and end together (BaPipe's FBP-AS, §3.2.1). When
	// lowered, both receives come first and both sends last.
	Paired bool `json:"paired,omitempty"`
	// DeferUpdates: an update of a stream comes before the first forward that needs it, and not right after its
	// gradients. So replicas can sum the gradients during the next minibatch.
	DeferUpdates bool `json:"defer_updates,omitempty"`
	// PostValidate: updates do not wait for the gradient norm, and are validated in the next step; see
	// lower.Options.
	PostValidate bool `json:"post_validate,omitempty"`
	// Staleness, for weight policy asp, is how many minibatches a trainer may be ahead of the slowest; nil means any
	// number.
	Staleness *int `json:"staleness,omitempty"`
	// InOrder makes a Program follow its lists, as in the replay of a recorded order. Under asp the server then follows
	// its list, and does not take what is ready first. Under elastic averaging the reference beside the pipelines is
	// then updated where the lists say.
	InOrder  bool `json:"in_order,omitempty"`
	Lowered  bool `json:"lowered"` // transfers, collectives and updates have been added
	Prologue Part `json:"prologue"`
	Body     Part `json:"body"`
	Epilogue Part `json:"epilogue"`
}

// Pipelines returns how many pipelines of a Program train. The reference of elastic averaging and the server's
// weights under asp do not count.
func (p *Program) Pipelines() int {
	switch {
	case p.Elastic != nil:
		return p.Elastic.Pipelines
	case p.Served():
		return 1
	}
	return len(p.Placement)
}

// HasReference reports whether the pipelines have a reference model, which is the last pipeline.
func (p *Program) HasReference() bool { return p.Elastic != nil && p.Elastic.Pipelines > 1 }

// IsReference reports whether a pipeline is the reference.
func (p *Program) IsReference(pipeline int) bool {
	return p.HasReference() && pipeline == p.Pipelines()
}

// Beside reports whether the reference is updated beside the workers, by threads of its own. A pipeline's update then
// sees the newest reference. With InOrder, Beside is false: the workers' lists then say which version
// an update sees.
func (p *Program) Beside() bool { return p.HasReference() && p.Elastic.Besides() && !p.InOrder }

// PartNames returns the names of a Program's parts, in order.
func PartNames() [3]string { return [3]string{"prologue", "body", "epilogue"} }
