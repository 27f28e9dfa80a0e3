package envoytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// readyTimeout bounds the start of an Envoy; it is ready within a second on an idle machine.
	readyTimeout = 30 * time.Second
	// readyEvery is how often a starting Envoy is asked.
	readyEvery = 20 * time.Millisecond
	// stopTimeout is what an Envoy gets between SIGTERM and SIGKILL.
	stopTimeout = 10 * time.Second
)

// Options say what to start.
type Options struct {
	// Bootstrap is a whole Envoy configuration as YAML. Its admin address is replaced by a free port of 127.0.0.1.
	Bootstrap []byte
	// Folder takes the configuration and the log; empty: a temporary folder that Stop and Kill remove.
	Folder string
	// Concurrency is the number of worker threads; zero: 1.
	Concurrency int
	// LogLevel is Envoy's; empty: warning.
	LogLevel string
}

// Envoy is a running Envoy. Its methods are safe for concurrent use.
type Envoy struct {
	// Admin is the address of its admin listener, host:port.
	Admin string
	// Log is the path of its log.
	Log string

	temp    string // removed at the end, or empty
	process *os.Process
	done    chan struct{} // closed when the process has been waited for
	state   error         // of the ended process; read after done
}

// Start runs the Envoy that Find finds and returns when it is ready. The caller ends it with Stop or Kill; the end of
// ctx kills it.
func Start(ctx context.Context, o Options) (*Envoy, error) {
	binary, err := Find(ctx)
	if err != nil {
		return nil, err
	}
	e := &Envoy{done: make(chan struct{})}
	folder := o.Folder
	if folder == "" {
		if folder, err = os.MkdirTemp("", "sidehook-envoy-"); err != nil {
			return nil, fmt.Errorf("make a folder for Envoy: %w", err)
		}
		e.temp = folder
	}
	if err := e.start(ctx, binary, folder, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start Envoy: %w", err), e.Kill())
	}
	return e, nil
}

func (e *Envoy) start(ctx context.Context, binary, folder string, o Options) error {
	config := filepath.Join(folder, "envoy.yaml")
	if err := os.WriteFile(config, o.Bootstrap, 0o600); err != nil {
		return err
	}
	adminFile := filepath.Join(folder, "admin-address")
	if err := os.Remove(adminFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	e.Log = filepath.Join(folder, "envoy.log")
	log, err := os.OpenFile(e.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	level := o.LogLevel
	if level == "" {
		level = "warning"
	}
	cmd := exec.CommandContext(ctx, binary,
		"--config-path", config,
		// Merged over the file: the port is Envoy's choice and is read from a file, so no two tests meet on one.
		"--config-yaml", `{admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}}`,
		"--admin-address-path", adminFile,
		"--concurrency", strconv.Itoa(max(1, o.Concurrency)),
		// Hot restart shares memory by base id; without it any number of Envoys run side by side.
		"--disable-hot-restart",
		"--log-level", level)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()

	started := make(chan error, 1)
	go func() {
		// The parent-death signal is bound to the thread, so this one must live as long as Envoy.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			e.process = cmd.Process
		}
		started <- err
		if err == nil {
			e.state = cmd.Wait()
			close(e.done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	return e.waitReady(ctx, adminFile)
}

// waitReady returns when Envoy says LIVE, or with the end of its log when it ended first.
func (e *Envoy) waitReady(ctx context.Context, adminFile string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.done:
			if e.state == nil {
				return fmt.Errorf("ended at once with exit code 0: %s", e.LogTail(5))
			}
			return fmt.Errorf("ended at once: %w: %s", e.state, e.LogTail(5))
		case <-ctx.Done():
			return fmt.Errorf("not ready (see %s): %w", e.Log, context.Cause(ctx))
		case <-tick.C:
		}
		if e.Admin == "" {
			addr, err := os.ReadFile(adminFile)
			if _, _, splitErr := net.SplitHostPort(string(addr)); err != nil || splitErr != nil {
				continue // not written yet
			}
			e.Admin = string(addr)
		}
		if _, err := e.Get(ctx, "/ready"); err == nil {
			return nil
		}
	}
}

// Get asks Envoy's admin listener for path, such as "/stats", and returns the body of a 200.
func (e *Envoy) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Admin+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy for %s: %w", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy for %s: %w", path, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask Envoy for %s: %s", path, res.Status)
	}
	return body, nil
}

// Addr returns the address on which a listener of the configuration really listens, where that said port 0.
func (e *Envoy) Addr(ctx context.Context, listener string) (string, error) {
	body, err := e.Get(ctx, "/listeners?format=json")
	if err != nil {
		return "", err
	}
	var got struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return "", fmt.Errorf("read Envoy's listeners: %w", err)
	}
	for _, s := range got.Statuses {
		if s.Name == listener {
			return net.JoinHostPort(s.Local.Socket.Address, strconv.Itoa(s.Local.Socket.Port)), nil
		}
	}
	return "", fmt.Errorf("envoy has no listener %q", listener)
}

// PID is Envoy's process id.
func (e *Envoy) PID() int { return e.process.Pid }

// Done is closed when the process has ended, for whatever reason.
func (e *Envoy) Done() <-chan struct{} { return e.done }

// Stop ends Envoy with SIGTERM, after ten seconds with SIGKILL, and waits for its end. Calling it twice is harmless.
func (e *Envoy) Stop() error { return e.end(syscall.SIGTERM) }

// Kill ends Envoy with SIGKILL and waits for its end. Calling it twice is harmless.
func (e *Envoy) Kill() error { return e.end(syscall.SIGKILL) }

func (e *Envoy) end(signal syscall.Signal) error {
	var err error
	if e.process != nil {
		if err = e.process.Signal(signal); errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		select {
		case <-e.done:
		case <-time.After(stopTimeout):
			err = errors.Join(err, e.process.Kill())
			<-e.done
		}
	}
	if e.temp != "" {
		err = errors.Join(err, os.RemoveAll(e.temp))
	}
	if err != nil {
		return fmt.Errorf("end Envoy: %w", err)
	}
	return nil
}

// LogTail returns the last lines of the log, joined by " | ", for error messages.
func (e *Envoy) LogTail(lines int) string {
	log, err := os.ReadFile(e.Log)
	if err != nil {
		return err.Error()
	}
	text := strings.TrimSpace(string(log))
	if text == "" {
		return "its log is empty"
	}
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}

// Validate reports whether Envoy accepts a whole configuration (`envoy --mode validate`); the error is Envoy's own.
func Validate(ctx context.Context, bootstrap []byte) error {
	binary, err := Find(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "sidehook-envoy-")
	if err != nil {
		return fmt.Errorf("make a folder for Envoy: %w", err)
	}
	defer os.RemoveAll(folder)
	config := filepath.Join(folder, "envoy.yaml")
	if err := os.WriteFile(config, bootstrap, 0o600); err != nil {
		return fmt.Errorf("write Envoy's configuration: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "--mode", "validate", "--config-path", config,
		"--disable-hot-restart", "--log-level", "error")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("validate Envoy's configuration: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
