// Package update changes the weights of stages. A weight policy names one of its Updaters:
//
//   - plain: the gradients are gathered, the update steps by them, and they are gone;
//   - deferred: the gradients are put aside when they are complete, so that replicas sum them beside the next
//     minibatch (asynchronous data parallelism), and the update comes later;
//   - tentative: the update goes before its gradients' norm is known, and is confirmed, or undone and made
//     again (post-validation: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, §4);
//   - elastic: pipelines with weights of their own are pulled towards a reference model, which moves by the
//     mean of their steps (elastic averaging: AvgPipe, PPoPP 2023, §3.2).
//
// In: stages of the same layers on one device, the optimizer's settings, and of every update its rate and its
// scale. Out: the next version of the weights; the squares of the gradients that the next update goes by; how
// far a reference is from the average of its pipelines.
// Refused: a name that is none of these, as many stages as the Updater does not have, an update behind a
// tentative one that is neither confirmed nor undone, a Confirm or an Undo without one, a reference's update
// without a step of every pipeline, a pipeline's before the reference has taken the step before.
//
// An Updater owns what it keeps from one update to the next: gradients put aside, copies to go back to, steps
// for the reference. It does not own its stage, and belongs to the device's goroutine as that does. Whoever
// drives it calls, for each update, Complete once the gradients are whole (and Statistics in front of it,
// where replicas sum buffers), then Norms where gradients are clipped, AverageStatistics, Update, and of a
// tentative one Confirm or Undo before the stage's next backward; and Close at the end, in front of the
// stages'.
package update
