package race

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/child"
	"github.com/millrace-ml/millrace/internal/crash"
)

const (
	longestLine = 1 << 16
	// closeGrace is how long a rival may take to end after its input has ended.
	closeGrace = 10 * time.Second
	// clockSlack is the most by which a visit's time on a rival's clock may exceed its time on our clock.
	clockSlack = 5 * time.Millisecond
)

// Command describes how to start a rival.
type Command struct {
	Name  string   // its name in tables
	Path  string   // program
	Args  []string // its arguments
	Env   []string // its environment; nil: ours
	Steps int      // optimizer steps in a visit
	// Beside are further processes of the rival, which learn of visits from its first process. They start and end with
	// that process. Their own Beside is ignored.
	Beside []Command
}

// Description is what a rival reports about itself when it is ready.
type Description struct {
	Name       string `json:"name"`
	Torch      string `json:"torch"`
	Parameters int64  `json:"parameters"` // number of parameters in the stages of all processes
	Threads    int    `json:"threads"`    // intra-op threads of each process
	Batch      int    `json:"batch"`      // rows in an optimizer step
	Micro      int    `json:"micro"`      // rows in a micro-batch
	Context    int    `json:"context"`    // tokens in a row
	Optimizer  string `json:"optimizer"`
	BLASCore   string `json:"blas_core"`
	// ComputeS is the duration of a step without messages, and ReduceS is the duration of the messages alone, in
	// seconds. Only some rivals with several processes measure them.
	ComputeS float64 `json:"compute_s"`
	ReduceS  float64 `json:"reduce_s"`
}

// Rival is a runner in another process. It speaks the protocol of lab/race/peers/protocol.py. It first writes a line of
// JSON that describes it. Then it answers every line "step N" with a line {"samples": n, "seconds": s, "loss": l}.
type Rival struct {
	Description Description
	Loss        float64   // of the last step
	StepS       float64   // median step of the last visit; 0: unknown
	PeakBytes   []int64   // by worker; nil: unknown
	Busy        float64   // fraction of the last visit in which workers computed, as a mean over workers; 0: unknown
	BusyS       []float64 // each worker's mean computing time in a step of the last visit; nil: unknown
	TakenBack   int       // how often updates of the last visit were taken back

	command Command
	process *exec.Cmd
	beside  *beside
	input   io.WriteCloser
	answers chan []byte
	closing chan struct{} // closed by the method end; answers that come after it are dropped
	gone    chan struct{} // closed when the process has ended and `status` is set
	status  error
	said    *tail
}

// Start starts a rival and waits until it is ready. When ctx ends, the process and its children are killed. The caller
// must call Close.
func Start(ctx context.Context, c Command) (*Rival, error) {
	if c.Steps < 1 {
		return nil, fmt.Errorf("race: %s: %d steps a visit; it must be 1 at least", c.Name, c.Steps)
	}
	r := &Rival{
		command: c, process: child.Command(ctx, c.Path, c.Args...),
		answers: make(chan []byte), closing: make(chan struct{}), gone: make(chan struct{}), said: &tail{},
	}
	r.beside = &beside{of: r, ended: make(chan error, len(c.Beside)), early: make(chan error, 1)}
	r.process.Env, r.process.Stderr = c.Env, r.said
	var err error
	if r.input, err = r.process.StdinPipe(); err != nil {
		return nil, fmt.Errorf("race: %s: %w", c.Name, err)
	}
	output, err := r.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("race: %s: %w", c.Name, err)
	}
	if err = r.process.Start(); err == nil {
		if err = r.beside.start(ctx, c.Beside); err != nil {
			child.Kill(r.process)
			err = errors.Join(err, r.process.Wait())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("race: %s: it does not start: %w", c.Name, err)
	}
	crash.Go(func() { r.listen(output) })
	line, err := r.answer(ctx)
	if err == nil {
		err = parseLine(line, &r.Description)
	}
	if err != nil {
		r.end()
		return nil, fmt.Errorf("race: %s: %w", c.Name, err)
	}
	return r, nil
}

// Name returns the Command's name.
func (r *Rival) Name() string { return r.command.Name }

// Step trains the Command's number of steps. After an error the rival has ended.
func (r *Rival) Step(ctx context.Context) (Work, error) {
	w, err := r.step(ctx)
	if err != nil {
		r.end()
	}
	return w, err
}

func (r *Rival) step(ctx context.Context) (Work, error) {
	began := time.Now()
	if _, err := fmt.Fprintf(r.input, "step %d\n", r.command.Steps); err != nil {
		r.end() // its status and output say more than a broken pipe
		return Work{}, r.lost()
	}
	line, err := r.answer(ctx)
	if err != nil {
		return Work{}, err
	}
	a, err := parseAnswer(line)
	if err != nil {
		return Work{}, err
	}
	if waited := time.Since(began); a.work.Time > waited+clockSlack {
		return Work{}, fmt.Errorf("it says that a visit took %v and answered after %v: the answer is to another request",
			a.work.Time, waited)
	}
	r.Loss, r.StepS, r.PeakBytes, r.Busy, r.BusyS = a.loss, a.stepS, a.peakBytes, a.busy, a.busyS
	r.TakenBack = a.takenBack
	return a.work, nil
}

// Ask sends a line of the caller's own protocol, and decodes the answer. After an error the rival has ended.
func (r *Rival) Ask(ctx context.Context, line string, into any) error {
	_, err := fmt.Fprintln(r.input, line)
	if err != nil {
		r.end()
		return fmt.Errorf("race: %s: %w", r.Name(), r.lost())
	}
	said, err := r.answer(ctx)
	if err == nil {
		err = parseLine(said, into)
	}
	if err != nil {
		r.end()
		return fmt.Errorf("race: %s: %w", r.Name(), err)
	}
	return nil
}

// Close ends the rival, and returns an error if it did not end well. A second Close does nothing.
func (r *Rival) Close() error {
	select {
	case <-r.closing:
		return nil
	default:
	}
	close(r.closing)
	closed := r.input.Close()
	impatient := time.AfterFunc(closeGrace, crash.Caught(func() { child.Kill(r.process) }))
	defer impatient.Stop()
	<-r.gone
	if r.status != nil {
		return fmt.Errorf("race: %s: %w", r.command.Name, r.lost())
	}
	return closed
}

// end kills the process and its children, if they still run, and waits for the process.
func (r *Rival) end() {
	select {
	case <-r.closing:
	default:
		close(r.closing)
	}
	child.Kill(r.process)
	<-r.gone
}

// listen passes the rival's lines to the method answer until the process ends.
func (r *Rival) listen(output io.Reader) {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		select {
		case r.answers <- []byte(lines.Text()):
		case <-r.closing:
		}
	}
	if lines.Err() != nil { // a line is too long, so the beginning of the next line cannot be found
		child.Kill(r.process)
	}
	r.status = errors.Join(lines.Err(), r.process.Wait())
	child.Kill(r.process) // kills other ranks, which have lost the first process
	r.status = r.beside.end(r.status)
	close(r.gone)
}

func (r *Rival) answer(ctx context.Context) ([]byte, error) {
	select {
	case line := <-r.answers:
		return line, nil
	case <-r.gone:
		return nil, r.lost()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lost returns an error that says how the rival ended unexpectedly. The rival must have ended.
func (r *Rival) lost() error {
	how := "status 0"
	if r.status != nil {
		how = r.status.Error()
	}
	if words := strings.TrimSpace(r.said.String()); words != "" {
		return fmt.Errorf("it ended with %s: %s", how, words)
	}
	return fmt.Errorf("it ended with %s", how)
}
