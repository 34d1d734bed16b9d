package update

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
)

// plain updates a stage with the gradients that it has gathered.
type plain struct {
	stage     *stage.Stage
	optimizer optim.Settings
	summed    bool // replicas have summed the buffers for the next update
}

func (u *plain) Complete() error               { return nil }
func (u *plain) Norms() (engine.Tensor, error) { return u.stage.Gradients.Norms() }

func (u *plain) Statistics() ([]stage.Vector, error) {
	u.summed = true
	return u.stage.Statistics.Vectors(), nil
}

func (u *plain) AverageStatistics(replicas int) error {
	if !u.summed {
		return nil
	}
	u.summed = false
	return u.stage.Statistics.Average(replicas)
}

func (u *plain) Update(step Step) error {
	if err := u.renew(step.Renewal); err != nil {
		return err
	}
	return u.stage.EachLayer(func(params []*stage.Param) error { return u.stepLayer(params, step) })
}

// renew takes over the gathered gradients (Gradients.Gather), and makes the next version of the weights.
func (u *plain) renew(how stage.Renewal) error {
	if err := u.stage.Gradients.Gather(); err != nil {
		return err
	}
	return u.stage.Renew(how)
}

// stepLayer updates the parameters of one layer and drops their gradients.
func (u *plain) stepLayer(params []*stage.Param, step Step) error {
	dev := u.stage.Device
	m := dev.Begin()
	defer dev.End(m)
	slots, err := u.slots(params)
	if err == nil {
		err = u.optimizer.Apply(dev, step.Step, slots)
	}
	if err != nil {
		return err
	}
	return u.stage.Gradients.Forget(params)
}

// slots returns the parameters in the form that the optimizer takes.
func (u *plain) slots(params []*stage.Param) ([]optim.Slot, error) {
	slots := make([]optim.Slot, len(params))
	for i, p := range params {
		value, err := u.stage.Versions.Writable(p)
		if err != nil {
			return nil, err
		}
		slots[i] = optim.Slot{Param: value, Grad: p.Gradient(), State: p.State, NoDecay: p.NoDecay,
			Count: u.stage.Versions.Updates(p)}
	}
	return slots, nil
}

func (u *plain) Confirm() error { return u.settled() }

func (u *plain) Undo() (int, error) { return 0, u.settled() }

func (u *plain) settled() error {
	return fmt.Errorf("update: the last update of layers %d to %d is not one that can be taken back", u.stage.First,
		u.stage.Last)
}

func (u *plain) Apart() (float64, error) { return 0, nil }

func (u *plain) Close() {}
