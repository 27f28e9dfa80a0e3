// Package e2e tests the gate as users have it: the real binary, a real Envoy with the configuration that
// `sidehook envoy --bootstrap` prints for it, and an app that knows nothing of either.
package e2e
