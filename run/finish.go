package run

// finishOnly does what is left of a run whose checkpoint has all steps behind it, one that was killed before it
// could evaluate and report: it saves itself where it goes on in another directory, and evaluates.
func (r *runner) finishOnly() error {
	c := &r.job.config
	if err := r.begin(); err != nil {
		return err
	}
	r.checkpoint = r.job.from.Path
	if c.Checkpoint.Dir != "" && !r.job.store.Holds(r.job.from.Path) {
		if err := r.save(); err != nil {
			return err
		}
	}
	if c.Data.Test == nil {
		return nil
	}
	return r.evaluate()
}

// begin says once that the run can begin.
func (r *runner) begin() error {
	if r.begun || r.job.config.Begin == nil {
		return nil
	}
	r.begun = true
	return r.job.config.Begin()
}
