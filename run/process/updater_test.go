package process

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/update"
)

// Package update has every Updater that a Program can name.
func TestEveryUpdaterIsThere(t *testing.T) {
	for name, models := range map[schedule.Updater]int{
		schedule.PlainUpdate: 1, schedule.DeferredUpdate: 1, schedule.TentativeUpdate: 1, schedule.ElasticUpdate: 3,
	} {
		all, err := update.New(string(name), update.Config{Averaging: plan.NewElastic(2)},
			slices.Repeat([]*stage.Stage{{}}, models))
		if err != nil || len(all) != models {
			t.Errorf("%s: %d Updaters of %d models, %v", name, len(all), models, err)
		}
	}
	for _, policy := range schedule.Policies() {
		if by := policy.Updater(); by != schedule.PlainUpdate && by != schedule.ElasticUpdate {
			t.Errorf("%s updates by %q", policy, by)
		}
	}
}
