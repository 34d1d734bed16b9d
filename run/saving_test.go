package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// savingEngine calls a function for every copy to host memory while a checkpoint is written.
type savingEngine struct {
	engine.Engine
	dir string
	do  func(worker int, drafts []string) error
}

func (e savingEngine) Open(worker, threads int) (engine.Device, error) {
	d, err := e.Engine.Open(worker, threads)
	return savingDevice{d, e, worker}, err
}

type savingDevice struct {
	engine.Device
	of     savingEngine
	worker int
}

func (d savingDevice) ToHost(t engine.Tensor) (engine.Host, error) {
	drafts, err := filepath.Glob(filepath.Join(d.of.dir, "*.partial"))
	if err == nil && len(drafts) > 0 {
		err = d.of.do(d.worker, drafts)
	}
	if err != nil {
		return nil, err
	}
	return d.Device.ToHost(t)
}

// A checkpoint that one worker cannot write is removed once the others have stopped writing to it.
func TestAHalfWrittenCheckpointGoesBehindItsWriters(t *testing.T) {
	c := small(t, 2, 2)
	c.Checkpoint.Dir = t.TempDir()
	why := errors.New("no more room")
	writing := make(chan struct{})
	slow, gone := false, error(nil)
	c.Engine = savingEngine{c.Engine, c.Checkpoint.Dir, func(worker int, drafts []string) error {
		switch {
		case worker == 0:
			<-writing
			return why
		case !slow:
			slow = true
			close(writing)
			time.Sleep(100 * time.Millisecond)
			_, gone = os.Stat(drafts[0])
		}
		return nil
	}}
	res, err := Train(t.Context(), c)
	if !errors.Is(err, why) || res.Checkpoint != "" || res.Leaked != 0 {
		t.Error(err, res.Checkpoint, res.Leaked)
	}
	if gone != nil {
		t.Error("the draft was removed while a worker wrote to it: ", gone)
	}
	if left, err := os.ReadDir(c.Checkpoint.Dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// If a run is told to stop while it saves, it saves that step only once.
func TestAStopDuringASaveSavesOnce(t *testing.T) {
	c := small(t, 2, 10)
	c.Checkpoint.Dir, c.Checkpoint.Every = t.TempDir(), 3
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Engine = savingEngine{c.Engine, c.Checkpoint.Dir, func(int, []string) error {
		cancel()
		return nil
	}}
	saves := 0
	c.Hooks.OnCheckpoint = func(string, int) { saves++ }
	res, err := Train(ctx, c)
	if err != nil || !res.Stopped || res.Steps != 3 || saves != 1 {
		t.Errorf("%v; stopped: %v, behind %d steps, with %d saves", err, res.Stopped, res.Steps, saves)
	}
}

// A run that is to stop does not end while bytes of checkpoint files move, however long a worker takes.
func TestALongSaveDoesNotEndARunThatIsToStop(t *testing.T) {
	c, free := small(t, 3, 1000), make(chan struct{})
	c.Watch.StallAfter, c.Engine = 300*time.Millisecond, waitingEngine{c.Engine, 1, free}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir, begun := t.TempDir(), make(chan struct{})
	c.Begin = func() error {
		close(begun)
		return nil
	}
	var saving sync.WaitGroup
	saving.Go(func() {
		defer close(free)
		<-begun
		time.AfterFunc(c.Watch.StallAfter/3, cancel) // at a time when worker 1 waits before its first backward
		for began := time.Now(); time.Since(began) < 5*c.Watch.StallAfter; time.Sleep(10 * time.Millisecond) {
			_, err := checkpoint.WriteFile(dir, "stage-0.safetensors", []checkpoint.Tensor{{Name: "w", DType: engine.Float32,
				Shape: []int64{1}, Data: make([]byte, 4)}})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	res, err := Train(ctx, c)
	saving.Wait()
	if err != nil || !res.Stopped {
		t.Errorf("stopped: %v, %v", res.Stopped, err)
	}
}
