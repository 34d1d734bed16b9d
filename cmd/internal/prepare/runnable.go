package prepare

import (
	"fmt"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// CheckRunnable refuses a model with layers that cannot be computed here.
func CheckRunnable(m *model.Model) error {
	if _, err := nn.Build(m); err != nil {
		return cli.BadInput(fmt.Errorf("model %s: %w%s", m.Name, err, notHere))
	}
	return nil
}

// notHere says what a user can do with a model that cannot run here.
const notHere = ", so that it is neither measured nor trained here; " +
	"its costs are computed for the devices of a --cluster (plan, schedule compare, profile --analytic)"
