// Package store is the durable ground on bbolt: one file, one committer, one owner.
//
// A store is a folder with sidehook.db, locked for as long as it is open, and sidehook.pid, which tells a second
// process who has it. All writing goes through one goroutine, [Store.Run]:
//
//	Submit(op, Urgent)      ─┐ starts a commit when none is running, else joins the next
//	                         ├─> batch: Apply, Apply, … ─> one commit, synced ─> Done, Done, …
//	Submit(op, Lazy)        ─┘ rides with the next commit, or goes alone after 20 ms
//
// So a lone caller pays one commit, and many callers share one. Either kind may be persistent: tried again after a failed
// write. Reading is done beside it in [Store.View] and costs no commit.
//
// Three classes of failure: an operation's own error ends that operation; ErrWrite ends a batch (disk full), and the
// store goes on and recovers by itself; a [Fatal] error ends Run, and the process with it.
package store
