// Package update changes the weights of stages. A weight policy names one of its Updaters:
//
//   - plain: the update uses the gathered gradients, which are then gone;
//   - deferred: complete gradients are set aside, so that replicas sum them during the next minibatch
//     (asynchronous data parallelism), and the update comes later;
//   - tentative: the update runs before its gradients' norm is known. It is confirmed later, or undone and made
//     again (post-validation: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, §4);
//   - elastic: pipelines with their own weights are pulled towards a reference model, which moves by the mean of
//     their steps (elastic averaging: AvgPipe, PPoPP 2023, §3.2).
//
// In: stages of the same layers on one device, the optimizer's settings, and for every update its rate and its scale.
// Out: the next version of the weights; the sums of squares of the next update's gradients; the distance of a reference
// from the average of its pipelines. Refused: an unknown name, and a wrong number of stages; an update after a
// tentative one that is neither confirmed nor undone, and Confirm or Undo without one; a reference's update without a
// step of every pipeline; and, unless the reference is beside its pipelines, a pipeline's update before the reference
// has taken its previous step.
//
// An Updater owns what it keeps from one update to the next: gradients set aside, copies to go back to, steps for the
// reference. It does not own its stage. Like the stage, it belongs to the device's goroutine. For each update the
// caller calls Statistics, if replicas sum buffers, then Complete once the gradients are whole. It then calls Norms if
// gradients are clipped, AverageStatistics, and Update. A tentative update is followed by Confirm or Undo, before the
// stage's next backward. At the end the caller calls Close, before it closes the stage.
package update
