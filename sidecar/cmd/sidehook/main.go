// Command sidehook verifies inbound webhooks next to an app, behind Envoy, and takes each of them once.
//
// Run `sidehook --help` for its commands. Each stands in a file of its own name.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
