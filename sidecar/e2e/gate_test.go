package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// gate is a running sidehook.
type gate struct {
	process *os.Process
	done    chan struct{}
	err     error // of the ended process; read after done
}

// startGate runs `sidehook run` and returns when /readyz on the health socket says yes.
func startGate(ctx context.Context, path, config, logPath, health string) (*gate, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, path, "run", "-c", config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start sidehook: %w", err)
	}
	g := &gate{process: cmd.Process, done: make(chan struct{})}
	go func() {
		g.err = cmd.Wait()
		close(g.done)
	}()
	client := unixClient(health)
	defer client.CloseIdleConnections()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if res, err := client.Get("http://localhost/readyz"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return g, nil
			}
		}
		select {
		case <-g.done:
			return nil, fmt.Errorf("sidehook ended at once: %w: %s", g.err, tail(logPath, 5))
		case <-deadline.C:
			return nil, errors.Join(fmt.Errorf("sidehook is not ready: %s", tail(logPath, 5)), g.kill())
		case <-tick.C:
		}
	}
}

// kill ends it with SIGKILL and waits. Calling it twice is harmless.
func (g *gate) kill() error {
	err := g.process.Kill()
	<-g.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop ends it with SIGTERM and returns how it ended; a gate that does not end is killed.
func (g *gate) stop() error {
	if err := g.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-g.done:
		return g.err
	case <-time.After(patience):
		return errors.Join(errors.New("sidehook ignores SIGTERM"), g.kill())
	}
}
