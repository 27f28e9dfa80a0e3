// Package sidecar is the process: it wires the parts, opens the listeners and owns every goroutine.
//
// Listeners. The gate (Envoy's Checks, access log and ext_proc; gRPC on loopback or a Unix socket), the intake (events
// from the app; HTTP on loopback or a Unix socket), the admin API (Connect, gRPC, JSON and /debug/pprof; loopback or a
// Unix socket), and the probes (/healthz, /readyz, /metrics, open to the kubelet and Prometheus).
//
// Start. The configuration is read whole, the one store of both halves opened (a second process fails within a second and
// names the first), everything wired, then all listeners opened together, and the endpoints put in force once the store
// has them: ready means that the store is open and a configuration is in force. Nothing of the network is needed for it,
// and nothing that is queued is read for it.
//
// Reload. A change of the configuration file or of a secret file, or SIGHUP, builds a new snapshot; the gate sees the
// whole of it from one Check to the next, and endpoints follow as soon as the store has them. A wrong one is refused,
// logged and counted, and the old one stays. The store, listen addresses and limits are read at start only.
//
// Stop. SIGTERM or SIGINT: not ready; the gate accepts nothing new, finishes the Checks in hand and waits, bounded, for
// the confirms of what is with the app; beside it the intake finishes the posts in hand, and then the attempts in flight
// end, or are cut off, which uses none of them up; admin API and probes end; the store commits what waits and closes.
// Exit 0.
//
// A failed sync or a broken file ends the process with exit 3, since nothing that the store says can be trusted then.
// A full disk does not: Checks and posts get 503 until there is room.
//
// STORE. Events that are kept for the app lie in an outbox of their own in the same store, with a dispatcher of its own: see
// stored. It runs and stops beside the gate as the one of the outbound half does.
//
// Files. store.bolt.path holds sidehook.db (inbox and outboxes, bbolt) and sidehook.pid; nothing else is written.
package sidecar
