// Package optim steps parameters: optimizers, learning-rate schedules and the
// clipping of gradients by their global norm.
//
// In: parameters, their gradients and states as engine tensors, the number of the
// update, the learning rate. Out: the parameters and states changed in place, the
// gradients used up. Refused: unknown kinds, rates and coefficients outside the range
// in which the method is defined, each with the range.
//
// A step is the same sequence of element-wise operators for each parameter, whichever
// stage or replica holds it, so it does not depend on how a model is cut.
package optim
