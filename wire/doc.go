// Package wire moves tensors between workers in messages, over a Carrier. It limits how many messages can wait at a
// receiver.
//
// A Carrier moves single frames of exact length. InProcess is one; packages below this one have others. A Port is one
// worker's end of all its edges: it turns messages into frames, counts slots and credits, and delivers complete
// messages. Ports holds the ports of one process. Package collective sums vectors over ports.
//
// In: a table of the edges between workers, and messages, each with a Key, a step and buffers. Out: the same messages
// at the other end, complete, each reported once; the sender learns when its buffers are free. Refused: frames that are
// not a header when one is due, or of another length than announced; unequal engines and versions; more tensors,
// dimensions or bytes than MaxParts, MaxRank and MaxBytes; every call once a peer has failed.
//
// The wire knows only the element types and lengths of the tensors that it carries. Numbers are little-endian, in
// headers and in tensors. NewPort refuses to run on a big-endian machine.
//
// # Edges
//
// An edge is a directed pair of workers, or for a collective a directed pair of its members. Its order is the order in
// which the sender posts messages, which is that of the sender's list. A receiver takes them by Key, in any order. A
// carrier needs no tags, since the n-th frame sent on an edge is the n-th received. TagOf packs epoch, edge and number
// into one word for carriers that do match by tags. A Table numbers edges, separately for each directed pair of
// workers, in the order in which Programs name them. A process knows only the edges of its own workers, and both ends
// of an edge give it the same number. An edge keeps its number for the whole run, and its frames are counted over the
// whole run.
//
// # Messages
//
// A message is a header frame of HeaderBytes, a frame with further descriptions if they do not fit, and a frame for
// each buffer that is not empty. A header has Key, step, epoch, send time, and the type and shape of each buffer, in
// binary. When the header has arrived, Config.Room allocates memory for the buffers, so that it is charged to the
// receiver. If the edge's carrier hands memory over (InProcess), a message is one frame without bytes, and the header
// and the sender's own memory change hands. In both cases the receiver must free each Buffer that has an Owner.
//
// # Epochs
//
// Every message carries the epoch, the number of its Program. A message of the current epoch (the last Port.Begin) is
// reported at once. A message of a later epoch waits in its slot until Begin. A message of an earlier epoch is dropped,
// and its credit returned.
//
// # Slots and credits
//
// On an edge with n Slots, at most n messages wait at the receiver or are on their way to it. The receiver posts slots
// (Port.Post), which gives the sender as many credits. A message is sent only with a credit. Without one it waits at
// its sender, in the order of its edge, and holds up no other edge. The sender of transfers begins with credits for all
// slots of the edge, and gets one back for each message taken (Config.Credited). A collective posts its own slots when
// its member joins. An edge with 0 Slots has no credits: there the Program bounds how many messages lie at the
// receiver. A later Program may give an edge more slots, but never fewer. The sender gets credits for the additional
// slots when its edges are opened again.
//
// # Duties of a Port's caller
//
//  1. Name the edges of its workers for every Program. Both processes name the edges between two workers in the
//     same order.
//  2. Open the edges of a Program, then Begin its epoch, before its first message is sent. Do so only when all
//     processes have ended the Program before, so that nothing of it still waits in a carrier.
//  3. Post messages on an edge from one goroutine at a time: their order is the edge's order.
//  4. Do not touch a buffer between Send and its `done`. The port or the receiver frees its Owner.
//  5. Take every message that is reported, or Close the port, which frees the messages not taken.
//  6. Call Fail when the control connection says that a peer has failed. That ends the port: what waits in it and
//     what is posted with that peer ends with a PeerError within milliseconds, and so does every later call. What
//     is posted with other peers ends with Close. If a carrier notices first that its connection to a peer has
//     failed, the port calls Config.Broken.
//
// Functions given to a port or carrier (`done`, arrivals, failures) run on any goroutine, never under a lock of this
// package. They must not block and must not close the port.
//
// # Carriers
//
// A Carrier must
//
//  1. give an Address of at most MaxAddress bytes that stays the same until Close, and refuse in Connect an address
//     of another engine or version;
//  2. deliver the n-th frame sent on an edge to the n-th receive posted on it, counted over all epochs, whether the
//     send or the receive is posted first, and never hold up an edge because of a frame of another worker;
//  3. use frames and buffers only between the call and its `done`, and call `done` once for each call, on any
//     goroutine, under no lock of its own;
//  4. call the `done` functions of an edge's receives in ascending order of their numbers, each after the one before
//     it has returned. There is one exception: if `done` itself posts the next receive, the carrier may call that
//     receive's `done` before this `done` returns. The `done` functions of sends and those of different edges may be
//     called in any order, also at the same time, and so may all that end with an error;
//  5. refuse a frame of another length than its receive with a LengthError;
//  6. return from every method without waiting, on any goroutine;
//  7. count in Moved the bytes of frames that arrive in parts, so that a slow transfer can be told from a stalled one;
//  8. declare no worker dead: what cannot be moved stays posted until Fail or Close;
//  9. after Fail, end everything with that worker within milliseconds, with its first error; in Close, end
//     everything with ErrClosed, and return when none of its goroutines or `done` functions runs any more.
//
// Package wiretest tests what the Carrier interface demands. Carriers between workers of one process embed Local. Split
// joins two carriers: workers of one process reach each other through memory and other workers over TCP, edge by edge.
package wire
