// Package structure holds the tests that keep the tree as the README describes it: who may import whom, one package
// comment a package, what may lie in the root, how long a file may be, and that the README's list of metrics is the
// code's. It has no code of its own; read imports_test.go for the table of layers.
package structure
