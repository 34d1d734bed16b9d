// Package optim updates parameters: it has optimizers, learning-rate schedules and gradient clipping by the global
// norm.
//
// In: parameters, their gradients and states as engine tensors, the number of the update, the learning rate. Out:
// the parameters and states changed in place; the gradients are used up. Refused: unknown kinds, and rates and
// coefficients outside of the range in which the method is defined, each with that range.
//
// A step is the same sequence of element-wise operators for each parameter, on every stage and replica. So it does
// not depend on how a model is cut.
package optim
