package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Version is the version of the manifest's JSON form. Manifests of version 1 (bare) have no checksum, no Asked and no
// Updates, and can still be read.
const (
	Version = 2
	bare    = 1
)

// File is one safetensors file of a checkpoint.
type File struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	CRC32C  string `json:"crc32c"` // Castagnoli, 8 hex digits
	Tensors int    `json:"tensors"`
	Host    string `json:"host,omitempty"` // the host that wrote it, if there were several
}

// Manifest says what a checkpoint belongs to and where training resumes. Its fields are those of the manifest's
// file.
type Manifest struct {
	Version int    `json:"version"`
	Model   string `json:"model"`
	ModelID string `json:"model_id"` // digest of the model's description; a checkpoint fits only one model
	// Training is a name that all checkpoints of a training share, across all its runs. It is empty in older manifests.
	Training string `json:"training,omitempty"`
	Engine   string `json:"engine"` // the engine that computed the state; other engines or machines may give other bits
	Float    string `json:"float"`  // element type of parameters
	// Steps is the number of completed steps. Training resumes with the step of this index.
	Steps   int    `json:"steps"`
	Seed    uint64 `json:"seed"`
	Batch   int    `json:"batch"`   // samples per step, of each pipeline
	Samples int64  `json:"samples"` // position in the data: samples consumed
	// MicroBatch decides in which order sums are formed. A resumed run can have the same bits only if it keeps
	// MicroBatch; its stages may differ.
	MicroBatch int            `json:"micro_batch"`
	Optimizer  optim.Settings `json:"optimizer"`
	Rate       optim.Rate     `json:"rate"` // as applied, including Asked.RateFactor
	Clip       float64        `json:"clip,omitempty"`
	Loss       float64        `json:"loss"` // mean loss of the last step
	Plan       *plan.Plan     `json:"plan,omitempty"`
	// Updates has the number of updates in the optimizer's states, by layer. It has no entry for a layer whose number
	// is Steps. With replicas that take minibatches in turn, a stage makes one update for several minibatches.
	Updates map[string]int `json:"updates,omitempty"`
	Asked   *Asked         `json:"asked,omitempty"` // nil in version 1
	// Data tells whether a resumed run reads the same training data; zero in older manifests.
	Data data.Mark `json:"data,omitzero"`
	// Parameters lists the model's parameters, so that missing ones and wrong shapes are detected. It is empty in older
	// manifests.
	Parameters []Parameter `json:"parameters,omitempty"`
	Files      []File      `json:"files"`
	// SHA256 is the checksum of the manifest's text with this value empty.
	SHA256 string `json:"manifest_sha256,omitempty"`
}

// Parameter is a parameter or a buffer of the model, under the name of the layer that owns it.
type Parameter struct {
	Name   string  `json:"name"`
	Shape  []int64 `json:"shape"`
	DType  string  `json:"dtype,omitempty"` // empty means the checkpoint's float type
	Buffer bool    `json:"buffer,omitempty"`
	// Inner marks a parameter that the module does not save. Also lists the other names under which the module saves a
	// parameter.
	Inner bool     `json:"inner,omitempty"`
	Also  []string `json:"also,omitempty"`
}

// UpdatesOf returns the number of updates in the optimizer's states of a layer.
func (m *Manifest) UpdatesOf(layer string) int {
	if n, apart := m.Updates[layer]; apart {
		return n
	}
	return m.Steps
}

// Asked holds further settings of the run, which a resumed run keeps.
type Asked struct {
	Steps      int     `json:"steps"`                 // total number of steps
	EvalEvery  int     `json:"eval_every,omitempty"`  // steps between evaluations, which drain a stream
	EvalRows   *int    `json:"eval_rows,omitempty"`   // test rows of an evaluation; 0 means all; nil in older manifests
	SaveEvery  int     `json:"save_every,omitempty"`  // steps between checkpoints
	Keep       int     `json:"keep,omitempty"`        // checkpoints kept; 0 means all
	RateScale  string  `json:"rate_scale,omitempty"`  // the rule that gave RateFactor
	RateFactor float64 `json:"rate_factor,omitempty"` // factor of the rate; 0 means 1
	// Since is where the number of parallel pipelines last changed. From there on, every step consumes one batch for
	// each pipeline of the plan.
	Since Position `json:"since,omitzero"`
}

