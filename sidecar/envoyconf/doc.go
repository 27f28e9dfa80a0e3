// Package envoyconf writes the Envoy configuration that belongs to a sidehook configuration: what `sidehook envoy`
// prints.
//
// What is written holds whatever the sources are, and the tests assert it on Envoy's own types:
//
//   - every route passes the gate, and nothing passes it when the gate does not answer (503);
//   - the gate sees paths, headers and bodies as the sender sent them, or Envoy refuses the request itself;
//   - bodies are held back on the routes of sources only, each up to its source's limit;
//   - one Check means at most one call of the app: no retries on a source's route, whatever the client's headers ask for;
//   - the app's time limit ends before the lease of the claim, and the gate's time limit after its store and its wait.
//
// The text comes from envoy.tmpl, not from Envoy's protobuf types: those would weigh more than the rest of the binary.
// It needs Envoy 1.34 or later.
package envoyconf
