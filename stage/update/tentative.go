package update

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/stage"
)

// tentative makes updates that can be taken back. The paper's rollback inverts the optimizer's arithmetic, which
// restores the old weights only up to rounding. Here everything that the update changes is kept instead. So an update
// that is taken back and made again has the same bits as one that waited for the norm.
type tentative struct {
	*plain
	kept   *kept // nil: the last update is final
	undone bool  // the next Update is final at once
}

// kept is what a tentative update keeps for a rollback, besides the stage. The stage itself keeps the old weights, as
// an older version, and the gradients.
type kept struct {
	states  [][]engine.Tensor // by parameter, from before the update
	buffers []engine.Tensor   // the buffers from before the forwards that follow the update
}

func (k *kept) free() {
	for _, states := range k.states {
		for _, t := range states {
			t.Free()
		}
	}
	for _, t := range k.buffers {
		t.Free()
	}
}

func (u *tentative) Update(step Step) error {
	if u.undone {
		u.undone = false
		return u.plain.Update(step)
	}
	s := u.stage
	if u.kept != nil {
		return fmt.Errorf("update: layers %d to %d are updated while their last update is neither confirmed nor taken back",
			s.First, s.Last)
	}
	u.kept = &kept{}
	if err := u.renew(stage.Keep); err != nil {
		return err
	}
	if err := u.keepStates(); err != nil {
		return err
	}
	return s.EachLayer(func(params []*stage.Param) error { return u.tryLayer(params, step) })
}

// keepStates keeps the optimizer states and gives the parameters copies of them. It also copies the buffers, since
// later forwards overwrite them.
func (u *tentative) keepStates() error {
	k, dev := u.kept, u.stage.Device
	m := dev.Begin()
	defer dev.End(m)
	for _, p := range u.stage.Params.Learned {
		k.states = append(k.states, p.State)
		p.State = nil
		for _, t := range k.states[len(k.states)-1] {
			c, err := engine.Copy(dev, t)
			if err != nil {
				return fmt.Errorf("update: states of %s: %w", p.Name, err)
			}
			p.State = append(p.State, dev.Disown(c))
		}
	}
	for _, b := range u.stage.Params.Buffers {
		c, err := engine.Copy(dev, b.Value)
		if err != nil {
			return fmt.Errorf("update: buffer %s: %w", b.Name, err)
		}
		k.buffers = append(k.buffers, dev.Disown(c))
	}
	return nil
}

// tryLayer updates one layer with copies of its gradients. A step destroys its gradients, and this step may have to be
// repeated.
func (u *tentative) tryLayer(params []*stage.Param, step Step) error {
	dev := u.stage.Device
	m := dev.Begin()
	defer dev.End(m)
	slots, err := u.slots(params)
	if err != nil {
		return err
	}
	for i := range slots {
		if slots[i].Grad, err = engine.Copy(dev, slots[i].Grad); err != nil {
			return err
		}
	}
	return u.optimizer.Apply(dev, step.Step, slots)
}

func (u *tentative) Confirm() error {
	if u.kept == nil {
		return u.settled()
	}
	u.kept.free()
	u.kept = nil
	if err := u.stage.Gradients.Forget(u.stage.Params.Learned); err != nil {
		return err
	}
	return u.stage.Drop(u.stage.Versions.Newest() - 1)
}

func (u *tentative) Undo() (thrown int, err error) {
	k := u.kept
	if k == nil {
		return 0, u.settled()
	}
	u.kept, u.undone = nil, true
	defer k.free()
	thrown = u.stage.Abandon()
	if err := u.stage.Return(); err != nil {
		return thrown, err
	}
	for i, p := range u.stage.Params.Learned {
		p.State, k.states[i] = k.states[i], p.State
	}
	for i, b := range u.stage.Params.Buffers {
		if err := engine.CopyInto(u.stage.Device, b.Value, k.buffers[i]); err != nil {
			return thrown, fmt.Errorf("update: buffer %s: %w", b.Name, err)
		}
	}
	return thrown, nil
}

func (u *tentative) Close() {
	if u.kept != nil {
		u.kept.free()
		u.kept = nil
	}
}