// Position is a place in a training: steps done, and samples consumed by them.
type Position struct {
	Steps   int   `json:"steps"`
	Samples int64 `json:"samples"`
}

// Pipelines returns how many parallel pipelines the checkpoint has.
func (m *Manifest) Pipelines() int {
	if m.Plan == nil {
		return 1
	}
	return m.Plan.Together()
}

// Since returns where the number of pipelines last changed, as far as the manifest says.
func (m *Manifest) Since() Position {
	if m.Asked == nil {
		return Position{}
	}
	return m.Asked.Since
}

// sumOf returns the checksum of a manifest's text in which the checksum itself is empty.
func sumOf(emptied []byte) string {
	sum := sha256.Sum256(emptied)
	return hex.EncodeToString(sum[:])
}

// sumField returns the text of a manifest's checksum. No string within the manifest can contain it, because its
// quotation marks would be escaped.
func sumField(sum string) []byte { return fmt.Appendf(nil, "\"manifest_sha256\": %q", sum) }

// encode returns the manifest's text. The text has a checksum unless its version is 1.
func (m *Manifest) encode() ([]byte, error) {
	sealed := *m
	if m.Version != bare {
		sealed.SHA256 = "-" // any value, so that the field is written
	}
	text, err := json.MarshalIndent(&sealed, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("checkpoint: manifest: %w", err)
	}
	text = append(text, '\n')
	if m.Version == bare {
		return text, nil
	}
	emptied := bytes.Replace(text, sumField("-"), sumField(""), 1)
	return bytes.Replace(emptied, sumField(""), sumField(sumOf(emptied)), 1), nil
}

// decodeManifest parses and checks a manifest.
func decodeManifest(b []byte) (*Manifest, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("it is cut short or no JSON: %w", err)
	}
	if head.Version != Version && head.Version != bare {
		return nil, fmt.Errorf("version is %d; this millrace reads %d and %d", head.Version, bare, Version)
	}
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, err
	}
	if err := m.checkSum(b); err != nil {
		return nil, err
	}
	if err := checkKeys(b, m); err != nil {
		return nil, err
	}
	return m, m.check()
}

// checkSum compares a manifest with its checksum. A text of version 1 has no checksum, and none of the fields that
// version 2 added. So a version 2 manifest whose version was changed is not accepted as an old one.
func (m *Manifest) checkSum(text []byte) error {
	if m.Version == bare {
		if m.SHA256 != "" || m.Asked != nil || m.Updates != nil {
			return fmt.Errorf("version is %d, and it has manifest_sha256, asked or updates, which version %d brought: "+
				"it has changed since it was written", bare, Version)
		}
		return nil
	}
	if m.Asked == nil {
		return fmt.Errorf("asked is missing: it has changed since it was written")
	}
	field := sumField(m.SHA256)
	if bytes.Count(text, field) != 1 {
		return fmt.Errorf("manifest_sha256 is missing or not as it was written: it has changed since")
	}
	if got := sumOf(bytes.Replace(text, field, sumField(""), 1)); got != m.SHA256 {
		return fmt.Errorf("checksum %s; its manifest_sha256 is %s: it has changed since it was written", got, m.SHA256)
	}
	return nil
}

