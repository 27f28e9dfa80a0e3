package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/sidecar"
	"github.com/sidehook/sidehook/sidecar/config"
)

const (
	// gcPercent is higher than Go's 100: the live heap is a few MiB and each Check allocates a little, so the
	// collector would run all the time to keep a few MiB more. Beyond 500 it costs under a hundredth of the processor
	// either way, and with a million deliveries queued, whose pages' list is the most of the heap, memory instead.
	// $GOGC overrides it.
	gcPercent = 500
	// memoryBase plus twice the bodies and events in flight is the soft memory limit within which gcPercent holds; beyond it
	// the collector works harder. $GOMEMLIMIT overrides it.
	memoryBase = 128 << 20
)

const runLong = `Run the sidecar: the gate on extauthz.listen, the intake of events on egress.listen, the admin API on admin.listen, and
the probes on health.listen.

It is ready (/readyz) when the store is open and the configuration loaded. SIGHUP, or a change of the configuration or
of a secret file, reloads; SIGTERM or SIGINT finishes what is in hand, closes the store and exits 0.
Exit 1: the configuration is invalid. Exit 3: a listener or the store could not be had, a sync failed, or the store's
file is broken.`

func newRun(std stdio) *cobra.Command {
	var file configFlag
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the sidecar",
		Long:  runLong,
		Args:  args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return run(c.Context(), file.path(), std)
		},
	}
	file.register(c)
	return c
}

// run runs the sidecar on the configuration at path until ctx ends.
func run(ctx context.Context, path string, std stdio) error {
	// net/http writes bytes of a receiver to Go's global log, such as an answer that nobody asked for. They may hold what no
	// log shall, and they are in no form of ours.
	log.SetOutput(io.Discard)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // from the first: unheard, it would end the process
	defer signal.Stop(hangup)
	outbound := egress.NewMetrics()
	cfg, err := config.Load(path, config.OnDenied(outbound.Denied))
	if err != nil {
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			return err
		}
		return no(err)
	}
	tuneMemory(cfg)
	var level slog.LevelVar
	s, err := sidecar.New(ctx, sidecar.Options{
		Config:   cfg,
		Version:  readBuild().Version,
		Logger:   newLogger(cfg.Log, &level, std.err),
		Level:    &level,
		Hangup:   hangup,
		Outbound: outbound,
	})
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // reading a configuration takes many times what it leaves
	return s.Run(ctx)
}

// tuneMemory sets what the environment does not.
func tuneMemory(cfg *config.Config) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryBase + 2*(cfg.Limits.BodiesInFlightBytes+cfg.Limits.EgressBodiesBytes))
	}
}

// newLogger writes to w as cfg asks, from level up.
func newLogger(cfg config.Log, level *slog.LevelVar, w io.Writer) *slog.Logger {
	level.Set(cfg.Level)
	options := &slog.HandlerOptions{Level: level}
	if cfg.Text {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
