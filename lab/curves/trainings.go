package curves

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/millrace-ml/millrace/internal/document"
)

// Training is one training with its evaluations.
type Training struct {
	// Of is everything that the training's result depends on, except the code. A training with the same Of is not
	// repeated.
	Of       json.RawMessage `json:"of"`
	Method   string          `json:"method"`
	Seed     uint64          `json:"seed"`
	Points   []Point         `json:"points"`
	Diverged string          `json:"diverged,omitempty"` // why it ended early: its loss became NaN or infinite
}

// Trainings is a file with one JSON line for each training, added when it ends. So a stopped benchmark need not
// repeat trainings. Its methods may be called from several goroutines.
type Trainings struct {
	mu   sync.Mutex
	file *os.File
	all  []Training
}

// OpenTrainings opens or creates a file of trainings. It drops an incomplete last line, which a crash or a full disk
// may leave. It refuses any other invalid line, with its number.
func OpenTrainings(path string) (*Trainings, error) {
	text, err := document.Read(path, document.MaxBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("curves: %w", err)
	}
	t := &Trainings{}
	whole := bytes.LastIndexByte(text, '\n') + 1
	number := 0
	for line := range bytes.Lines(text[:whole]) {
		number++
		one, err := parseTraining(line)
		if err != nil {
			return nil, fmt.Errorf("curves: %s: line %d: %w; mend it or delete the file, and what it has is trained "+
				"again", path, number, err)
		}
		t.all = append(t.all, one)
	}
	if t.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		return nil, fmt.Errorf("curves: %w", err)
	}
	if err := t.file.Truncate(int64(whole)); err != nil {
		return nil, errors.Join(fmt.Errorf("curves: %w", err), t.file.Close())
	}
	return t, nil
}

func parseTraining(line []byte) (Training, error) {
	var t Training
	if err := json.Unmarshal(line, &t); err != nil {
		return t, fmt.Errorf("no training: %w", err)
	}
	if len(t.Of) == 0 || t.Method == "" {
		return t, errors.New("a training without \"of\" or \"method\"")
	}
	for i, p := range t.Points {
		if p.Epoch <= 0 || i > 0 && p.Epoch <= t.Points[i-1].Epoch {
			return t, fmt.Errorf("point %d is at epoch %g; epochs rise from above 0", i, p.Epoch)
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, t.Of); err != nil {
		return t, err
	}
	t.Of = compact.Bytes()
	return t, nil
}

// Find returns the training with these settings, if the file has it. Settings are equal if their JSON is equal.
func (t *Trainings) Find(of any) (Training, bool, error) {
	key, err := json.Marshal(of)
	if err != nil {
		return Training{}, false, fmt.Errorf("curves: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		if bytes.Equal(one.Of, key) {
			return one, true, nil
		}
	}
	return Training{}, false, nil
}

// Add writes a training with these settings, which has ended.
func (t *Trainings) Add(of any, one Training) error {
	key, err := json.Marshal(of)
	if err != nil {
		return fmt.Errorf("curves: %w", err)
	}
	one.Of = key
	line, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("curves: training of %s, seed %d: %w", one.Method, one.Seed, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("curves: %w", err)
	}
	t.all = append(t.all, one)
	return nil
}

// Close closes the file.
func (t *Trainings) Close() error { return t.file.Close() }