// check returns an error for impossible or contradictory values.
func (m *Manifest) check() error {
	switch {
	case m.Steps < 0:
		return fmt.Errorf("steps is %d; it must be 0 or more", m.Steps)
	case m.Batch < 1 || m.MicroBatch < 1:
		return fmt.Errorf("batch is %d and micro_batch %d; both must be at least 1", m.Batch, m.MicroBatch)
	case m.Samples < 0:
		return fmt.Errorf("samples is %d; it must be 0 or more", m.Samples)
	case m.Samples%int64(m.Batch) != 0:
		return fmt.Errorf("samples is %d with a batch of %d; they are whole batches", m.Samples, m.Batch)
	case len(m.Files) == 0:
		return fmt.Errorf("files is empty; a checkpoint has at least one")
	}
	if err := m.checkPosition(); err != nil {
		return err
	}
	for layer, n := range m.Updates {
		if n < 0 || n > m.Steps {
			return fmt.Errorf("updates of layer %s are %d in %d steps; a step updates it once at most", layer, n, m.Steps)
		}
	}
	if err := m.checkParameters(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, f := range m.Files {
		if !plainName(f.Name) || f.Name == manifestName || seen[f.Name] {
			return fmt.Errorf("files[%d].name is %q; it must be a file name of its own in the same directory", i, f.Name)
		}
		if f.Bytes < 0 || f.Tensors < 0 {
			return fmt.Errorf("files[%d]: bytes %d and tensors %d; neither can be negative", i, f.Bytes, f.Tensors)
		}
		seen[f.Name] = true
	}
	return nil
}

// checkParameters returns an error for a list of parameters that cannot be a model's.
func (m *Manifest) checkParameters() error {
	seen := map[string]bool{}
	for i, p := range m.Parameters {
		if p.Name == "" || seen[p.Name] {
			return fmt.Errorf("parameters[%d].name is %q; each has a name of its own", i, p.Name)
		}
		dtype := m.elementOf(p)
		if _, known := dtypes[dtype]; !known {
			return fmt.Errorf("parameters[%d], %s: dtype is %q; it is one of %s", i, p.Name, dtype, strings.Join(kept, ", "))
		}
		if _, err := byteSize(dtypes[dtype], p.Shape); err != nil {
			return fmt.Errorf("parameters[%d], %s of %s: %w", i, p.Name, dtype, err)
		}
		seen[p.Name] = true
		for _, name := range p.Also {
			if name == "" || seen[name] {
				return fmt.Errorf("parameters[%d], %s: another name of it is %q; each has a name of its own", i, p.Name, name)
			}
			seen[name] = true
		}
	}
	return nil
}

// elementOf returns the element type of a parameter.
func (m *Manifest) elementOf(p Parameter) string {
	if p.DType != "" {
		return p.DType
	}
	return m.Float
}

// checkPosition compares the samples consumed with the steps done. Version 1 does not say whether the number of
// pipelines has changed, so there it only checks that each step consumed at least one batch.
func (m *Manifest) checkPosition() error {
	batches := m.Samples / int64(m.Batch)
	if m.Asked == nil {
		if batches < int64(m.Steps) {
			return fmt.Errorf("samples is %d, %d batches of %d; %d steps consume one each at least",
				m.Samples, batches, m.Batch, m.Steps)
		}
		return nil
	}
	since, each := m.Asked.Since, int64(max(m.Pipelines(), 1))
	steps, behind := int64(m.Steps)-int64(since.Steps), m.Samples-since.Samples
	if since.Steps < 0 || since.Samples < 0 || steps < 0 || behind < 0 || since.Samples%int64(m.Batch) != 0 {
		return fmt.Errorf("asked.since is step %d, sample %d; the checkpoint is of step %d, sample %d",
			since.Steps, since.Samples, m.Steps, m.Samples)
	}
	if batches = behind / int64(m.Batch); batches%each != 0 || batches/each != steps {
		return fmt.Errorf("samples is %d; %d steps of %d pipelines with batches of %d consume others",
			m.Samples, m.Steps, each, m.Batch)
	}
	return nil
}

// plainName reports whether a name stays inside its directory.
func plainName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 255 {
		return false
	}
	for _, r := range s {
		if r == '/' || r == '\\' || r < ' ' {
			return false
		}
	}
	return true
}
